/* A libcuda.so.1 that answers questions and does nothing: see stub.h for what it is told.
   Prototypes, attributes and codes: CUDA Driver API (cuda.h). */
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>

#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
/* Every function first does what STUB_FAIL says of it. */
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define NO_DEVICE 100
#define INVALID_DEVICE 101
#define NOT_FOUND 500
#define NOT_SUPPORTED 801

typedef struct { int code; const char *name, *text; } Error;
/* Names from cuda.h, texts as NVIDIA's driver tells them. */
static const Error errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "API call is not supported in the installed CUDA driver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const Error *error_of(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return &errors[i];
    return NULL;
}

EXPORT int cuGetErrorName(int code, const char **name)
{
    const Error *error = error_of(code);
    *name = error ? error->name : NULL;
    return error ? 0 : INVALID_VALUE;
}

EXPORT int cuGetErrorString(int code, const char **text)
{
    const Error *error = error_of(code);
    *text = error ? error->text : NULL;
    return error ? 0 : INVALID_VALUE;
}

/* --- devices ------------------------------------------------------------------------------------------ */

/* The devices that CUDA_VISIBLE_DEVICES leaves, in its order: an entry that names no device hides itself and
   all after it. An entry is an index or the beginning of a UUID. */
static int visible[64];

static const char *uuid_of(int device)
{
    static char text[64];
    snprintf(text, sizeof text, "GPU-07070707-0707-0707-0707-0707070707%02x", 7 + device);
    return text;
}

static int device_of(const char *entry, size_t length, int devices)
{
    char *end;
    long index = strtol(entry, &end, 10);
    if (length && (size_t)(end - entry) == length) return index >= 0 && index < devices ? (int)index : -1;
    for (int i = 0; i < devices; i++)
        if (length >= 8 && !strncmp(entry, uuid_of(i), length)) return i;
    return -1;
}

static int count_visible(void)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    int devices = (int)stub_number("STUB_GPUS", 1), count = 0;
    if (!at) {
        for (; count < devices; count++) visible[count] = count;
        return count;
    }
    while (*at && count < 64) {
        size_t length = strcspn(at, ",");
        int device = device_of(at, length, devices);
        if (device < 0) break;
        visible[count++] = device;
        at += length;
        if (*at) at++;
    }
    return count;
}

EXPORT int cuInit(unsigned flags) { CHECKED; return count_visible() ? 0 : NO_DEVICE; }
EXPORT int cuDriverGetVersion(int *version) { CHECKED; *version = (int)stub_number("STUB_CUDA", 12080); return 0; }
EXPORT int cuDeviceGetCount(int *count) { CHECKED; *count = count_visible(); return 0; }

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    CHECKED;
    if (ordinal < 0 || ordinal >= count_visible()) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
    CHECKED;
    stub_copy(name, size, stub_text("STUB_NAME", "NVIDIA A100-SXM4-40GB"));
    return 0;
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    CHECKED;
    count_visible();
    memset(uuid, 7, 16);
    uuid[15] = (unsigned char)(7 + visible[device]);
    return 0;
}
EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    size_t available;
    CHECKED;
    stub_memory(&available, bytes);
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device)
{
    CHECKED;
    count_visible();
    snprintf(id, size, "0000:%02X:00.0", 1 + visible[device]);
    return 0;
}

EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device)
{
    CHECKED;
    stub_capability(major, minor);
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int major, minor;
    CHECKED;
    stub_capability(&major, &minor);
    switch (attribute) {
    case 1: *value = 1024; break;                       /* threads per block */
    case 2: case 3: *value = 1024; break;               /* block x, y */
    case 4: *value = 64; break;                         /* block z */
    case 5: *value = 2147483647; break;                 /* grid x */
    case 6: case 7: *value = 65535; break;              /* grid y, z */
    case 8: *value = 49152; break;                      /* shared memory per block */
    case 9: *value = 65536; break;                      /* constant memory */
    case 10: *value = 32; break;                        /* warp */
    case 11: *value = 2147483647; break;                /* pitch */
    case 12: *value = 65536; break;                     /* registers per block */
    case 13: *value = 1755000; break;                   /* clock, kHz */
    case 16: *value = (int)stub_number("STUB_MULTIPROCESSORS", 108); break;
    case 20: *value = 0; break;                         /* compute mode: default */
    case 32: *value = 1; break;                         /* ECC */
    case 36: *value = 1593000; break;                   /* memory clock, kHz */
    case 37: *value = 5120; break;                      /* memory bus, bits */
    case 38: *value = 50 << 20; break;                  /* L2 */
    case 39: *value = 2048; break;                      /* threads per multiprocessor */
    case 75: *value = major; break;
    case 76: *value = minor; break;
    case 81: *value = 233472; break;                    /* shared memory per multiprocessor */
    case 82: *value = 65536; break;                     /* registers per multiprocessor */
    case 97: *value = 232448; break;                    /* shared memory per block, opt-in */
    case 33: case 34: case 50: case 121: *value = 0; break; /* PCI bus and device number, domain, ... */
    default: *value = 1;
    }
    return 0;
}

EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer) { CHECKED; *can = 0; return 0; }
EXPORT int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) { CHECKED; *value = 0; return 0; }

/* --- contexts ----------------------------------------------------------------------------------------- */

static char contexts[64];
static __thread void *current;

static void *context_of(int device) { return &contexts[device & 63]; }
static int device_in(void *context) { return context ? (int)((char *)context - contexts) : 0; }

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    CHECKED;
    *context = context_of(device);
    return 0;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { CHECKED; *flags = 0; *active = 1; return 0; }
EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { CHECKED; return 0; }
EXPORT int cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { CHECKED; return 0; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { CHECKED; return 0; }
EXPORT int cuDevicePrimaryCtxRelease(int device) { CHECKED; return 0; }
EXPORT int cuDevicePrimaryCtxReset_v2(int device) { CHECKED; return 0; }
EXPORT int cuDevicePrimaryCtxReset(int device) { CHECKED; return 0; }
EXPORT int cuCtxSetCurrent(void *context) { CHECKED; current = context; return 0; }
EXPORT int cuCtxGetCurrent(void **context) { CHECKED; *context = current; return 0; }
EXPORT int cuCtxPushCurrent_v2(void *context) { CHECKED; current = context; return 0; }
EXPORT int cuCtxPopCurrent_v2(void **context) { CHECKED; if (context) *context = current; return 0; }
EXPORT int cuCtxGetDevice(int *device) { CHECKED; *device = device_in(current); return 0; }
EXPORT int cuCtxSynchronize(void) { CHECKED; return 0; }
EXPORT int cuCtxSetLimit(int limit, size_t value) { CHECKED; return 0; }
EXPORT int cuCtxGetLimit(size_t *value, int limit) { CHECKED; *value = 1024; return 0; }
EXPORT int cuCtxSetCacheConfig(int config) { CHECKED; return 0; }
EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) { CHECKED; *least = 0; *greatest = -5; return 0; }
EXPORT int cuCtxEnablePeerAccess(void *peer, unsigned flags) { CHECKED; return NOT_SUPPORTED; }

/* --- memory: the host's, so that copies are copies ---------------------------------------------------- */

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CHECKED;
    stub_memory(available, total);
    return 0;
}

#define PAGE 4096

/* Address space alone, with its size in the page before it: memory is only taken when it is written to. */
EXPORT int cuMemAlloc_v2(void **pointer, size_t bytes)
{
    size_t available, total;
    void *place;
    CHECKED;
    stub_memory(&available, &total);
    if (bytes > available || bytes >> 20 > (size_t)stub_number("STUB_LARGEST_MIB", 1 << 20)) return OUT_OF_MEMORY;
    place = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return OUT_OF_MEMORY;
    *(size_t *)place = bytes + PAGE;
    *pointer = (char *)place + PAGE;
    return 0;
}
EXPORT int cuMemFree_v2(char *pointer)
{
    CHECKED;
    if (pointer) munmap(pointer - PAGE, *(size_t *)(pointer - PAGE));
    return 0;
}
EXPORT int cuMemAllocManaged(void **pointer, size_t bytes, unsigned flags) { return cuMemAlloc_v2(pointer, bytes); }
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CHECKED;
    *pointer = memalign(PAGE, bytes);
    return *pointer ? 0 : OUT_OF_MEMORY;
}
EXPORT int cuMemFreeHost(void *pointer) { CHECKED; free(pointer); return 0; }
EXPORT int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) { CHECKED; return 0; }
EXPORT int cuMemHostUnregister(void *pointer) { CHECKED; return 0; }
EXPORT int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) { CHECKED; *device = host; return 0; }
EXPORT int cuMemGetAddressRange_v2(void **base, size_t *bytes, void *pointer) { CHECKED; return INVALID_VALUE; }
EXPORT int cuPointerGetAttribute(void *data, int attribute, void *pointer) { CHECKED; return INVALID_VALUE; }

