/* A libcudart.so that asks libcuda.so.1 for everything and starts no kernel. NVIDIA's own needs private tables of
   the driver, which the stub driver has not: with it TensorFlow comes no further than cudaGetDevice.
   Prototypes and codes: CUDA Runtime API (driver_types.h). STUB_FAIL counts here too. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)
#define INSUFFICIENT_DRIVER 35
#define NO_KERNEL_IMAGE 209
/* The runtime that this stands for: 12.5. */
#define RUNTIME 12050

static void *driver(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}
#define CALL(name, ...)                                       \
    ({                                                        \
        int (*function)() = (int (*)())driver(name);          \
        function ? function(__VA_ARGS__) : INSUFFICIENT_DRIVER; \
    })

static __thread int device, last;
static char handle;

/* A driver of an older major than the runtime is refused, as NVIDIA's runtime refuses it. */
static int ready(void)
{
    int version = 0, code = CALL("cuInit", 0);
    if (code) return code;
    CALL("cuDriverGetVersion", &version);
    return version / 1000 < RUNTIME / 1000 ? INSUFFICIENT_DRIVER : 0;
}
#define READY                      \
    do {                           \
        int code;                  \
        CHECKED;                   \
        code = ready();            \
        if (code) return last = code; \
    } while (0)

EXPORT const char *cudaGetErrorName(int code)
{
    const char *name = NULL;
    if (code == INSUFFICIENT_DRIVER) return "cudaErrorInsufficientDriver";
    CALL("cuGetErrorName", code, &name);
    return name ? name : "unrecognized error code";
}
EXPORT const char *cudaGetErrorString(int code)
{
    const char *text = NULL;
    if (code == INSUFFICIENT_DRIVER) return "CUDA driver version is insufficient for CUDA runtime version";
    CALL("cuGetErrorString", code, &text);
    return text ? text : "unrecognized error code";
}
EXPORT int cudaGetLastError(void) { int code = last; last = 0; return code; }
EXPORT int cudaPeekAtLastError(void) { return last; }

EXPORT int cudaRuntimeGetVersion(int *version) { CHECKED; *version = RUNTIME; return 0; }
EXPORT int cudaDriverGetVersion(int *version) { CHECKED; return CALL("cuDriverGetVersion", version); }
EXPORT int cudaGetDeviceCount(int *count) { READY; return CALL("cuDeviceGetCount", count); }
EXPORT int cudaGetDevice(int *which) { READY; *which = device; return 0; }
EXPORT int cudaSetDevice(int which)
{
    void *context = NULL;
    READY;
    device = which;
    last = CALL("cuDevicePrimaryCtxRetain", &context, which);
    if (!last) CALL("cuCtxSetCurrent", context);
    return last;
}
EXPORT int cudaSetDeviceFlags(unsigned flags) { CHECKED; return 0; }
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int which) { READY; return CALL("cuDeviceGetAttribute", value, attribute, which); }
EXPORT int cudaDeviceCanAccessPeer(int *can, int which, int peer) { READY; *can = 0; return 0; }
EXPORT int cudaDeviceSynchronize(void) { READY; return 0; }
EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { READY; *least = 0; *greatest = -5; return 0; }
EXPORT int cudaDeviceGetPCIBusId(char *id, int size, int which) { READY; return CALL("cuDeviceGetPCIBusId", id, size, which); }
EXPORT int cudaMemGetInfo(size_t *available, size_t *total) { READY; return CALL("cuMemGetInfo_v2", available, total); }
EXPORT int cudaMalloc(void **pointer, size_t bytes) { READY; return CALL("cuMemAlloc_v2", pointer, bytes); }
EXPORT int cudaFree(void *pointer) { READY; return pointer ? CALL("cuMemFree_v2", pointer) : 0; }
EXPORT int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) { READY; return CALL("cuMemHostAlloc", pointer, bytes, flags); }
EXPORT int cudaMallocHost(void **pointer, size_t bytes) { READY; return CALL("cuMemHostAlloc", pointer, bytes, 0); }
EXPORT int cudaFreeHost(void *pointer) { READY; return CALL("cuMemFreeHost", pointer); }
EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { READY; memcpy(to, from, bytes); return 0; }
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { READY; memcpy(to, from, bytes); return 0; }
EXPORT int cudaMemset(void *to, int value, size_t bytes) { READY; memset(to, value, bytes); return 0; }
EXPORT int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) { READY; memset(to, value, bytes); return 0; }
EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags) { READY; return CALL("cuStreamCreate", stream, flags); }
EXPORT int cudaStreamSynchronize(void *stream) { READY; return 0; }
EXPORT int cudaEventRecord(void *event, void *stream) { READY; return 0; }

