/* Floating point: IEEE 754, each operation rounded once; NaN results are canonical, as on every NVIDIA GPU since Fermi. */
#include "operands.h"
#include <fenv.h>
#include <math.h>
#include <stdlib.h>

void put_comparison(Machine *m, Warp *w, const Instruction *i, uint32_t truth, uint32_t lanes);

typedef float Floats[LANES];
typedef double Doubles[LANES], Halves[2][LANES];

static float flushed(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static double flushed_double(double v) { return fabs(v) < 0x1p-1022 ? copysign(0, v) : v; }

static void floats(Machine *m, const Warp *w, const Instruction *i, int place, float *out) {
    source_float(m, w, &i->operand[place], out);
    if (HAS(i, M_FTZ)) EACH out[l] = flushed(out[l]);
}
#define FLOATS(first, ...) TAKE(Floats, floats, first, __VA_ARGS__)

/* Denormals as they are, whatever the modifier says. */
static void raw_floats(Machine *m, const Warp *w, const Instruction *i, int place, float *out) { source_float(m, w, &i->operand[place], out); }
#define RAW_FLOATS(first, ...) TAKE(Floats, raw_floats, first, __VA_ARGS__)

static void doubles(Machine *m, const Warp *w, const Instruction *i, int place, double *out) { source_double(m, w, &i->operand[place], out); }
#define DOUBLES(first, ...) TAKE(Doubles, doubles, first, __VA_ARGS__)

static void put_floats(Warp *w, const Instruction *i, const float *v, uint32_t lanes) {
    Vector bits;
    EACH {
        float r = HAS(i, M_FTZ) ? flushed(v[l]) : v[l];
        if (HAS(i, M_SAT)) r = !(r > 0) ? 0 : r > 1 ? 1 : r;
        bits[l] = isnan(r) ? 0x7FFFFFFF : bits_of(r);
    }
    put(w, &i->operand[0], bits, lanes);
}

static void put_doubles(Warp *w, const Instruction *i, const double *v, uint32_t lanes) {
    Wide bits;
    EACH bits[l] = isnan(v[l]) ? 0x7FFFFFFFFFFFFFFF : bits_of_double(v[l]);
    put_wide(w, &i->operand[0], bits, lanes);
}

/* The direction of rounding; what is computed between begin and end is kept there, since it passes through memory. */
static void begin_rounding(const Instruction *i) {
    int mode = HAS(i, M_RM) ? FE_DOWNWARD : HAS(i, M_RP) ? FE_UPWARD : HAS(i, M_RZ) ? FE_TOWARDZERO : FE_TONEAREST;
    if (mode != FE_TONEAREST) fesetround(mode);
}
static bool is_rounded(const Instruction *i) { return HAS(i, M_RM) || HAS(i, M_RP) || HAS(i, M_RZ); }
static void end_rounding(const Instruction *i) {
    if (is_rounded(i)) fesetround(FE_TONEAREST);
}
#define IN_MEMORY(x) __asm__ volatile("" : : "r"(x) : "memory")
#define ROUNDED(type, r, a, b, c, value)            \
    type r;                                         \
    begin_rounding(i);                              \
    IN_MEMORY(a); IN_MEMORY(b); IN_MEMORY(c);       \
    EACH r[l] = value;                              \
    IN_MEMORY(r);                                   \
    end_rounding(i);

/* Opcodes that give, lane by lane, what is computed of floats or doubles a, b and c, of which `last` is the last. */
#define COMPUTES(name, TAKES, type, put_all, value, last, ...)                      \
    void op_##name(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {     \
        TAKES(1, __VA_ARGS__);                                                      \
        ROUNDED(type, r, a, b, last, value);                                        \
        put_all(w, i, r, lanes);                                                    \
    }
COMPUTES(FADD, FLOATS, Floats, put_floats, a[l] + b[l], b, a, b)
COMPUTES(FFMA, FLOATS, Floats, put_floats, fmaf(a[l], b[l], c[l]), c, a, b, c)
COMPUTES(DADD, DOUBLES, Doubles, put_doubles, a[l] + b[l], b, a, b)
COMPUTES(DMUL, DOUBLES, Doubles, put_doubles, a[l] * b[l], b, a, b)
COMPUTES(DFMA, DOUBLES, Doubles, put_doubles, fma(a[l], b[l], c[l]), c, a, b, c)

