/* Of cuBLAS: the products that PyTorch asks for. Columns lie one behind the other. */
#include "products.h"

#define NO_BIAS NULL, R32F, 0
/* The type of the factors, by the number that says how to compute. */
static int scale_of(int compute, int type) {
    if (compute == 72 || compute == 73) return R32I;
    if (compute == 64 || compute == 65) return R16F;
    if (compute == 70 || compute == 71) return is_complex(type) ? C64F : R64F;
    return is_complex(type) ? C32F : R32F;
}
static int gemm(const char *name, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int scale) {
    struct matrix out = operand(c, ct, 0, ldc);
    return multiply(name, m, n, k, operand(a, at, ta, lda), operand(b, bt, tb, ldb), alpha, beta, scale, out, out, NO_BIAS);
}
#define STEP(base, type, stride) ((const char *)(base) + (long long)i * (stride) * (long long)size_of(type))

int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int algorithm) {
    return gemm(__func__, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, scale_of(compute, ct));
}
int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, long long sa, const void *b, int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc, long long sc, int count, int compute, int algorithm) {
    for (int i = 0; i < count; i++) gemm(__func__, ta, tb, m, n, k, alpha, STEP(a, at, sa), at, lda, STEP(b, bt, sb), bt, ldb, beta, (void *)STEP(c, ct, sc), ct, ldc, scale_of(compute, ct));
    return 0;
}
static int dot_of(const char *name, int n, const void *x, int xt, int dx, const void *y, int yt, int dy, void *result, int type, int conjugate) {
    static const double one[2] = {1, 0}, zero[2] = {0, 0};
    struct matrix out = {result, type, 1, 1, 0};
    return multiply(name, 1, 1, n, (struct matrix){x, xt, 1, dx, conjugate}, (struct matrix){y, yt, dy, 1, 0}, one, zero, C64F, out, out, NO_BIAS);
}
int cublasDotEx(void *h, int n, const void *x, int xt, int dx, const void *y, int yt, int dy, void *result, int type, int compute) {
    return dot_of(__func__, n, x, xt, dx, y, yt, dy, result, type, 0);
}
#define DOT(NAME, T, CONJUGATE) \
    int NAME(void *h, int n, const void *x, int dx, const void *y, int dy, void *result) { return dot_of(__func__, n, x, T, dx, y, T, dy, result, T, CONJUGATE); }
DOT(cublasSdot_v2, R32F, 0)
DOT(cublasDdot_v2, R64F, 0)
DOT(cublasCdotu_v2, C32F, 0)
DOT(cublasZdotu_v2, C64F, 0)
DOT(cublasCdotc_v2, C32F, 1)
DOT(cublasZdotc_v2, C64F, 1)

#define PRODUCTS(L, T) \
    int cublas##L##gemm_v2(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc) { \
        return gemm(__func__, ta, tb, m, n, k, alpha, a, T, lda, b, T, ldb, beta, c, T, ldc, T); \
    } \
    int cublas##L##gemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const void *beta, void *c, int ldc, long long sc, int count) { \
        for (int i = 0; i < count; i++) gemm(__func__, ta, tb, m, n, k, alpha, STEP(a, T, sa), T, lda, STEP(b, T, sb), T, ldb, beta, (void *)STEP(c, T, sc), T, ldc, T); \
        return 0; \
    } \
    int cublas##L##gemmBatched(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *const *a, int lda, const void *const *b, int ldb, const void *beta, void *const *c, int ldc, int count) { \
        for (int i = 0; i < count; i++) gemm(__func__, ta, tb, m, n, k, alpha, a[i], T, lda, b[i], T, ldb, beta, c[i], T, ldc, T); \
        return 0; \
    } \
    int cublas##L##gemv_v2(void *h, int t, int m, int n, const void *alpha, const void *a, int lda, const void *x, int dx, const void *beta, void *y, int dy) { \
        struct matrix out = {y, T, dy, 1, 0}; \
        return multiply(__func__, t ? n : m, 1, t ? m : n, operand(a, T, t, lda), (struct matrix){x, T, dx, 1, 0}, alpha, beta, T, out, out, NO_BIAS); \
    }
PRODUCTS(S, R32F)
PRODUCTS(D, R64F)
PRODUCTS(C, C32F)
PRODUCTS(Z, C64F)
