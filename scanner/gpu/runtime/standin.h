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

/* Functions of the runtime that others call, too. */
int cudaDeviceGetAttribute(int *value, int attribute, int device);
const char *cudaGetErrorString(int error);
const char *cudaGetErrorName(int error);
#endif
