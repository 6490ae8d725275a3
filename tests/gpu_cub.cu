// Algorithms of CUB on arrays of the host, called by tests/test_gpu_cub_nightly.py: code of others whose results are known.
#include <cub/cub.cuh>
#include <cuda_runtime.h>

// Memory of the device that begins as an array of the host, and is copied back by `back`.
template <class T> struct Array {
    T *host, *device = nullptr;
    size_t count;
    Array(const T *from, size_t n) : host(const_cast<T *>(from)), count(n) {
        cudaMalloc(&device, (n + 1) * sizeof(T));
        cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyDefault);
    }
    ~Array() { cudaFree(device); }
    void back() { cudaMemcpy(host, device, count * sizeof(T), cudaMemcpyDefault); }
    operator T *() { return device; }
};

// An algorithm asks how much memory it needs, and then runs.
template <class Run> static int run(Run algorithm) {
    void *memory = nullptr;
    size_t size = 0;
    if (int error = algorithm(memory, size)) return error;
    if (int error = cudaMalloc(&memory, size + 1)) return error;
    int error = algorithm(memory, size);
    if (!error) error = cudaDeviceSynchronize();
    cudaFree(memory);
    return error;
}
#define ALGORITHM(call) run([&](void *memory, size_t &size) { return call; })

extern "C" {
int scan_floats(const float *x, float *y, int n) {
    Array<float> from(x, n), to(y, n);
    int error = ALGORITHM(cub::DeviceScan::InclusiveSum(memory, size, (float *)from, (float *)to, n));
    to.back();
    return error;
}
int scan_integers(const int *x, int *y, int n) {
    Array<int> from(x, n), to(y, n);
    int error = ALGORITHM(cub::DeviceScan::ExclusiveSum(memory, size, (int *)from, (int *)to, n));
    to.back();
    return error;
}
int scan_by_key(const int *k, const float *x, float *y, int n) {
    Array<int> keys(k, n);
    Array<float> from(x, n), to(y, n);
    int error = ALGORITHM(cub::DeviceScan::InclusiveSumByKey(memory, size, (int *)keys, (float *)from, (float *)to, n));
    to.back();
    return error;
}
int sum(const float *x, float *y, int n) {
    Array<float> from(x, n), to(y, 1);
    int error = ALGORITHM(cub::DeviceReduce::Sum(memory, size, (float *)from, (float *)to, n));
    to.back();
    return error;
}
int least(const double *x, double *y, int n) {
    Array<double> from(x, n), to(y, 1);
    int error = ALGORITHM(cub::DeviceReduce::Min(memory, size, (double *)from, (double *)to, n));
    to.back();
    return error;
}
int sum_by_key(const int *k, const float *x, int *u, float *y, int *c, int n) {
    Array<int> keys(k, n), unique(u, n), count(c, 1);
    Array<float> from(x, n), to(y, n);
    int error = ALGORITHM(cub::DeviceReduce::ReduceByKey(memory, size, (int *)keys, (int *)unique, (float *)from, (float *)to,
                                                         (int *)count, ::cuda::std::plus<>{}, n));
    unique.back(), to.back(), count.back();
    return error;
}
int sum_of_segments(const float *x, const int *o, float *y, int segments, int n) {
    Array<float> from(x, n), to(y, segments);
    Array<int> offsets(o, segments + 1);
    int error = ALGORITHM(
        cub::DeviceSegmentedReduce::Sum(memory, size, (float *)from, (float *)to, segments, (int *)offsets, (int *)offsets + 1));
    to.back();
    return error;
}
int radix_sort(const unsigned *x, unsigned *y, int n) {
    Array<unsigned> from(x, n), to(y, n);
    int error = ALGORITHM(cub::DeviceRadixSort::SortKeys(memory, size, (unsigned *)from, (unsigned *)to, n));
    to.back();
    return error;
}
int sort_of_pairs(const float *x, const int *v, float *y, int *w, int n) {
    Array<float> from(x, n), to(y, n);
    Array<int> values(v, n), moved(w, n);
    int error = ALGORITHM(cub::DeviceRadixSort::SortPairsDescending(memory, size, (float *)from, (float *)to, (int *)values, (int *)moved, n));
    to.back(), moved.back();
    return error;
}
int merge_sort(const double *x, double *y, int n) {
    Array<double> at(y, n);
    cudaMemcpy(at, x, n * sizeof(double), cudaMemcpyDefault);
    int error = ALGORITHM(cub::DeviceMergeSort::SortKeys(memory, size, (double *)at, n, ::cuda::std::less<>{}));
    at.back();
    return error;
}
int selection(const int *x, const char *f, int *y, int *c, int n) {
    Array<int> from(x, n), to(y, n), count(c, 1);
    Array<char> flags(f, n);
    int error = ALGORITHM(cub::DeviceSelect::Flagged(memory, size, (int *)from, (char *)flags, (int *)to, (int *)count, n));
    to.back(), count.back();
    return error;
}
int unique(const int *x, int *y, int *c, int n) {
    Array<int> from(x, n), to(y, n), count(c, 1);
    int error = ALGORITHM(cub::DeviceSelect::Unique(memory, size, (int *)from, (int *)to, (int *)count, n));
    to.back(), count.back();
    return error;
}
int run_lengths(const int *x, int *u, int *l, int *c, int n) {
    Array<int> from(x, n), unique(u, n), lengths(l, n), count(c, 1);
    int error = ALGORITHM(cub::DeviceRunLengthEncode::Encode(memory, size, (int *)from, (int *)unique, (int *)lengths, (int *)count, n));
    unique.back(), lengths.back(), count.back();
    return error;
}
int histogram(const float *x, int *y, int bins, int n) {
    Array<float> from(x, n);
    Array<int> to(y, bins);
    int error = ALGORITHM(cub::DeviceHistogram::HistogramEven(memory, size, (float *)from, (int *)to, bins + 1, -4.0f, 4.0f, n));
    to.back();
    return error;
}
}
