/* What nvcc makes of a kernel, a variable and a launch, without nvcc; and calls of what is not simulated (tests/test_gpu_runtime.py). */
#include <stddef.h>
typedef struct { unsigned x, y, z; } dim3;
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaGraphLaunch(void *, void *);
int cudnnRNNForward(void *);
int cudnnCreate(void **);
int cublasGemmEx(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                 const void *, void *, int, int, int, int);
static struct { unsigned magic; unsigned short version, head; unsigned long size; char data[8]; } fat = {0xBA55ED50, 1, 16, 8, "cubins!"};
static struct { int magic, version; void *data, *more; } wrapper = {0x466243b1, 1, &fat, 0};
char scale, refused, variable;
__attribute__((constructor)) static void registered(void) {
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, &scale, &scale, "scale", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &refused, &refused, "refused", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, &variable, &variable, "variable", 0, 4, 0, 0);
}
int launch(const void *kernel, void *data, float by, unsigned threads) {
    dim3 grid = {3, 2, 1}, block = {threads, 1, 1};
    size_t shared;
    void *stream, *arguments[] = {&data, &by};
    __cudaPushCallConfiguration(grid, block, 64, 0);
    __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
int graph(void) { return cudaGraphLaunch(0, 0); }
/* Two by three times three by one: a transposed, twice the product and half of what was there. */
int product(int type, const void *a, const void *b, void *c) {
    float twice = 2, half = 0.5f;
    return cublasGemmEx(0, 1, 0, 2, 1, 3, &twice, a, type, 3, b, type, 3, &half, c, type, 2, 68, -1);
}
int recurrent(void) { void *handle = 0; return cudnnCreate(&handle) || !handle || cudnnRNNForward(handle); }
