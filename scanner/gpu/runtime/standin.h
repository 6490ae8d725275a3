/* What the stand-ins of NVIDIA's libraries have of the runtime, which is loaded before them. */
#ifndef STANDIN_H
#define STANDIN_H
#include <stddef.h>
#include <stdint.h>

/* Write down what happened: "library" (a call that nobody executes), "product" (one that the CPU computed), "unknown". */
void gpu_note(const char *kind, const char *format, ...);
/* Record that a function is not simulated, and return the error of CUDA that says so; the other is the runtime's last, too. */
int gpu_unknown(const char *name);
int gpu_unsupported(const char *name);

/* Whether nothing is to be executed. */
int gpu_skips(void);

/* Modules that the driver loads: NULL if it is neither a fat binary nor a cubin; and what stands for a kernel or a variable in one. */
void *gpu_module(const void *data);
const void *gpu_symbol(void *module, const char *name);

/* Structures and functions of the runtime that others use, too; the former go on with bytes kept for later. */
typedef struct { unsigned x, y, z; } dim3;
typedef struct stream { int priority; } *stream_t;
struct launch_attribute { int id; int unused; union { char room[64]; int cooperative; dim3 cluster; } value; };
struct launch_config { dim3 grid, block; size_t shared; stream_t stream; const struct launch_attribute *attributes; unsigned count; };
struct function_attributes { /* in CUDA 13: then what concerns clusters */
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache, dynamic, carveout;
};
struct pointer_attributes { int type, device; void *device_pointer, *host_pointer; };
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaFuncGetAttributes(struct function_attributes *attributes, const void *function);
int cudaFuncSetAttribute(const void *function, int attribute, int value);
int cudaGetDeviceCount(int *count);
int cudaGetSymbolAddress(void **address, const void *symbol);
int cudaGetSymbolSize(size_t *size, const void *symbol);
int cudaLaunchKernelExC(const struct launch_config *config, const void *function, void **arguments);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared);
int cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *pointer);
const char *cudaGetErrorString(int error);
const char *cudaGetErrorName(int error);
#endif
