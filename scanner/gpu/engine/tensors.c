/* Tensor cores: products of small matrices that a warp holds together, bit for bit as others found them to be computed on the A100
 * and the H100 (arXiv 2511.10909, 2512.07004; 2603.20421). Products are exact. They and what is added are cut off, towards zero, at
 * one place, so many bits below the greatest exponent among them; their sum is exact, and is rounded once. A block of so many
 * products has one such sum, to which the next block is added. */
#include "operands.h"
#include <math.h>

enum { ROWS = 16, COLUMNS = 8, DEEPEST = 16, TERMS = DEEPEST + DEEPEST / 4 };
/* Numbers of rows, or of columns, side by side: significand * 2^exponent / 2^bits of the fraction; where one is none, its value.
 * Before each block of the columns stands what its products are added to, and of the rows a one. */
typedef struct { int32_t significand[TERMS][ROWS], exponent[TERMS][ROWS]; double special[TERMS][ROWS]; } Terms;

/* Whether it is a number, which is moved up by so many bits. */
static inline bool put_term(Terms *to, int k, int n, uint32_t bits, int fraction, int bias, int up) {
    int exponent = (int)(bits >> fraction) & (2 * bias + 1), sign = bits >> fraction & (2u * (uint32_t)bias + 2) ? -1 : 1;
    int32_t digits = bits & ((1u << fraction) - 1);
    bool number = exponent <= 2 * bias;
    to->significand[k][n] = number ? sign * (exponent ? digits | 1 << fraction : digits) * (1 << up) : 0;
    to->exponent[k][n] = number ? (exponent ? exponent : 1) - bias : 0;
    to->special[k][n] = number ? 0 : digits ? NAN : sign * INFINITY;
    return number;
}

/* For each column the sum of a block and of what comes before it, as a double, which holds it exactly. */
static void block_sums(const Terms *a, int row, const Terms *b, int from, int to, bool numbers, int below, double *sum) {
    int32_t greatest[COLUMNS], product[TERMS][COLUMNS], exponent[TERMS][COLUMNS];
    for (int n = 0; n < COLUMNS; n++) sum[n] = 0, greatest[n] = -126;
    for (int k = from; k < to; k++)
        for (int n = 0; n < COLUMNS; n++) {
            product[k][n] = a->significand[k][row] * b->significand[k][n], exponent[k][n] = a->exponent[k][row] + b->exponent[k][n];
            greatest[n] = product[k][n] && exponent[k][n] > greatest[n] ? exponent[k][n] : greatest[n];
        }
    for (int k = from; k < to; k++)
        for (int n = 0; n < COLUMNS; n++) {
            int32_t sign = product[k][n] >> 31, less = greatest[n] - exponent[k][n];
            sum[n] += ((((product[k][n] ^ sign) - sign) >> ((uint32_t)less > 31 ? 31 : less)) ^ sign) - sign;
        }
    for (int n = 0; n < COLUMNS; n++) sum[n] *= as_double((uint64_t)(1023 + greatest[n] - below) << 52);
    for (int n = 0; n < COLUMNS && !numbers; n++) {
        double special = 0;
        for (int k = from; k < to; k++) {
            double x = a->special[k][row], y = b->special[k][n];
            if (x != 0 || y != 0) special += (x != 0 ? x : a->significand[k][row]) * (y != 0 ? y : b->significand[k][n]);
        }
        if (special != 0) sum[n] = special; /* or a NaN */
    }
}

static uint32_t towards_zero(double v) {
    float r = (float)v;
    if (fabs((double)r) > fabs(v) && fabs(v) < 0x1p128) r = as_float(bits_of(r) - 1);
    return isnan(v) ? 0x7FFFFFFF : bits_of(r);
}

void op_HMMA(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    bool narrow = HAS(i, M_F16), single = HAS(i, M_TF32), brain = HAS(i, M_BF16), newer = m->launch->architecture >= 90, numbers = true;
    int depth = HAS(i, M_16816) ? 16 : HAS(i, M_1688) ? 8 : 4, fraction = brain ? 7 : 10, bias = brain || single ? 127 : 15;
    int most = (newer ? 32 : 16) / (single ? 4 : 2), block = most < depth ? most : depth, below = newer ? 25 : 24, groups = single ? depth / 4 : depth / 8, digits = narrow ? 10 : 23;
    Terms a, b;
    Vector c[4], words_of;
    if (lanes != ~0u) fail(m, UNKNOWN, "HMMA of a part of a warp");
    for (int k = 0; k < i->operands; k++)
        if (i->operand[k].flags || (k < 3 && i->operand[k].reg == RZ)) fail(m, UNKNOWN, "HMMA of such operands");
    /* A lane holds of a row two neighbours, or one of 32 bits; then of the row eight below; then of the columns behind. */
    for (int r = 0; r < 3 * groups; r++) {
        bool first = r < 2 * groups;
        int half = first ? r & 1 : 0, group = first ? r >> 1 : r - 2 * groups;
        words(m, w, &i->operand[first ? 1 : 2], first ? r : group, words_of);
        EACH for (int k = 0; k < (single ? 1 : 2); k++) {
            int at = single ? l % 4 + 4 * group : 2 * (l % 4) + k + 8 * group;
            numbers &= put_term(first ? &a : &b, at + at / block + 1, l / 4 + 8 * half, single ? words_of[l] >> 13 : words_of[l] >> 16 * k & 0xFFFF, fraction, bias,
                                first ? below - 2 * fraction : 0);
        }
    }
    for (int r = 0; r < (narrow ? 2 : 4); r++) words(m, w, &i->operand[3], r, c[r]);
    for (int row = 0; row < ROWS; row++)
        for (int from = 0; from < depth + depth / block; from += block + 1) {
            bool plain = numbers;
            double v[COLUMNS];
            uint32_t *at[COLUMNS];
            a.significand[from][row] = 1, a.exponent[from][row] = 0, a.special[from][row] = 0;
            for (int n = 0; n < COLUMNS; n++) {
                at[n] = &c[narrow ? row / 8 : 2 * (row / 8) + n % 2][4 * (row % 8) + n / 2];
                plain &= put_term(&b, from, n, narrow ? *at[n] >> 16 * (n % 2) & 0xFFFF : *at[n], digits, narrow ? 15 : 127, below - digits);
            }
            block_sums(&a, row, &b, from, from + block + 1, plain, below, v);
            for (int n = 0; n < COLUMNS; n++) *at[n] = narrow ? (*at[n] & ~(0xFFFFu << 16 * (n % 2))) | half_of(v[n]) << 16 * (n % 2) : towards_zero(v[n]);
        }
    for (int r = 0; r < (narrow ? 2 : 4); r++) put_word(w, &i->operand[0], r, c[r], lanes);
}
