/* A libnvidia-ml.so.1 that answers questions: see stub.h for what it is told. Prototypes and return codes: NVML
   API reference. STUB_FAIL=nvmlInit=18: library and kernel module of different releases. */
#include "stub.h"

#define EXPORT __attribute__((visibility("default")))
#define CHECKED                               \
    do {                                      \
        int failure = stub_failure(__func__); \
        if (failure) return failure;          \
    } while (0)
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TIMEOUT 10
#define LOST 15

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

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, identifier, subsystem;
    char address[32];
} pci_info;

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, pci_info *found)
{
    CHECKED;
    unsigned bus = (unsigned)(6 + (size_t)device);
    *found = (pci_info){.bus = bus};
    snprintf(found->address, sizeof found->address, "00000000:%02X:00.0", bus);
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

/* The health of the GPUs. STUB_HEALTH names a file with a line for each value, which a test changes during a run:
     errors     uncorrected memory errors
     pending, failed   1: the remapping of memory rows waits for a reset, or failed
     reasons    the bits of the reasons for lower clocks
     process    the id of a process that computes
     xid        the code of an Xid message, reported once
     lost       1: nothing answers any more
   Without the file, or the line, the value is not supported. */
static int health(const char *name, unsigned long long *value)
{
    const char *path = getenv("STUB_HEALTH");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[64];
    int found = NOT_SUPPORTED;
    size_t length = strlen(name);
    if (!file) return NOT_SUPPORTED;
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "lost=1", 6)) {
            found = LOST;
            break;
        }
        if (!strncmp(line, name, length) && line[length] == '=') {
            *value = strtoull(line + length + 1, NULL, 0);
            found = 0;
        }
    }
    fclose(file);
    return found;
}

EXPORT int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count)
{
    CHECKED;
    return type == 1 && counter == 0 ? health("errors", count) : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                     unsigned *failed)
{
    unsigned long long waits = 0, broken = 0;
    int status = health("pending", &waits);
    CHECKED;
    if (!status) status = health("failed", &broken);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)waits;
    *failed = (unsigned)broken;
    return status;
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons)
{
    CHECKED;
    return health("reasons", reasons);
}

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes)
{
    unsigned long long pid = 0;
    int status = health("process", &pid);
    CHECKED;
    if (status) return status;
    *count = pid != 0;
    if (pid) processes[0] = (struct process){(unsigned)pid, 1 << 20, 0, 0};
    return 0;
}

EXPORT int nvmlEventSetCreate(void **set) { CHECKED; *set = (char *)NULL + 1; return 0; }

EXPORT int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    unsigned long long ignored;
    CHECKED;
    return types == 8 ? health("xid", &ignored) : NOT_SUPPORTED;
}

struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

EXPORT int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds)
{
    static unsigned long long reported;
    unsigned long long code = 0;
    CHECKED;
    if (health("xid", &code) || !code || code == reported) return TIMEOUT;
    reported = code;
    *event = (struct event){(char *)NULL + 1, 8, code, 0, 0};
    return 0;
}
