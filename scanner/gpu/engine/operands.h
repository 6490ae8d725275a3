/* Operands: the 32 values of a source, and where results go. What inactive lanes hold is computed with, and never written. */
#pragma once
#include "engine.h"
#include "isa.h"
#include <string.h>

#define HAS(i, modifier) ((i)->modifiers[(modifier) >> 6] >> ((modifier) & 63) & 1)
#define EACH for (int l = 0; l < LANES; l++)
#define ACTIVE(lanes) EACH if (!((lanes) >> l & 1)) { } else /* so that no else behind it is taken for its own */

typedef uint32_t Vector[LANES];
typedef uint64_t Wide[LANES];

static inline float as_float(uint32_t bits) { float v; memcpy(&v, &bits, 4); return v; }
static inline uint32_t bits_of(float v) { uint32_t bits; memcpy(&bits, &v, 4); return bits; }
static inline double as_double(uint64_t bits) { double v; memcpy(&v, &bits, 8); return v; }
static inline uint64_t bits_of_double(double v) { uint64_t bits; memcpy(&bits, &v, 8); return bits; }

static inline int first_lane(uint32_t lanes) { return __builtin_ctz(lanes); }

/* Bytes of a constant bank at an offset; beyond its end there is nothing. */
static inline uint64_t constant(Machine *m, uint32_t bank, uint64_t offset, int size) {
    uint64_t value = 0;
    const Launch *launch = m->launch;
    if (bank >= BANKS || !launch->bank[bank] || offset + size > launch->bank_size[bank])
        fail(m, FAULT, "constant bank %u has no byte %#llx", bank, (unsigned long long)offset);
    memcpy(&value, launch->bank[bank] + offset, size);
    return value;
}

/* The words of a register, raw. */
static inline void words(Machine *m, const Warp *w, const Operand *o, int word, uint32_t *out) {
    uint32_t value = 0;
    switch (o->kind) {
    case K_REG:
        if (o->reg != RZ) { memcpy(out, w->reg[o->reg + word], sizeof(Vector)); return; }
        break;
    case K_UREG: value = o->reg == URZ ? 0 : w->uniform[o->reg + word]; break;
    case K_CONST:
        if (o->flags & F_INDEXED) fail(m, UNKNOWN, "an indexed constant operand");
        value = (uint32_t)constant(m, o->scale, o->value + 4 * word, 4);
        break;
    case K_IMMEDIATE: value = (uint32_t)(o->value >> 32 * word); break;
    default: fail(m, UNKNOWN, "an operand of kind %u", o->kind);
    }
    EACH out[l] = value;
}

/* 32-bit integers: negated as two's complement, or inverted. */
static inline void source(Machine *m, const Warp *w, const Operand *o, uint32_t *out) {
    words(m, w, o, 0, out);
    if (o->flags & F_LOW_HALF) EACH out[l] &= 0xFFFF;
    if (o->flags & F_HIGH_HALF) EACH out[l] >>= 16;
    if (o->flags & F_INVERT) EACH out[l] = ~out[l];
    if (o->flags & F_ABSOLUTE) EACH out[l] = (int32_t)out[l] < 0 ? -out[l] : out[l];
    if (o->flags & F_NEGATE) EACH out[l] = -out[l];
}

/* Declare vectors of a type, and let `take` read as many operands into them, from one on. */
#define TAKE(type, take, first, ...)                                                                                \
    type __VA_ARGS__;                                                                                               \
    {                                                                                                               \
        __typeof__(&(*(type *)0)[0]) const into_[] = {__VA_ARGS__};                                                 \
        _Pragma("GCC unroll 3")                                                                                     \
        for (int k_ = 0; k_ < (int)(sizeof into_ / sizeof *into_); k_++) take(m, w, i, (first) + k_, into_[k_]);    \
    }
static inline void integers(Machine *m, const Warp *w, const Instruction *i, int place, uint32_t *out) { source(m, w, &i->operand[place], out); }
#define INTEGERS(first, ...) TAKE(Vector, integers, first, __VA_ARGS__)

/* Which of less, equal, greater, unordered are true. */
static inline int comparison(const Instruction *i) {
    return HAS(i, M_LT) ? 1 : HAS(i, M_EQ) ? 2 : HAS(i, M_LE) ? 3 : HAS(i, M_GT) ? 4 : HAS(i, M_NE) ? 5 : HAS(i, M_GE) ? 6
        : HAS(i, M_NUM) ? 7 : HAS(i, M_NAN) ? 8 : HAS(i, M_LTU) ? 9 : HAS(i, M_EQU) ? 10 : HAS(i, M_LEU) ? 11
        : HAS(i, M_GTU) ? 12 : HAS(i, M_NEU) ? 13 : HAS(i, M_GEU) ? 14 : 0;
}