#define COPY(name, to, from)                                                                        \
    EXPORT int name##_v2(to target, from source, size_t bytes)                                      \
    {                                                                                               \
        CHECKED;                                                                                    \
        memcpy((void *)target, (const void *)source, bytes);                                        \
        return 0;                                                                                   \
    }                                                                                               \
    EXPORT int name##Async_v2(to target, from source, size_t bytes, void *stream)                   \
    {                                                                                               \
        CHECKED;                                                                                    \
        memcpy((void *)target, (const void *)source, bytes);                                        \
        return 0;                                                                                   \
    }
COPY(cuMemcpyHtoD, void *, void *)
COPY(cuMemcpyDtoH, void *, void *)
COPY(cuMemcpyDtoD, void *, void *)

EXPORT int cuMemsetD8_v2(void *target, unsigned char value, size_t count) { CHECKED; memset(target, value, count); return 0; }
EXPORT int cuMemsetD8Async(void *target, unsigned char value, size_t count, void *stream) { CHECKED; memset(target, value, count); return 0; }
EXPORT int cuMemsetD32_v2(uint32_t *target, uint32_t value, size_t count) { CHECKED; while (count--) *target++ = value; return 0; }
EXPORT int cuMemsetD32Async(uint32_t *target, uint32_t value, size_t count, void *stream) { CHECKED; while (count--) *target++ = value; return 0; }

EXPORT int cuDeviceGetDefaultMemPool(void **pool, int device) { CHECKED; return NOT_SUPPORTED; }
EXPORT int cuMemPoolCreate(void **pool, const void *properties) { CHECKED; return NOT_SUPPORTED; }
EXPORT int cuMemAllocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream) { CHECKED; return NOT_SUPPORTED; }

/* --- streams and events: whatever is waited for has happened ------------------------------------------ */

static char handle;

EXPORT int cuStreamCreate(void **stream, unsigned flags) { CHECKED; *stream = malloc(1); return 0; }
EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { CHECKED; *stream = malloc(1); return 0; }
EXPORT int cuStreamDestroy_v2(void *stream) { CHECKED; free(stream); return 0; }
EXPORT int cuStreamSynchronize(void *stream) { CHECKED; return 0; }
EXPORT int cuStreamQuery(void *stream) { CHECKED; return 0; }
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { CHECKED; return 0; }
EXPORT int cuStreamGetPriority(void *stream, int *priority) { CHECKED; *priority = 0; return 0; }
EXPORT int cuStreamGetCtx(void *stream, void **context) { CHECKED; *context = current; return 0; }
EXPORT int cuStreamIsCapturing(void *stream, int *status) { CHECKED; *status = 0; return 0; }
EXPORT int cuStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data, unsigned flags)
{
    CHECKED;
    call(stream, 0, data);
    return 0;
}
EXPORT int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) { CHECKED; call(data); return 0; }
EXPORT int cuEventCreate(void **event, unsigned flags) { CHECKED; *event = malloc(1); return 0; }
EXPORT int cuEventDestroy_v2(void *event) { CHECKED; free(event); return 0; }
EXPORT int cuEventRecord(void *event, void *stream) { CHECKED; return 0; }
EXPORT int cuEventQuery(void *event) { CHECKED; return 0; }
EXPORT int cuEventSynchronize(void *event) { CHECKED; return 0; }
EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end) { CHECKED; *milliseconds = 0.01f; return 0; }

/* --- modules: loaded, but no kernel ever runs --------------------------------------------------------- */

#define NO_KERNEL 209

EXPORT int cuModuleLoadData(void **module, const void *image) { CHECKED; *module = &handle; return 0; }
EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) { CHECKED; *module = &handle; return 0; }
EXPORT int cuModuleLoadFatBinary(void **module, const void *image) { CHECKED; *module = &handle; return 0; }
EXPORT int cuModuleUnload(void *module) { CHECKED; return 0; }
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) { CHECKED; *function = &handle; return 0; }
EXPORT int cuModuleGetGlobal_v2(void **pointer, size_t *bytes, void *module, const char *name) { CHECKED; return NOT_FOUND; }
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) { CHECKED; *value = 32; return 0; }
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) { CHECKED; return 0; }
EXPORT int cuFuncSetCacheConfig(void *function, int config) { CHECKED; return 0; }
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int size, size_t memory) { CHECKED; *blocks = 1; return 0; }
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int size, size_t memory, unsigned flags) { CHECKED; *blocks = 1; return 0; }
EXPORT int cuLaunchKernel(
    void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned memory, void *stream, void **parameters, void **extra)
{
    CHECKED;
    return stub_launch(NO_KERNEL);
}