void op_FMUL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    FLOATS(1, a, b);
    double by = HAS(i, M_D2) ? 0.5 : HAS(i, M_D4) ? 0.25 : HAS(i, M_D8) ? 0.125 : HAS(i, M_M2) ? 2 : HAS(i, M_M4) ? 4 : HAS(i, M_M8) ? 8 : 1;
    ROUNDED(Floats, r, a, b, b, (float)((double)a[l] * b[l] * by));
    put_floats(w, i, r, lanes);
}

/* -0 lies below +0; a NaN counts only if both are, or the opcode says so. */
static double least(double a, double b, bool nan) {
    if (isnan(a) || isnan(b)) return nan || (isnan(a) && isnan(b)) ? NAN : isnan(a) ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}

void op_FMNMX(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    FLOATS(1, a);
    Floats b;
    uint32_t minimum = predicate(m, w, &i->operand[i->operands - 1]);
    bool nan = HAS(i, M_NAN);
    for (int k = 2; k < i->operands - 1; k++) { /* one more, or (FMNMX3) two */
        floats(m, w, i, k, b);
        EACH a[l] = (float)(minimum >> l & 1 ? least(a[l], b[l], nan) : -least(-a[l], -b[l], nan));
    }
    put_floats(w, i, a, lanes);
}

void op_FSEL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    RAW_FLOATS(1, a, b);
    uint32_t which = predicate(m, w, &i->operand[3]);
    EACH if (which >> l & 1) memcpy(&b[l], &a[l], 4);
    put(w, &i->operand[0], (uint32_t *)b, lanes);
}

static uint32_t compared(int kind, double a, double b) {
    return kind >> (isnan(a) || isnan(b) ? 3 : a < b ? 0 : a == b ? 1 : 2) & 1;
}

void op_FSETP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    FLOATS(2, a, b);
    uint32_t truth = 0;
    int kind = comparison(i);
    EACH truth |= compared(kind, a[l], b[l]) << l;
    put_comparison(m, w, i, truth, lanes);
}

/* Likewise, as a value: 1 or all bits where it is true. */
void op_FSET(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Floats a, b;
    Vector r;
    floats(m, w, i, 1, a);
    floats(m, w, i, 2, b);
    uint32_t with = predicate(m, w, &i->operand[3]), truth = 0;
    int kind = comparison(i);
    EACH truth |= compared(kind, a[l], b[l]) << l;
    truth &= with;
    EACH r[l] = !(truth >> l & 1) ? 0 : HAS(i, M_BF) ? bits_of(1) : ~0u;
    put(w, &i->operand[0], r, lanes);
}

void op_DSETP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    DOUBLES(2, a, b);
    uint32_t truth = 0;
    int kind = comparison(i);
    if (HAS(i, M_MAX) || HAS(i, M_MIN)) {
        /* Whether the first is the one to take: the larger (smaller) one, and a number rather than a NaN. The second
         * predicate tells that neither is a number, so that what is taken has to be made quiet. */
        uint32_t neither = 0, with = predicate(m, w, &i->operand[4]);
        if (!HAS(i, M_AND)) fail(m, UNKNOWN, "DSETP.MIN or MAX that is not AND");
        EACH {
            bool first = isnan(b[l]) || (!isnan(a[l]) && (HAS(i, M_MIN) ? a[l] < b[l] || (a[l] == b[l] && signbit(a[l]))
                                                                         : a[l] > b[l] || (a[l] == b[l] && !signbit(a[l]))));
            truth |= (uint32_t)first << l;
            neither |= (uint32_t)(isnan(a[l]) && isnan(b[l])) << l;
        }
        put_predicate(w, &i->operand[0], truth & with, lanes);
        put_predicate(w, &i->operand[1], neither & with, lanes);
        return;
    }
    EACH truth |= compared(kind, a[l], b[l]) << l;
    put_comparison(m, w, i, truth, lanes);
}

/* MUFU: approximations whose last bits no document tells. These are the same on every machine: sums and products of
 * doubles alone, no function of a C library. */
