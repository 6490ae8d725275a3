/* Matrix products on the CPU in place of cuBLAS: one thread, one order, sums in double, rounded once to the type of the result. */
#include "standin.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Types by their numbers in CUDA. */
enum { R32F = 0, R64F = 1, R16F = 2, R8I = 3, C32F = 4, C64F = 5, R32I = 10, R16BF = 14 };

/* A matrix anywhere: the distances of rows and of columns are counted in elements. */
struct matrix { const void *at; int type; long row, column; int conjugate; };
struct number { double re, im; };

static int is_complex(int type) { return type == C32F || type == C64F; }
static size_t size_of(int type) {
    switch (type) {
    case R8I: return 1;
    case R16F: case R16BF: return 2;
    case R32F: case R32I: return 4;
    case R64F: case C32F: return 8;
    case C64F: return 16;
    default: return 0;
    }
}
static double from_half(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -value : value;
}
static uint16_t to_half(float x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent;
    x = fabsf(x);
    if (x != x) return 0x7fff;
    if (x >= 65520) return sign | 0x7c00;
    if (x < 0x1p-14f) return sign | (uint16_t)rintf(x * 0x1p24f);
    x = rintf(frexpf(x, &exponent) * 2048);
    return sign | (uint16_t)(((exponent + 14) << 10) + (int)x - 1024);
}
static struct number load(int type, const void *base, long i) {
    const char *at = (const char *)base + i * (long)size_of(type);
    union { uint16_t h; uint32_t bits; int32_t i; float f[2]; double d[2]; } u = {0};
    memcpy(&u, at, size_of(type));
    switch (type) {
    case R8I: return (struct number){*(const int8_t *)at, 0};
    case R32I: return (struct number){u.i, 0};
    case R16F: return (struct number){from_half(u.h), 0};
    case R16BF: u.bits <<= 16; return (struct number){u.f[0], 0};
    case R32F: return (struct number){u.f[0], 0};
    case C32F: return (struct number){u.f[0], u.f[1]};
    default: return (struct number){u.d[0], type == C64F ? u.d[1] : 0};
    }
}
static void store(int type, void *base, long i, struct number x) {
    union { uint16_t h; uint32_t bits; int32_t i; float f[2]; double d[2]; } u = {.f = {(float)x.re, (float)x.im}};
    if (type == R8I || type == R32I) u.i = (int32_t)x.re;
    else if (type == R16F) u.h = to_half((float)x.re);
    else if (type == R16BF) u.bits = x.re != x.re ? 0x7fff : (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16;
    else if (type == R64F || type == C64F) u.d[0] = x.re, u.d[1] = x.im;
    memcpy((char *)base + i * (long)size_of(type), &u, size_of(type));
}
static struct number times(struct number a, struct number b) { return (struct number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

/* Copy a matrix, row by row, or column by column: what the inner loop adds up lies side by side. */
static double *packed(struct matrix m, long outer, long inner, long outer_step, long inner_step) {
    double *to = malloc(2 * sizeof *to * (outer * inner + 1));
    for (long i = 0; i < outer; i++)
        for (long j = 0; j < inner; j++) {
            struct number x = load(m.type, m.at, i * outer_step + j * inner_step);
            to[i * inner + j] = x.re, to[outer * inner + i * inner + j] = m.conjugate ? -x.im : x.im;
        }
    return to;
}
static double dot(const double *a, const double *b, long k) {
    double sum = 0;
    for (long i = 0; i < k; i++) sum += a[i] * b[i];
    return sum;
}
/* out (m x n) = alpha * a (m x k) * b (k x n) + beta * c + bias of each row, and no negative number if so asked. */
static int multiply(const char *name, long m, long n, long k, struct matrix a, struct matrix b, const void *alpha, const void *beta, int scale, struct matrix c, struct matrix out, const void *bias, int bias_type, int relu) {
    if (!size_of(a.type) || !size_of(b.type) || !size_of(c.type) || !size_of(out.type) || !size_of(scale)) return gpu_note("library", "%s", name), 0;
    gpu_note("product", "%s", name);
    if (gpu_skips()) return 0;
    struct number by = load(scale, alpha, 0), kept = load(scale, beta, 0);
    double *left = packed(a, m, k, a.row, a.column), *right = packed(b, n, k, b.column, b.row);
    int imaginary = is_complex(a.type) || is_complex(b.type);
    for (long j = 0; j < n; j++)
        for (long i = 0; i < m; i++) {
            const double *x = left + i * k, *y = right + j * k, *xi = x + m * k, *yi = y + n * k;
            struct number sum = {dot(x, y, k), 0};
            if (imaginary) sum = (struct number){sum.re - dot(xi, yi, k), dot(x, yi, k) + dot(xi, y, k)};
            sum = times(by, sum);
            /* With a factor of zero it is not read, and may be NaN. */
            if (kept.re != 0 || kept.im != 0) {
                struct number old = times(kept, load(c.type, c.at, i * c.row + j * c.column));
                sum.re += old.re, sum.im += old.im;
            }
            if (bias) sum.re += load(bias_type, bias, i).re;
            if (relu && sum.re < 0) sum.re = 0;
            store(out.type, (void *)out.at, i * out.row + j * out.column, sum);
        }
    free(left), free(right);
    return 0;
}
/* As it is (0), transposed (1), or conjugate, too (2). */
static struct matrix operand(const void *at, int type, int operation, long leading) {
    return (struct matrix){at, type, operation ? leading : 1, operation ? 1 : leading, operation == 2};
}
