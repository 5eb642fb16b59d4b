/* A libcublas.so and libcublasLt.so that can be made and multiply nothing. NVIDIA's own need a driver that works.
   STUB_FAIL counts here too: cublasCreate=1. Prototypes: cublas_v2.h, cublasLt.h. */
#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)
#define EXECUTION_FAILED 13

static char handle;

EXPORT int cublasCreate_v2(void **made) { CHECKED; *made = &handle; return 0; }
EXPORT int cublasDestroy_v2(void *made) { CHECKED; return 0; }
EXPORT int cublasSetStream_v2(void *made, void *stream) { CHECKED; return 0; }
EXPORT int cublasSetWorkspace_v2(void *made, void *place, size_t bytes) { CHECKED; return 0; }
EXPORT int cublasGetMathMode(void *made, int *mode) { CHECKED; *mode = 0; return 0; }
EXPORT int cublasSetMathMode(void *made, int mode) { CHECKED; return 0; }
EXPORT int cublasGetPointerMode_v2(void *made, int *mode) { CHECKED; *mode = 0; return 0; }
EXPORT int cublasSetPointerMode_v2(void *made, int mode) { CHECKED; return 0; }
EXPORT int cublasGetAtomicsMode(void *made, int *mode) { CHECKED; *mode = 0; return 0; }
EXPORT int cublasSetAtomicsMode(void *made, int mode) { CHECKED; return 0; }
EXPORT int cublasGetVersion_v2(void *made, int *version) { CHECKED; *version = 120503; return 0; }
EXPORT int cublasSgemm_v2() { CHECKED; return stub_launch(EXECUTION_FAILED); }
EXPORT int cublasGemmEx() { CHECKED; return stub_launch(EXECUTION_FAILED); }
EXPORT int cublasSgemmEx() { CHECKED; return stub_launch(EXECUTION_FAILED); }
EXPORT int cublasLtCreate(void **made) { CHECKED; *made = &handle; return 0; }
EXPORT int cublasLtDestroy(void *made) { CHECKED; return 0; }
EXPORT size_t cublasLtGetVersion(void) { return 120503; }