static double power_of_two(double x) {
    if (!(x > -1100)) return isnan(x) ? x : 0;
    if (x > 1100) return INFINITY;
    double k = nearbyint(x), r = (x - k) * 0.69314718055994530942, sum = 1;
    for (int n = 14; n; n--) sum = 1 + sum * r / n;
    return ldexp(sum, (int)k);
}
static double logarithm(double x) {
    if (isnan(x) || x < 0) return NAN;
    if (x == 0) return -INFINITY;
    if (isinf(x)) return x;
    int e;
    double f = frexp(x, &e);
    if (f < 0.70710678118654752440) f *= 2, e--;
    double s = (f - 1) / (f + 1), square = s * s, sum = 0;
    for (int n = 23; n > 0; n -= 2) sum = sum * square + 1.0 / n;
    return e + 2 * s * sum * 1.44269504088896340736;
}
static double sine_of_turns(double turns) {
    if (!isfinite(turns)) return NAN;
    double r = turns - nearbyint(turns);
    if (r > 0.25) r = 0.5 - r;
    if (r < -0.25) r = -0.5 - r;
    double x = r * 6.28318530717958647693, square = x * x, sum = 1;
    for (int n = 21; n > 1; n -= 2) sum = 1 - sum * square / (n * (n - 1));
    return x * sum;
}
static double tangent(double x) {
    double t = fabs(x), square = t * t;
    if (isnan(x)) return x;
    if (t < 0.01) return x * (1 - square / 3 + 2 * square * square / 15);
    double e = power_of_two(-2 * t * 1.44269504088896340736);
    return copysign((1 - e) / (1 + e), x);
}

void op_MUFU(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    if (HAS(i, M_RCP64H) || HAS(i, M_RSQ64H)) { /* of the high word of a double the high word */
        Vector a;
        source_float(m, w, &i->operand[1], (float *)a);
        EACH {
            double v = flushed_double(as_double((uint64_t)a[l] << 32));
            v = flushed_double(HAS(i, M_RCP64H) ? 1 / v : 1 / sqrt(v));
            a[l] = isnan(v) ? 0x7FFFFFFF : (uint32_t)(bits_of_double(v) >> 32);
        }
        put(w, &i->operand[0], a, lanes);
        return;
    }
    RAW_FLOATS(1, a);
    EACH {
        double v = HAS(i, M_TANH) ? a[l] : flushed(a[l]), r; /* ptxas scales what is denormal, for all but TANH */
        if (HAS(i, M_RCP)) r = 1 / v;
        else if (HAS(i, M_RSQ)) r = 1 / sqrt(v);
        else if (HAS(i, M_SQRT)) r = sqrt(v);
        else if (HAS(i, M_EX2)) r = power_of_two(v);
        else if (HAS(i, M_LG2)) r = logarithm(v);
        else if (HAS(i, M_SIN)) r = sine_of_turns(v);
        else if (HAS(i, M_COS)) r = sine_of_turns(v + 0.25);
        else if (HAS(i, M_TANH)) r = tangent(v);
        else fail(m, UNKNOWN, "MUFU of an unknown function");
        a[l] = HAS(i, M_TANH) ? (float)r : flushed((float)r);
        if (m->launch->schedule.moved && isfinite(a[l]) && a[l] != 0) a[l] = as_float(bits_of(a[l]) ^ 1);
    }
    m->launch->flags |= APPROXIMATES;
    put_floats(w, i, a, lanes);
}

/* Whether a division has to take the slow way, which is right for all numbers; so it may be told too often. */
void op_FCHK(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    RAW_FLOATS(1, a, b);
    uint32_t slow = 0;
    EACH {
        int x = a[l] == 0 ? 999 : ilogbf(a[l]), y = b[l] == 0 ? 999 : ilogbf(b[l]);
        bool plain = isfinite(a[l]) && isfinite(b[l]) && abs(x) < 60 && abs(y) < 60;
        slow |= (uint32_t)!plain << l;
    }
    put_predicate(w, &i->operand[0], slow, lanes);
}

/* Half and bfloat16 as a double, exactly, and a double as one of these: nearest, ties to even, or as an instruction rounds. */
static inline double value_of_half(uint32_t bits) {
    uint64_t magnitude = bits & 0x7FFF, sign = (uint64_t)(bits & 0x8000) << 48;
    uint64_t number = bits_of_double(as_double(magnitude << 42) * 0x1p1008); /* fraction and exponent where a double has them */
    return as_double(sign | (magnitude >= 0x7C00 ? 0x7FFull << 52 | (magnitude & 0x3FF) << 42 : number));
}
static inline double value_of_brain(uint32_t bits) { return as_float((bits & 0xFFFF) << 16); }
/* The number is added to one so large that what is beyond the fraction is rounded away; what is left of the sum is a multiple of
 * the last place. A denormal has the exponent of the least number that is none. */