/* 32-bit floats: the sign cleared, then flipped. */
static inline void source_float(Machine *m, const Warp *w, const Operand *o, float *out) {
    uint32_t *bits = (uint32_t *)out;
    words(m, w, o, 0, bits);
    if (o->flags & F_ABSOLUTE) EACH bits[l] &= 0x7FFFFFFF;
    if (o->flags & F_NEGATE) EACH bits[l] ^= 0x80000000;
}

/* The same, made 64 bits long by zeros. */
static inline void source_extended(Machine *m, const Warp *w, const Operand *o, uint64_t *out) {
    Vector low;
    source(m, w, o, low);
    EACH out[l] = low[l];
}

/* 64 bits: a pair of registers or of constants, or an immediate. */
static inline void source_wide(Machine *m, const Warp *w, const Operand *o, uint64_t *out) {
    Vector low, high;
    words(m, w, o, 0, low);
    words(m, w, o, 1, high);
    EACH out[l] = low[l] | (uint64_t)high[l] << 32;
    if (o->flags & F_INVERT) EACH out[l] = ~out[l];
    if (o->flags & F_NEGATE) EACH out[l] = -out[l];
}

static inline void source_double(Machine *m, const Warp *w, const Operand *o, double *out) {
    uint64_t *bits = (uint64_t *)out;
    Vector low, high;
    words(m, w, o, 0, low);
    words(m, w, o, 1, high);
    EACH bits[l] = low[l] | (uint64_t)high[l] << 32;
    if (o->flags & F_ABSOLUTE) EACH bits[l] &= ~(1ull << 63);
    if (o->flags & F_NEGATE) EACH bits[l] ^= 1ull << 63;
}

/* A bit a lane. */
static inline uint32_t predicate(Machine *m, const Warp *w, const Operand *o) {
    uint32_t value;
    if (o->kind == K_PRED) value = w->predicate[o->reg];
    else if (o->kind == K_UPRED) value = w->uniform_predicate >> o->reg & 1 ? ~0u : 0;
    else fail(m, UNKNOWN, "an operand of kind %u for a predicate", o->kind);
    return o->flags & F_NEGATE ? ~value : value;
}

static inline void put_predicate(Warp *w, const Operand *o, uint32_t value, uint32_t lanes) {
    if (o->reg == PREDICATES - 1) return; /* PT, UPT */
    if (o->kind == K_UPRED) {
        uint32_t bit = 1u << o->reg;
        w->uniform_predicate = value >> first_lane(lanes) & 1 ? w->uniform_predicate | bit : w->uniform_predicate & ~bit;
    } else w->predicate[o->reg] = (w->predicate[o->reg] & ~lanes) | (value & lanes);
}

static inline void put_word(Warp *w, const Operand *o, int word, const uint32_t *value, uint32_t lanes) {
    if (o->kind == K_UREG) {
        if (o->reg != URZ) w->uniform[o->reg + word] = value[first_lane(lanes)];
    } else if (o->kind != K_REG) __builtin_trap(); /* an opcode has taken an operand for another */
    else if (o->reg != RZ) {
        uint32_t *to = w->reg[o->reg + word];
        if (lanes == ~0u) memcpy(to, value, sizeof(Vector));
        else ACTIVE(lanes) to[l] = value[l];
    }
}
static inline void put(Warp *w, const Operand *o, const uint32_t *value, uint32_t lanes) { put_word(w, o, 0, value, lanes); }

/* 32 bits of 64 from one on, to one word of what results go to; and all of them. */
static inline void put_part(Warp *w, const Operand *o, int word, const uint64_t *value, int from, uint32_t lanes) {
    Vector part;
    EACH part[l] = (uint32_t)(value[l] >> from);
    put_word(w, o, word, part, lanes);
}
static inline void put_wide(Warp *w, const Operand *o, const uint64_t *value, uint32_t lanes) {
    put_part(w, o, 0, value, 0, lanes);
    put_part(w, o, 1, value, 32, lanes);
}

uint32_t half_of(double v); /* the nearest, ties to even */

static inline bool is_predicate(const Operand *o) { return o->kind == K_PRED || o->kind == K_UPRED; }
