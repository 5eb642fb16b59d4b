/* What both stubs are told, by environment variables. A stub claims a driver and GPUs, and can do no work:
   no kernel ever runs.

   STUB_GPUS             devices (1)
   STUB_NAME             their name (NVIDIA A100-SXM4-40GB)
   STUB_CAPABILITY       compute capability (8.0, for which every release has machine code)
   STUB_MULTIPROCESSORS  (108)
   STUB_MEMORY_MIB       (40536); STUB_FREE_MIB: what of it nobody uses (all but 500)
   STUB_LARGEST_MIB      the largest allocation that succeeds (any)
   STUB_LAUNCHES         1: kernels and products of matrices are said to have run; nothing is computed all the same
   STUB_CUDA             newest CUDA of the driver, as cuDriverGetVersion counts (12080)
   STUB_RELEASE          the driver's release, as NVML tells it (570.124.06)
   STUB_FAIL             what functions return: cuInit=999,cuMemAlloc=2; a suffix _v2 belongs to the name or not
   STUB_HEALTH           a file with the health of the GPUs, see libnvidia_ml.c (nothing is supported)
   STUB_TRACE            a file to which the name of every function that is called is appended */
#ifndef STUB_H
#define STUB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline long stub_number(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value && *value ? strtol(value, NULL, 10) : otherwise;
}

static inline const char *stub_text(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* The two numbers of STUB_CAPABILITY. */
static inline void stub_capability(int *major, int *minor)
{
    if (sscanf(stub_text("STUB_CAPABILITY", "8.0"), "%d.%d", major, minor) != 2) {
        *major = 8;
        *minor = 0;
    }
}

static inline void stub_memory(size_t *available, size_t *total)
{
    long mebibytes = stub_number("STUB_MEMORY_MIB", 40536);
    *total = (size_t)mebibytes << 20;
    *available = (size_t)stub_number("STUB_FREE_MIB", mebibytes - 500) << 20;
}

static inline void stub_copy(char *to, size_t size, const char *from)
{
    if (size) snprintf(to, size, "%s", from);
}

/* What starting a kernel returns. */
static inline int stub_launch(int refused)
{
    return stub_number("STUB_LAUNCHES", 0) ? 0 : refused;
}

/* What STUB_FAIL says of a function, or 0. */
static inline int stub_failure(const char *function)
{
    const char *at = getenv("STUB_FAIL"), *trace = getenv("STUB_TRACE");
    size_t length = strlen(function);
    if (trace) {
        FILE *file = fopen(trace, "a");
        if (file) {
            fprintf(file, "%s\n", function);
            fclose(file);
        }
    }
    if (length > 3 && !strncmp(function + length - 3, "_v", 2)) length -= 3;
    while (at && *at) {
        size_t name = strcspn(at, "=,");
        if (at[name] == '=' && !strncmp(at, function, length) &&
            (name == length || (name == length + 3 && at[length] == '_')))
            return atoi(at + name + 1);
        at += strcspn(at, ",");
        if (*at) at++;
    }
    return 0;
}

#endif