static inline uint32_t nearest16(double v, int fraction, int bias) {
    uint64_t all = bits_of_double(v), magnitude = all & ~(1ull << 63), least = (uint64_t)(1024 - bias), exponent = magnitude >> 52;
    uint64_t infinite = (uint64_t)(2 * bias + 1) << fraction, beyond = (uint64_t)(1024 + bias) << 52;
    exponent = exponent < least ? least : exponent;
    uint64_t large = (exponent + (uint64_t)(52 - fraction)) << 52;
    uint64_t multiple = bits_of_double(as_double(large) + as_double(magnitude)) - large;
    uint64_t bits = magnitude >= beyond ? infinite : multiple + ((exponent - least) << fraction);
    return magnitude > 0x7FFull << 52 ? 0x7FFF : (uint32_t)(bits | (all >> 48 & 0x8000));
}
static uint32_t rounded_to(double v, int fraction, int bias, const Instruction *i) {
    uint32_t bits = nearest16(v, fraction, bias);
    if (!is_rounded(i) || !isfinite(v)) return bits;
    /* The neighbour in the direction: of a number that is none of the format, the nearest may be the one beyond. */
    double found = fraction == 7 ? value_of_brain(bits) : value_of_half(bits);
    bool up = HAS(i, M_RP) || (HAS(i, M_RZ) && v < 0), down = HAS(i, M_RM) || (HAS(i, M_RZ) && v > 0);
    /* Towards zero the bits decrease, away from it they increase. */
    if (up && found < v) return v > 0 ? bits + 1 : bits - 1;
    if (down && found > v) return v > 0 ? bits - 1 : bits + 1;
    return bits;
}
static uint32_t bits16(const Instruction *i, double v) {
    bool brain = HAS(i, M_BF16_V2) || HAS(i, M_BF16);
    if (HAS(i, M_RELU) && !(v > 0)) v = isnan(v) ? v : 0;
    if (HAS(i, M_SAT)) v = !(v > 0) ? 0 : v > 1 ? 1 : v;
    return rounded_to(v, brain ? 7 : 10, brain ? 127 : 15, i);
}
/* A sum of doubles rounded to odd, so that rounding it once more gives what rounding once would have. */
static inline double sum_to_odd(double a, double b) {
    double s = a + b, t = s - a, e = (a - (s - t)) + (b - t);
    uint64_t bits = bits_of_double(s), lost = bits_of_double(e), by = (bits ^ lost) >> 63 ? ~0ull : 1; /* inward or outward */
    bool finite = (bits & 0x7FFull << 52) != 0x7FFull << 52;
    return as_double(e != 0 && finite && !(bits & 1) ? bits + by : bits);
}
/* Of atomic additions. A double has more than twice as many places, so that to round its sum is to round the exact one. */
uint32_t add_pairs(uint32_t a, uint32_t b, bool brain) {
    uint32_t both = 0;
    for (int from = 0; from < 32; from += 16)
        both |= (brain ? nearest16(value_of_brain(a >> from) + value_of_brain(b >> from), 7, 127)
                       : nearest16(value_of_half(a >> from) + value_of_half(b >> from), 10, 15)) << from;
    return both;
}
uint32_t half_of(double v) { return nearest16(v, 10, 15); }

/* Two halves of a packed operand. */
static void halves(Machine *m, const Warp *w, const Instruction *i, int place, double (*out)[LANES]) {
    const Operand *o = &i->operand[place];
    Vector bits;
    words(m, w, o, 0, bits);
    for (int k = 0; k < 2; k++) {
        int from = o->flags & F_LOW_HALF ? 0 : o->flags & F_HIGH_HALF ? 16 : 16 * k;
        uint32_t keep = o->flags & F_ABSOLUTE ? 0x7FFF : 0xFFFF, flip = o->flags & F_NEGATE ? 0x8000 : 0;
        if (HAS(i, M_BF16_V2)) EACH out[k][l] = value_of_brain((bits[l] >> from & keep) ^ flip);
        else EACH out[k][l] = value_of_half((bits[l] >> from & keep) ^ flip);
    }
}
#define HALVES(first, ...) TAKE(Halves, halves, first, __VA_ARGS__)
static void put_halves(Warp *w, const Instruction *i, double v[2][LANES], uint32_t lanes) {
    Vector bits;
    bool plain = !HAS(i, M_RELU) && !HAS(i, M_SAT);
    if (plain && HAS(i, M_BF16_V2)) EACH bits[l] = nearest16(v[0][l], 7, 127) | nearest16(v[1][l], 7, 127) << 16;
    else if (plain) EACH bits[l] = nearest16(v[0][l], 10, 15) | nearest16(v[1][l], 10, 15) << 16;
    else EACH bits[l] = bits16(i, v[0][l]) | bits16(i, v[1][l]) << 16;
    put(w, &i->operand[0], bits, lanes);
}

