/* Of libcuda, the driver: what PyTorch asks before anybody launches a kernel by it. Devices and errors are the runtime's. */
#include "standin.h"

int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return cudaDeviceGetAttribute(value, attribute, device); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0, *active = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x1000; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x1000; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuGetErrorString(int error, const char **text) { *text = cudaGetErrorString(error); return 0; }
int cuGetErrorName(int error, const char **name) { *name = cudaGetErrorName(error); return 0; }
/* Nothing is ever logged. */
int cuLogsRegisterCallback(void *callback, void *data, void **handle) { *handle = (void *)0x1000; return 0; }
