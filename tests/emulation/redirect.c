/* Preloaded: files of a driver's kernel module are looked for under $STUB_ROOT, since nobody can put files into
   /proc and /sys. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *redirected(const char *path, char *buffer, size_t size)
{
    static const char *const places[] = {"/proc/driver/nvidia", "/sys/bus/pci/devices/", "/sys/module/nvidia"};
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