void op_HADD2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(1, a, b);
    for (int k = 0; k < 2; k++) EACH a[k][l] = sum_to_odd(a[k][l], b[k][l]);
    if (HAS(i, M_F32)) {
        Floats r;
        EACH r[l] = (float)a[0][l];
        put_floats(w, i, r, lanes);
    } else put_halves(w, i, a, lanes);
}

void op_HMUL2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(1, a, b);
    for (int k = 0; k < 2; k++) EACH a[k][l] *= b[k][l];
    put_halves(w, i, a, lanes);
}

void op_HFMA2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(1, a, b, c);
    for (int k = 0; k < 2; k++) EACH a[k][l] = sum_to_odd(a[k][l] * b[k][l], c[k][l]);
    put_halves(w, i, a, lanes);
}

void op_HMNMX2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(1, a, b);
    uint32_t minimum = predicate(m, w, &i->operand[3]);
    bool nan = HAS(i, M_NAN);
    for (int k = 0; k < 2; k++)
        EACH a[k][l] = minimum >> l & 1 ? least(a[k][l], b[k][l], nan) : -least(-a[k][l], -b[k][l], nan);
    put_halves(w, i, a, lanes);
}

/* Both halves compared: a predicate each. */
void op_HSETP2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(2, a, b);
    uint32_t with = predicate(m, w, &i->operand[4]), truth[2] = {0, 0};
    int kind = comparison(i);
    for (int k = 0; k < 2; k++) {
        EACH truth[k] |= compared(kind, a[k][l], b[k][l]) << l;
        truth[k] = HAS(i, M_AND) ? truth[k] & with : HAS(i, M_OR) ? truth[k] | with : truth[k] ^ with;
    }
    put_predicate(w, &i->operand[0], truth[0], lanes);
    put_predicate(w, &i->operand[1], truth[1], lanes);
}

/* Both halves compared: ones, or the number 1, where it holds. */
void op_HSET2(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    HALVES(1, a, b);
    uint32_t with = predicate(m, w, &i->operand[3]), one = HAS(i, M_BF) ? 0x3C00 : 0xFFFF;
    int kind = comparison(i);
    Vector r = {0};
    for (int k = 0; k < 2; k++)
        EACH r[l] |= (with >> l & 1 && compared(kind, a[k][l], b[k][l]) ? one : 0) << 16 * k;
    put(w, &i->operand[0], r, lanes);
}

void op_F2FP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    RAW_FLOATS(1, high, low);
    Vector bits;
    EACH bits[l] = bits16(i, low[l]) | bits16(i, high[l]) << 16;
    put(w, &i->operand[0], bits, lanes);
}

static void put_number(Warp *w, const Instruction *i, const double *v, uint32_t lanes) {
    Vector bits;
    Floats narrow;
    if (HAS(i, M_F64)) put_doubles(w, i, v, lanes);
    else if (HAS(i, M_F16) || HAS(i, M_BF16)) {
        EACH bits[l] = bits16(i, v[l]);
        put(w, &i->operand[0], bits, lanes);
    } else {
        begin_rounding(i);
        IN_MEMORY(v);
        EACH narrow[l] = (float)v[l];
        IN_MEMORY(narrow);
        end_rounding(i);
        put_floats(w, i, narrow, lanes);
    }
}

static void any_float(Machine *m, const Warp *w, const Instruction *i, bool is_double, bool is_half, double *out) {
    if (is_double) source_double(m, w, &i->operand[1], out);
    else if (is_half) {
        INTEGERS(1, bits);
        EACH out[l] = value_of_half(bits[l] & 0xFFFF);
    } else {
        FLOATS(1, narrow);
        EACH out[l] = narrow[l];
    }
}

/* The first type is that of the result, the second that of the source. */
void op_F2F(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Doubles v;
    any_float(m, w, i, HAS(i, M_FROM_F64), HAS(i, M_FROM_F16), v);
    put_number(w, i, v, lanes);
}

static double to_integer(const Instruction *i, double v) {
    return HAS(i, M_TRUNC) ? trunc(v) : HAS(i, M_FLOOR) ? floor(v) : HAS(i, M_CEIL) ? ceil(v) : nearbyint(v);
}

void op_FRND(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Doubles v;
    any_float(m, w, i, HAS(i, M_F64), HAS(i, M_F16), v);
    EACH v[l] = to_integer(i, v[l]);
    put_number(w, i, v, lanes);
}