/* --- kernels: all are known, none is started ---------------------------------------------------------- */

EXPORT void **__cudaRegisterFatBinary(void *binary) { static void *place; return &place; }
EXPORT void __cudaRegisterFatBinaryEnd(void **binary) {}
EXPORT void __cudaUnregisterFatBinary(void **binary) {}
EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *name, const char *device_name, int limit, void *a, void *b, void *c, void *d, int *e) {}
EXPORT void __cudaRegisterVar(void **binary, char *host, char *address, const char *name, int external, size_t size, int constant, int global) {}
EXPORT char __cudaInitModule(void **binary) { return 1; }

static __thread struct { unsigned grid[3], block[3]; size_t shared; void *stream; } configuration;
typedef struct { unsigned x, y, z; } Dimensions;

EXPORT unsigned __cudaPushCallConfiguration(Dimensions grid, Dimensions block, size_t shared, void *stream)
{
    memcpy(configuration.grid, &grid, sizeof grid);
    memcpy(configuration.block, &block, sizeof block);
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}
EXPORT int __cudaPopCallConfiguration(Dimensions *grid, Dimensions *block, size_t *shared, void **stream)
{
    memcpy(grid, configuration.grid, sizeof *grid);
    memcpy(block, configuration.block, sizeof *block);
    *shared = configuration.shared;
    *stream = configuration.stream;
    return 0;
}
EXPORT int cudaLaunchKernel(const void *function, Dimensions grid, Dimensions block, void **arguments, size_t shared, void *stream)
{
    CHECKED;
    return last = stub_launch(NO_KERNEL_IMAGE);
}
EXPORT int cudaGetFuncBySymbol(void **function, const void *symbol) { READY; *function = &handle; return 0; }
EXPORT int cudaFuncGetAttributes(void *attributes, const void *function) { READY; return last = NO_KERNEL_IMAGE; }
EXPORT int cudaFuncSetAttribute(const void *function, int attribute, int value) { READY; return 0; }
EXPORT int cudaFuncSetCacheConfig(const void *function, int config) { READY; return 0; }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int size, size_t shared) { READY; *blocks = 1; return 0; }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int size, size_t shared, unsigned flags) { READY; *blocks = 1; return 0; }
EXPORT int cudaStreamIsCapturing(void *stream, int *status) { READY; *status = 0; return 0; }

/* The first fields of cudaDeviceProp, which CUDA 11 and 12 have in common. */
typedef struct {
    char name[256], uuid[16], luid[8];
    unsigned mask;
    size_t memory, shared_per_block;
    int registers_per_block, warp;
    size_t pitch;
    int threads_per_block, block[3], grid[3], clock;
    size_t constant;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int overlap, multiprocessors;
} Properties;

EXPORT int cudaGetDeviceProperties_v2(Properties *to, int which)
{
    READY;
    memset(to, 0, sizeof *to);
    CALL("cuDeviceGetName", to->name, (int)sizeof to->name, which);
    CALL("cuDeviceTotalMem_v2", &to->memory, which);
    CALL("cuDeviceComputeCapability", &to->major, &to->minor, which);
    CALL("cuDeviceGetAttribute", &to->shared_per_block, 8, which);
    CALL("cuDeviceGetAttribute", &to->registers_per_block, 12, which);
    CALL("cuDeviceGetAttribute", &to->warp, 10, which);
    CALL("cuDeviceGetAttribute", &to->threads_per_block, 1, which);
    CALL("cuDeviceGetAttribute", &to->clock, 13, which);
    CALL("cuDeviceGetAttribute", &to->multiprocessors, 16, which);
    for (int i = 0; i < 3; i++) {
        CALL("cuDeviceGetAttribute", &to->block[i], 2 + i, which);
        CALL("cuDeviceGetAttribute", &to->grid[i], 5 + i, which);
    }
    return 0;
}
EXPORT int cudaGetDeviceProperties(Properties *to, int which) { return cudaGetDeviceProperties_v2(to, which); }
