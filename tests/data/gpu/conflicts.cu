// Kernels whose accesses are in conflict, or are not, each in one way (tests/test_gpu_conflicts.py). Compiled by CUDA 13.5:
//   nvcc -arch=sm_80 -O3 -fatbin --compress-mode=size conflicts.cu -o conflicts.fatbin
extern "C" {
// One addition by each block, by each warp of a block, by each lane of a warp.
__global__ void add_by_blocks(float *out, const float *in) { if (threadIdx.x == 0) atomicAdd(out, in[blockIdx.x]); }
__global__ void add_by_warps(float *out, const float *in) { if (threadIdx.x % 32 == 0) atomicAdd(out, in[threadIdx.x / 32]); }
__global__ void add_by_lanes(float *out, const float *in) { atomicAdd(out, in[threadIdx.x]); }
// The last one wins.
__global__ void store_by_blocks(float *out, const float *in) { if (threadIdx.x == 0) out[0] = in[blockIdx.x]; }
__global__ void store_by_lanes(float *out, const float *in) { out[0] = in[threadIdx.x]; }
// A block reads what its neighbour writes.
__global__ void read_and_write(float *out, const float *in) {
    if (threadIdx.x) return;
    float neighbour = out[(blockIdx.x + 1) % gridDim.x];
    out[blockIdx.x] = in[blockIdx.x] + neighbour;
}
// A sum by barriers, and the same without them.
__global__ void reduce(float *out, const float *in) {
    __shared__ float part[256];
    part[threadIdx.x] = in[threadIdx.x];
    for (int s = blockDim.x / 2; s; s /= 2) {
        __syncthreads();
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
__global__ void reduce_without_barriers(float *out, const float *in) {
    __shared__ volatile float part[256];
    part[threadIdx.x] = in[threadIdx.x];
    for (int s = blockDim.x / 2; s; s /= 2)
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
// Lanes of a warp that exchange what they have: together, and on two paths of a branch.
__global__ void exchange(float *out, const float *in) {
    __shared__ volatile float part[32];
    part[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = part[31 - threadIdx.x];
}
__global__ void exchange_on_paths(float *out, const float *in) {
    __shared__ volatile float part[32];
    part[threadIdx.x] = 0;
    __syncwarp();
    float sum = 0;
    if (in[threadIdx.x] > 0) for (int k = 0; k < in[threadIdx.x] && k < 32; k++) part[k % 32] = in[k % 4];
    else for (int k = 0; k < 8 - in[threadIdx.x] && k < 32; k++) sum += part[k % 32];
    out[threadIdx.x] = sum;
}
// Integers: they commute, unless somebody is given what was there before.
__global__ void count(int *out, const float *in) { if (in[threadIdx.x] > 0) atomicAdd(out, 1 + threadIdx.x % 3); }
__global__ void ticket(int *out, const float *) { if (threadIdx.x == 0) out[1 + atomicAdd(out, 1)] = blockIdx.x; }
// Halves side by side in one word, each written by another thread.
__global__ void halves(unsigned short *out, const float *in) { out[threadIdx.x] = (unsigned short)in[threadIdx.x]; }
// The last block to come adds up what all have left; it knows by a counter.
__global__ void last_block(float *out, const float *in) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[2 + blockIdx.x] = in[blockIdx.x];
        __threadfence();
        last = atomicAdd((unsigned *)out + 1, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += ((volatile float *)out)[2 + b];
    out[0] = sum;
}
// A chain of blocks: each waits for the one before it.
__global__ void chain(float *out, const float *in) {
    if (threadIdx.x) return;
    volatile int *flag = (volatile int *)out + 1;
    volatile float *sum = out;
    while (*flag != blockIdx.x) { }
    __threadfence();
    *sum = *sum + in[blockIdx.x];
    __threadfence();
    *flag = blockIdx.x + 1;
}
// Conflicts that are easily missed: stores that differ in their upper half; a read behind additions that commute; equal stores and
// then another; a read that others hide; a sum whose base a store has set; accesses of two sizes; sums that are flushed.
__global__ void store_wide(float4 *out, const float *in) { if (threadIdx.x == 0) out[0] = make_float4(0, 0, in[blockIdx.x], in[blockIdx.x]); }
__global__ void count_and_read(int *out, const float *) {
    if (threadIdx.x) return;
    atomicAdd(out, 1);
    __threadfence();
    if (blockIdx.x == gridDim.x - 1) out[1] = *(volatile int *)out & 1;
}
__global__ void store_twice(int *out, const float *in) {
    if (threadIdx.x) return;
    *(volatile int *)out = 7;
    __threadfence();
    if (blockIdx.x == gridDim.x - 1) *(volatile int *)out = in[0] > 0 ? 9 : 8;
}
__global__ void read_hidden(float *out, const float *in) {
    __shared__ volatile float x;
    if (threadIdx.x == 5) x = in[0];
    __syncthreads();
    if (threadIdx.x == 5) out[2] = x;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = x;
    if (threadIdx.x == 32) { float y = x; out[1] = y; x = y + 1; }
}
__global__ void add_onto_stored(float *out, const float *) {
    if (threadIdx.x % 32 == 0) atomicAdd(out, 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) *(volatile float *)out = 16777216;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(out, threadIdx.x == 32 ? -1.0f : threadIdx.x == 64 ? 2.0f : 1.0f);
}
__global__ void store_two_sizes(int *out, const float *) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) ((volatile unsigned *)out)[1] = 7;
    else ((volatile unsigned long long *)out)[0] = 7;
}
// Smallest of signed and of unsigned integers; sums of four bytes and of eight.
__global__ void least_of_two_types(int *out, const float *) {
    if (threadIdx.x) return;
    if (blockIdx.x) atomicMin((unsigned *)out, 7u);
    else atomicMin(out, -1);
}
// One block changes its mind behind a barrier; another one does as it does then.
__global__ void least_then_most(int *out, const float *) {
    if (threadIdx.x == 0 && blockIdx.x == 0) atomicMin(out, -5);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(out, blockIdx.x ? 10 : -2);
}
__global__ void store_then_store(volatile int *out, const float *given) {
    if (threadIdx.x == 0 && blockIdx.x == 0) *out = 5;
    __syncthreads();
    if (threadIdx.x == 0) *out = 7;
}
__global__ void count_in_two_sizes(unsigned *out, const float *) {
    if (threadIdx.x) return;
    if (blockIdx.x) atomicAdd(out, 0xffffffffu);
    else atomicAdd((unsigned long long *)out, 1ull);
}
__global__ void add_two_sizes(float *out, const float *) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) atomicAdd(out + 1, 1.0f);
    else atomicAdd((double *)out, 1.0);
}
// Two more additions, one of which is rounded, onto what a store of its upper half has made large.
__global__ void add_onto_half(float *out, const float *) {
    if (threadIdx.x == 0) atomicAdd(out, 1.5f);
    __syncthreads();
    if (threadIdx.x == 32) ((volatile unsigned short *)out)[1] = 0x4b80;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(out, threadIdx.x ? 1.25f : 1.0f);
}
}
