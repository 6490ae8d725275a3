/* Of NVRTC: nothing is compiled, which is an error that PyTorch tells. */
#include "standin.h"
#include "device.h"

int nvrtcVersion(int *major, int *minor) { *major = RUNTIME_VERSION / 1000, *minor = RUNTIME_VERSION % 1000 / 10; return 0; }
int nvrtcCompileProgram(void *program, int count, const char *const *options) { gpu_note("library", "nvrtcCompileProgram"); return 6; }
int nvrtcGetProgramLogSize(void *program, size_t *size) { *size = 1; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { *log = 0; return 0; }
