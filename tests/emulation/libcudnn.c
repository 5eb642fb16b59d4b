/* A libcudnn.so that can be made and told apart by its version, and does nothing. NVIDIA's own needs a driver that
   works before TensorFlow asks it for its version.

   STUB_CUDNN  the version, as cudnnGetVersion counts (CUDNN, given when this is compiled; 8.9.7 is 8907)
   STUB_FAIL   counts here too: cudnnCreate=4 */
#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)

static char handle;

EXPORT size_t cudnnGetVersion(void) { return (size_t)stub_number("STUB_CUDNN", CUDNN); }
EXPORT size_t cudnnGetCudartVersion(void) { return 12050; }
EXPORT int cudnnGetProperty(int which, int *value)
{
    int version = (int)cudnnGetVersion(), unit = version >= 90000 ? 10000 : 1000;
    int parts[] = {version / unit, version % unit / 100, version % 100};
    CHECKED;
    if (which < 0 || which > 2) return 3;
    *value = parts[which];
    return 0;
}
EXPORT int cudnnCreate(void **made) { CHECKED; *made = &handle; return 0; }
EXPORT int cudnnDestroy(void *made) { CHECKED; return 0; }
EXPORT int cudnnSetStream(void *made, void *stream) { CHECKED; return 0; }
/* Names: cudnn_graph.h. Those of cuDNN 9 where it differs from 8. */
EXPORT const char *cudnnGetErrorString(int status)
{
    switch (status) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_ALLOC_FAILED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 6: return "CUDNN_STATUS_ARCH_MISMATCH";
    case 8: return "CUDNN_STATUS_EXECUTION_FAILED";
    case 1001: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 1002: return "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH";
    case 4000: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5000: return "CUDNN_STATUS_EXECUTION_FAILED";
    case 5003: return "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER";
    default: return "CUDNN_STATUS_UNKNOWN";
    }
}
