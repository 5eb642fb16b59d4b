/* A libnvidia-ml.so.1 that answers questions: see stub.h for what it is told. Prototypes and return codes: NVML
   API reference. STUB_FAIL=nvmlInit=18: library and kernel module of different releases. */
#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)
#define NOT_FOUND 6

EXPORT int nvmlInit_v2(void) { CHECKED; return 0; }
EXPORT int nvmlInit(void) { CHECKED; return 0; }
EXPORT int nvmlInitWithFlags(unsigned flags) { CHECKED; return flags != 0; }
EXPORT int nvmlShutdown(void) { CHECKED; return 0; }

EXPORT const char *nvmlErrorString(int status)
{
    switch (status) {
    case 0: return "The operation was successful";
    case 1: return "Uninitialized";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 12: return "Function Not Found";
    case 15: return "GPU is lost";
    case 17: return "The operating system has blocked the request";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    CHECKED;
    stub_copy(text, size, stub_text("STUB_RELEASE", "570.124.06"));
    return 0;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CHECKED;
    *version = (int)stub_number("STUB_CUDA", 12080);
    return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { CHECKED; *count = (unsigned)stub_number("STUB_GPUS", 1); return 0; }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    CHECKED;
    if (index >= (unsigned)stub_number("STUB_GPUS", 1)) return NOT_FOUND;
    *device = (char *)NULL + 1 + index;
    return 0;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    CHECKED;
    stub_copy(name, size, stub_text("STUB_NAME", "NVIDIA A100-SXM4-40GB"));
    return 0;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    CHECKED;
    snprintf(text, size, "GPU-07070707-0707-0707-0707-0707070707%02x", (unsigned)(6 + (size_t)device));
    return 0;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    CHECKED;
    stub_capability(major, minor);
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    size_t available, total;
    CHECKED;
    stub_memory(&available, &total);
    memory[0] = total;
    memory[1] = available;
    memory[2] = total - available;
    return 0;
}
