/* A libcuda.so.1 and libnvidia-ml.so.1 that claim one GPU and can do nothing: both interfaces in one file,
   compiled twice. Enough for TensorFlow to register the device. */
#include <stddef.h>
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "NVIDIA H100 PCIe", size); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)80 << 30; return 0; }
int cuDeviceGetPCIBusId(char *id, int size, int device) { strncpy(id, "0000:01:00.0", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    switch (attribute) {
    case 75: *value = 9; break;   /* compute capability, major */
    case 76: *value = 0; break;   /* compute capability, minor */
    case 16: *value = 114; break; /* multiprocessors */
    case 10: *value = 32; break;  /* warp size */
    default: *value = 1;
    }
    return 0;
}
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_OF_STUB"; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "stub"; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)16; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)16; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    *available = (size_t)79 << 30;
    *total = (size_t)80 << 30;
    return 0;
}

int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.124.06", size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)32; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strncpy(name, "NVIDIA H100 PCIe", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { strncpy(text, "GPU-stub", size); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = 80ull << 30;
    memory[1] = 79ull << 30;
    memory[2] = 1ull << 30;
    return 0;
}
const char *nvmlErrorString(int status) { return "stub"; }
