/* Of libcuda, the driver: what PyTorch, Triton and Inductor ask, modules that they load, and launches of their kernels.
 *
 * Devices, errors, kernels and memory are the runtime's: a function here is what stands for a kernel there. Numbers of errors and
 * attributes are the same in both.
 */
#include "standin.h"
#include "device.h"
#include <stdio.h>
#include <stdlib.h>

enum { INVALID_VALUE = 1, NO_DEVICE = 101, NO_BINARY = 209, FILE_NOT_FOUND = 301, NOT_FOUND = 500 };

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return 0; }
int cuDeviceGetCount(int *count) { return cudaGetDeviceCount(count); }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? NO_DEVICE : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return cudaDeviceGetAttribute(value, attribute, device); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0, *active = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x1000; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x1000; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuGetErrorString(int error, const char **text) { *text = cudaGetErrorString(error); return 0; }
int cuGetErrorName(int error, const char **name) { *name = cudaGetErrorName(error); return 0; }
/* Nothing is ever logged, or captured. */
int cuLogsRegisterCallback(void *callback, void *data, void **handle) { *handle = (void *)0x1000; return 0; }
int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }

/* A library with CUDA's runtime in it asks for the driver's functions so: PyTorch's own, and Triton, use the shared one. */
static int inside(void) { gpu_note("unknown", "a library has a CUDA runtime of its own in it; link it with the shared one (nvcc -cudart shared)"); return 801; }
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) { return inside(); }
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) { return inside(); }

/* ---- modules: a cubin or a fat binary; PTX is not compiled here ------------------------------------------------------ */

int cuModuleLoadData(void **module, const void *data) {
    *module = gpu_module(data);
    if (!*module) gpu_note("library", "cuModuleLoadData of PTX, which the driver compiles");
    return *module ? 0 : NO_BINARY;
}
int cuModuleLoadDataEx(void **module, const void *data, unsigned count, int *options, void **values) { return cuModuleLoadData(module, data); }
int cuModuleLoadFatBinary(void **module, const void *data) { return cuModuleLoadData(module, data); }
int cuModuleLoad(void **module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return FILE_NOT_FOUND;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    char *data = calloc(1, size + 64);
    rewind(file);
    int error = size < 0 || fread(data, 1, size, file) != (size_t)size ? FILE_NOT_FOUND : cuModuleLoadData(module, data);
    free(data), fclose(file);
    return error;
}
/* A module stays: what was launched of it is told by its kernels' names. */
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(const void **function, void *module, const char *name) {
    struct function_attributes known;
    return cudaFuncGetAttributes(&known, *function = gpu_symbol(module, name)) ? NOT_FOUND : 0;
}
int cuModuleGetGlobal_v2(void **address, size_t *size, void *module, const char *name) {
    const void *symbol = gpu_symbol(module, name);
    size_t known;
    return cudaGetSymbolAddress(address, symbol) || cudaGetSymbolSize(size ? size : &known, symbol) ? NOT_FOUND : 0;
}
int cuFuncGetAttribute(int *value, int attribute, const void *function) {
    struct function_attributes a;
    int error = cudaFuncGetAttributes(&a, function);
    if (error) return error;
    const size_t all[] = {a.threads, a.shared, a.constant, a.local, a.registers, a.ptx, a.binary, a.cache, a.dynamic, a.carveout};
    if ((unsigned)attribute >= sizeof all / sizeof *all) return INVALID_VALUE;
    *value = all[attribute];
    return 0;
}
int cuFuncSetAttribute(const void *function, int attribute, int value) { return cudaFuncSetAttribute(function, attribute, value); }
int cuFuncSetCacheConfig(const void *function, int config) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared); }

/* ---- launches -------------------------------------------------------------------------------------------------------- */

struct driver_config { dim3 grid, block; unsigned shared; stream_t stream; const struct launch_attribute *attributes; unsigned count; };
int cuLaunchKernelEx(const struct driver_config *c, const void *function, void **arguments, void **extra) {
    if (extra) return gpu_unknown("cuLaunchKernelEx of parameters in one buffer");
    const struct launch_config config = {c->grid, c->block, c->shared, c->stream, c->attributes, c->count};
    return cudaLaunchKernelExC(&config, function, arguments);
}
int cuLaunchKernel(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned shared, stream_t stream, void **arguments, void **extra) {
    const struct driver_config config = {{gx, gy, gz}, {x, y, z}, shared, stream, NULL, 0};
    return cuLaunchKernelEx(&config, function, arguments, extra);
}
int cuLaunchCooperativeKernel(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned shared, stream_t stream, void **arguments) {
    const struct launch_attribute cooperative = {.id = 2, .value.cooperative = 1};
    const struct driver_config config = {{gx, gy, gz}, {x, y, z}, shared, stream, &cooperative, 1};
    return cuLaunchKernelEx(&config, function, arguments, NULL);
}

/* Attributes of a pointer: the memory's type, its address on the device, its address on the host. */
int cuPointerGetAttribute(void *value, int attribute, void *pointer) {
    struct pointer_attributes a;
    cudaPointerGetAttributes(&a, pointer);
    if (!a.type) return INVALID_VALUE;
    if (attribute == 2) *(unsigned *)value = a.type == 1 ? 1 : 2;
    else if (attribute == 3) *(void **)value = a.device_pointer;
    else if (attribute == 4 && a.host_pointer) *(void **)value = a.host_pointer;
    else return attribute == 4 ? INVALID_VALUE : gpu_unknown("cuPointerGetAttribute of another attribute");
    return 0;
}

/* What Triton's helper names and these kernels do not need; one that calls it is told by name. */
#define ABSENT(name) int name(void) { return gpu_unknown(#name); }
ABSENT(cuCtxGetLimit) ABSENT(cuCtxSetLimit) ABSENT(cuOccupancyMaxActiveClusters) ABSENT(cuTensorMapEncodeTiled) ABSENT(cuTensorMapEncodeIm2col)
