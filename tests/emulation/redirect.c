/* Preloaded: files of a driver's kernel module and of a CUDA toolkit are looked for under $STUB_ROOT, since nobody
   can put files into /proc and /sys, and a toolkit of this machine would hide that one is missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *redirected(const char *path, char *buffer, size_t size)
{
    static const char *const places[] = {"/proc/driver/nvidia", "/sys/bus/pci/devices/", "/sys/module/nvidia",
                                         "/usr/local/cuda", "/opt/cuda", "/dev/nvidia"};
    const char *root = getenv("STUB_ROOT");
    for (size_t i = 0; root && path && i < sizeof places / sizeof *places; i++)
        if (!strncmp(path, places[i], strlen(places[i]))) {
            snprintf(buffer, size, "%s%s", root, path);
            return buffer;
        }
    return path;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

#define OPEN(name)                                                                              \
    int name(const char *path, int flags, ...)                                                  \
    {                                                                                           \
        char buffer[4096];                                                                      \
        va_list arguments;                                                                      \
        va_start(arguments, flags);                                                             \
        int mode = va_arg(arguments, int);                                                      \
        va_end(arguments);                                                                      \
        return REAL(int, #name, const char *, int, ...)(redirected(path, buffer, sizeof buffer), flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                             \
    FILE *name(const char *path, const char *mode)                                              \
    {                                                                                           \
        char buffer[4096];                                                                      \
        return REAL(FILE *, #name, const char *, const char *)(redirected(path, buffer, sizeof buffer), mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int access(const char *path, int mode)
{
    char buffer[4096];
    return REAL(int, "access", const char *, int)(redirected(path, buffer, sizeof buffer), mode);
}

#define STAT(name, type)                                                                        \
    int name(const char *path, type *to)                                                        \
    {                                                                                           \
        char buffer[4096];                                                                      \
        return REAL(int, #name, const char *, type *)(redirected(path, buffer, sizeof buffer), to); \
    }
STAT(stat, struct stat)
STAT(stat64, struct stat64)

/* What programs call that were built with a C library before 2.33. */
#define OLD_STAT(name, type)                                                                    \
    int name(int version, const char *path, type *to)                                           \
    {                                                                                           \
        char buffer[4096];                                                                      \
        return REAL(int, #name, int, const char *, type *)(version, redirected(path, buffer, sizeof buffer), to); \
    }
OLD_STAT(__xstat, struct stat)
OLD_STAT(__xstat64, struct stat64)
