// What a fat binary can hold, for tests/test_gpu_cubin.py. module.fatbin is this file alone, compiled by CUDA 13.5:
//   nvcc -fatbin --compress-mode=size -o module.fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_86,code=sm_86 \
//        -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90a,code=sm_90a module.cu
#include <cassert>

__device__ int table[4] = {10, 20, 30, 40};
__device__ int *second = &table[1];
__device__ float zeroed[8];
__constant__ float weights[3] = {1.0f, 2.0f, 4.0f};

__global__ void __launch_bounds__(128) staged(const float *in, float *out, int n, char which, double scale) {
    __shared__ float tile[33];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x & 31] = in[i];
    __syncthreads();
    if (i < n) out[i] = tile[(threadIdx.x + 1) & 31] * weights[which] * (float)scale + *second + table[i & 3] + zeroed[i & 7];
}

__global__ void checked(const int *in, int n) { assert(in[threadIdx.x] < n); }

__global__ void nothing() {}

struct Large {
    int values[1100];
};

__global__ void large(Large of, int *out, char more) { out[threadIdx.x] = of.values[threadIdx.x] + more; }

__global__ void stacked(int *out, int n) {
    int own[64];
    for (int i = 0; i < 64; i++) own[out[i] & 63] = i;
    out[n] = own[out[n] & 63];
}

__global__ void specific(int *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *out = 1;
#endif
}
