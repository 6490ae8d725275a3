/* Tensor cores: products of small matrices that a warp holds together, bit for bit as others found them to be computed on the A100
 * and the H100 (arXiv 2511.10909, 2512.07004; 2603.20421). Products are exact. They and what is added are cut off, towards zero, at
 * one place, so many bits below the greatest exponent among them; their sum is exact, and is rounded once. A block of so many
 * products has one such sum, to which the next block is added. */
#include "operands.h"
#include <math.h>

enum { ROWS = 16, COLUMNS = 8, DEEPEST = 16 };
/* A number: significand * 2^exponent / 2^bits of its fraction; or, where it is none, its value. */
typedef struct { int64_t significand; int exponent; double special; } Part;

static Part part_of(uint32_t bits, int fraction, int bias) {
    int exponent = (int)(bits >> fraction) & (2 * bias + 1), sign = bits >> fraction & (2u * (uint32_t)bias + 2) ? -1 : 1;
    int64_t digits = bits & ((1u << fraction) - 1);
    if (exponent == 2 * bias + 1) return (Part){0, 0, digits ? NAN : sign * INFINITY};
    return (Part){sign * (exponent ? digits | 1ll << fraction : digits), (exponent ? exponent : 1) - bias, 0};
}
static double value_of(Part p) { return p.special != 0 ? p.special : (double)p.significand; }

static int64_t moved(int64_t v, int by) {
    return !v ? 0 : by >= 0 ? v * (1ll << by) : by < -62 ? 0 : v / (1ll << -by);
}

/* The sum of a block and of what comes before it, as a double, which holds it exactly. */
static double block_sum(const Part *a, const Part *b, int products, int fraction, Part c, int added, int below) {
    int greatest = -126;
    double special = c.special;
    int64_t sum = 0;
    for (int k = 0; k < products; k++) {
        if (a[k].special != 0 || b[k].special != 0) special += value_of(a[k]) * value_of(b[k]);
        if (a[k].significand && b[k].significand && a[k].exponent + b[k].exponent > greatest) greatest = a[k].exponent + b[k].exponent;
    }
    if (special != 0) return special; /* or a NaN */
    if (c.significand && c.exponent > greatest) greatest = c.exponent;
    for (int k = 0; k < products; k++)
        sum += moved(a[k].significand * b[k].significand, below - 2 * fraction + a[k].exponent + b[k].exponent - greatest);
    sum += moved(c.significand, below - added + c.exponent - greatest);
    return ldexp((double)sum, greatest - below);
}

static uint32_t towards_zero(double v) {
    if (isnan(v)) return 0x7FFFFFFF;
    float r = (float)v;
    if (fabs((double)r) > fabs(v) && fabs(v) < 0x1p128) r = as_float(bits_of(r) - 1);
    return bits_of(r);
}

void op_HMMA(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    bool narrow = HAS(i, M_F16), single = HAS(i, M_TF32), brain = HAS(i, M_BF16), newer = m->launch->architecture >= 90;
    int depth = HAS(i, M_16816) ? 16 : HAS(i, M_1688) ? 8 : 4, fraction = brain ? 7 : 10, bias = brain || single ? 127 : 15;
    int block = (newer ? 32 : 16) / (single ? 4 : 2), below = newer ? 25 : 24, groups = single ? depth / 4 : depth / 8;
    Part a[ROWS][DEEPEST], b[COLUMNS][DEEPEST];
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
            uint32_t bits = single ? words_of[l] >> 13 : words_of[l] >> 16 * k & 0xFFFF;
            Part *to = first ? a[l / 4 + 8 * half] : b[l / 4];
            to[single ? l % 4 + 4 * group : 2 * (l % 4) + k + 8 * group] = part_of(bits, fraction, bias);
        }
    }
    for (int r = 0; r < (narrow ? 2 : 4); r++) words(m, w, &i->operand[3], r, c[r]);
    EACH for (int k = 0; k < 4; k++) {
        const Part *row = a[l / 4 + 8 * (k >> 1)], *column = b[2 * (l % 4) + (k & 1)];
        int shift = 16 * (k & 1);
        uint32_t *at = &c[narrow ? k >> 1 : k][l], sum = narrow ? *at >> shift & 0xFFFF : *at;
        for (int from = 0; from < depth; from += block) {
            Part before = narrow ? part_of(sum, 10, 15) : part_of(sum, 23, 127);
            double v = block_sum(row + from, column + from, depth < block ? depth : block, fraction, before, narrow ? 10 : 23, below);
            sum = narrow ? half_of(v) : towards_zero(v);
        }
        *at = narrow ? (*at & ~(0xFFFFu << shift)) | sum << shift : sum;
    }
    for (int r = 0; r < (narrow ? 2 : 4); r++) put_word(w, &i->operand[0], r, c[r], lanes);
}