void op_F2I(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Doubles v;
    any_float(m, w, i, HAS(i, M_F64), HAS(i, M_F16), v);
    bool wide = HAS(i, M_U64) || HAS(i, M_S64), is_unsigned = HAS(i, M_U64) || HAS(i, M_U32) || HAS(i, M_U16) || HAS(i, M_U8);
    int width = wide ? 64 : HAS(i, M_U16) || HAS(i, M_S16) ? 16 : HAS(i, M_U8) || HAS(i, M_S8) ? 8 : 32;
    double low = is_unsigned ? 0 : -ldexp(1, width - 1), high = ldexp(1, is_unsigned ? width : width - 1);
    Wide r;
    EACH {
        double n = to_integer(i, v[l]);
        /* Of a NaN 0, or the lowest bit pattern with the highest bit where either side has 64 bits (PTX ISA, cvt). */
        if (isnan(n)) r[l] = wide || HAS(i, M_F64) ? 1ull << (width - 1) : 0;
        else if (n < low) r[l] = is_unsigned ? 0 : 1ull << (width - 1);
        else if (n >= high) r[l] = is_unsigned ? ~0ull >> (64 - width) : (1ull << (width - 1)) - 1;
        else r[l] = is_unsigned ? (uint64_t)n : (uint64_t)(int64_t)n;
        if (!is_unsigned && !wide && width < 32) r[l] = (uint64_t)((int64_t)(r[l] << (64 - width)) >> (64 - width));
    }
    if (wide) put_wide(w, &i->operand[0], r, lanes);
    else put_part(w, &i->operand[0], 0, r, 0, lanes);
}

/* To a byte, which the lowest of the result is; what would stand beside it has to be 0. */
void op_F2IP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector r, none;
    Floats v;
    for (int k = 1; k < 4; k += 2) {
        words(m, w, &i->operand[k], 0, none);
        ACTIVE(lanes) if (none[l]) fail(m, UNKNOWN, "F2IP of more than one number");
    }
    floats(m, w, i, 2, v);
    if (!HAS(i, M_U8) || !HAS(i, M_TRUNC)) fail(m, UNKNOWN, "F2IP of this kind");
    EACH r[l] = v[l] >= 255 ? 255 : v[l] > 0 ? (uint32_t)v[l] : 0;
    put(w, &i->operand[0], r, lanes);
}

void op_I2F(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    bool is_unsigned = HAS(i, M_U64) || HAS(i, M_U32) || HAS(i, M_U16) || HAS(i, M_U8);
    int width = HAS(i, M_U64) || HAS(i, M_S64) ? 64 : HAS(i, M_U16) || HAS(i, M_S16) ? 16 : HAS(i, M_U8) || HAS(i, M_S8) ? 8 : 32;
    Wide v;
    if (width == 64) source_wide(m, w, &i->operand[1], v);
    else {
        source_extended(m, w, &i->operand[1], v);
        EACH v[l] >>= i->operand[1].scale; /* of a byte or a half of the register */
    }
    EACH v[l] = is_unsigned ? v[l] << (64 - width) >> (64 - width) : (uint64_t)((int64_t)(v[l] << (64 - width)) >> (64 - width));
    if (HAS(i, M_F16) || HAS(i, M_BF16)) {
        Vector bits;
        EACH {
            bool negative = !is_unsigned && v[l] >> 63;
            uint64_t magnitude = negative ? -v[l] : v[l], beyond = magnitude >> 53 ? 0x7FF : 0;
            /* Of an integer that no double holds the last bits become one, so that it is rounded once alone. */
            magnitude = (magnitude & ~beyond) | (magnitude & beyond ? 0x800 : 0);
            bits[l] = bits16(i, negative ? -(double)magnitude : (double)magnitude);
        }
        put(w, &i->operand[0], bits, lanes);
        return;
    }
    begin_rounding(i);
    IN_MEMORY(v);
    if (HAS(i, M_F64)) {
        Doubles r;
        EACH r[l] = is_unsigned ? (double)v[l] : (double)(int64_t)v[l];
        IN_MEMORY(r);
        end_rounding(i);
        put_doubles(w, i, r, lanes);
    } else {
        Floats r;
        EACH r[l] = is_unsigned ? (float)v[l] : (float)(int64_t)v[l];
        IN_MEMORY(r);
        end_rounding(i);
        put_floats(w, i, r, lanes);
    }
}
