/* Integers, bits and predicates. */
#include "operands.h"

/* Opcodes that give, lane by lane, what is computed of the integers a, b and c. */
#define LANE_BY_LANE(name, value, ...)                                              \
    void op_##name(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {     \
        INTEGERS(1, __VA_ARGS__);                                                   \
        EACH a[l] = value;                                                          \
        put(w, &i->operand[0], a, lanes);                                           \
    }

LANE_BY_LANE(MOV, a[l], a)
LANE_BY_LANE(VIADD, a[l] + b[l], a, b)
LANE_BY_LANE(IABS, (int32_t)a[l] < 0 ? -a[l] : a[l], a)
LANE_BY_LANE(POPC, (uint32_t)__builtin_popcount(a[l]), a)

/* From a register of a warp's lanes to one of the warp: the lanes hold the same, or the compiler has not kept its word. With
 * a predicate it asks whether they do not (ptxas: of the masks of match, whose lanes then go the way of each mask). */
void op_R2UR(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector a;
    source(m, w, &i->operand[i->operands - 1], a);
    int first = first_lane(lanes), asks = is_predicate(&i->operand[0]);
    bool same = true;
    ACTIVE(lanes) same &= a[l] == a[first];
    if (asks) put_predicate(w, &i->operand[0], same ? 0 : ~0u, lanes);
    if (!same && i->operand[asks].reg != URZ) fail(m, FAULT, "lanes disagree about a uniform register");
    put(w, &i->operand[asks], a, lanes);
}

static uint64_t clock_of(Machine *m) {
    m->launch->flags |= READS_CLOCK;
    return m->launch->steps;
}

static void special(Machine *m, const Warp *w, const Operand *o, uint32_t *out) {
    const Launch *launch = m->launch;
    const Block *b = w->block;
    const uint32_t *size = launch->block;
    bool one_row = size[1] * size[2] == 1;
    EACH {
        uint32_t t = w->first_thread + l, bit = 1u << l, value = 0;
        switch (o->value) {
        case SR_TID_X: value = one_row ? t : t % size[0]; break;
        case SR_TID_Y: value = t / size[0] % size[1]; break;
        case SR_TID_Z: value = t / (size[0] * size[1]); break;
        case SR_CTAID_X: value = b->id[0]; break;
        case SR_CTAID_Y: value = b->id[1]; break;
        case SR_CTAID_Z: value = b->id[2]; break;
        case SR_LANEID: value = l; break;
        case SR_EQMASK: value = bit; break;
        case SR_LTMASK: value = bit - 1; break;
        case SR_LEMASK: value = bit | (bit - 1); break;
        case SR_GTMASK: value = ~(bit | (bit - 1)); break;
        case SR_GEMASK: value = ~(bit - 1); break;
        case SR_SWINHI: value = launch->shared_window >> 32; break;
        case SR_LMEMHIOFF: value = 0; break;
        case SR_CGACTAID: value = 0; break;
        case SR_Z: value = 0; break;
        case SR_CLOCKLO: case SR_GLOBALTIMERLO: value = (uint32_t)clock_of(m); break;
        case SR_CLOCKHI: case SR_GLOBALTIMERHI: value = (uint32_t)(clock_of(m) >> 32); break;
        default: fail(m, UNKNOWN, "special register %llu", (unsigned long long)o->value);
        }
        out[l] = value;
    }
}

void op_S2R(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector v;
    special(m, w, &i->operand[1], v);
    put(w, &i->operand[0], v, lanes);
}

void op_CS2R(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector v;
    special(m, w, &i->operand[1], v);
    Wide wide;
    EACH wide[l] = i->operand[1].value == SR_CLOCKLO || i->operand[1].value == SR_GLOBALTIMERLO ? clock_of(m) : v[l];
    if (HAS(i, M_32)) put(w, &i->operand[0], v, lanes);
    else put_wide(w, &i->operand[0], wide, lanes);
}

/* An addend whose carry counts: -x is ~x + 1. */
static void addend(Machine *m, const Warp *w, const Operand *o, uint64_t *out) {
    Operand plain = *o;
    plain.flags &= ~F_NEGATE;
    source_extended(m, w, &plain, out);
    if (o->flags & F_NEGATE) EACH out[l] = (uint64_t)~(uint32_t)out[l] + 1;
}

void op_IADD3(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = 1, carries = 0;
    while (is_predicate(&i->operand[first])) first++, carries++;
    if (!carries && !HAS(i, M_X)) {
        Vector x, y, z;
        source(m, w, &i->operand[1], x);
        source(m, w, &i->operand[2], y);
        source(m, w, &i->operand[3], z);
        EACH x[l] += y[l] + z[l];
        put(w, &i->operand[0], x, lanes);
        return;
    }
    Wide a, b, c;
    addend(m, w, &i->operand[first], a);
    addend(m, w, &i->operand[first + 1], b);
    addend(m, w, &i->operand[first + 2], c);
    uint32_t in[2] = {0, 0};
    if (HAS(i, M_X))
        for (int k = 0; first + 3 + k < i->operands && k < 2; k++) in[k] = predicate(m, w, &i->operand[first + 3 + k]);
    Vector sum;
    uint32_t out[2] = {0, 0};
    EACH {
        uint64_t s = a[l] + b[l] + c[l] + (in[0] >> l & 1) + (in[1] >> l & 1);
        sum[l] = (uint32_t)s;
        for (int k = 0; k < 2; k++) out[k] |= (uint32_t)((s >> 32) > (uint64_t)k) << l;
    }
    for (int k = 0; k < carries; k++) put_predicate(w, &i->operand[1 + k], out[k], lanes);
    put(w, &i->operand[0], sum, lanes);
}

void op_IMAD(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = is_predicate(&i->operand[1]) ? 2 : 1;
    const Operand *carry = first == 2 ? &i->operand[1] : NULL, *c = &i->operand[first + 2];
    uint32_t in = i->operands > first + 3 ? predicate(m, w, &i->operand[first + 3]) : 0, out = 0;
    bool is_unsigned = HAS(i, M_U32);
    INTEGERS(first, a, b);
    Vector low;
    if (HAS(i, M_WIDE) || HAS(i, M_HI)) {
        Wide add, result;
        source_wide(m, w, c, add);
        if (!carry && !in && is_unsigned) EACH result[l] = (uint64_t)a[l] * b[l] + add[l];
        else if (!carry && !in) EACH result[l] = (uint64_t)((int64_t)(int32_t)a[l] * (int32_t)b[l]) + add[l];
        else EACH {
            uint64_t product = is_unsigned ? (uint64_t)a[l] * b[l] : (uint64_t)((int64_t)(int32_t)a[l] * (int32_t)b[l]);
            result[l] = product + add[l];
            uint32_t over = result[l] < product;
            uint64_t sum = result[l] + (in >> l & 1);
            over |= sum < result[l];
            result[l] = sum;
            out |= over << l;
        }
        if (carry) put_predicate(w, carry, out, lanes);
        if (HAS(i, M_WIDE)) put_wide(w, &i->operand[0], result, lanes);
        else put_part(w, &i->operand[0], 0, result, 32, lanes);
        return;
    }
    if (!carry && !in) {
        source(m, w, c, low);
        EACH low[l] += a[l] * b[l];
        put(w, &i->operand[0], low, lanes);
        return;
    }
    Wide add;
    addend(m, w, c, add);
    EACH {
        uint64_t s = (uint64_t)(uint32_t)(a[l] * b[l]) + add[l] + (in >> l & 1);
        low[l] = (uint32_t)s;
        out |= (uint32_t)(s >> 32 != 0) << l;
    }
    if (carry) put_predicate(w, carry, out, lanes);
    put(w, &i->operand[0], low, lanes);
}

/* Two predicates: what was compared, and its opposite, each joined with a third. */
void put_comparison(Machine *m, Warp *w, const Instruction *i, uint32_t truth, uint32_t lanes) {
    uint32_t with = predicate(m, w, &i->operand[4]), yes, no;
    if (HAS(i, M_AND)) yes = truth & with, no = ~truth & with;
    else if (HAS(i, M_OR)) yes = truth | with, no = ~truth | with;
    else yes = truth ^ with, no = ~truth ^ with;
    put_predicate(w, &i->operand[0], yes, lanes);
    put_predicate(w, &i->operand[1], no, lanes);
}

void op_ISETP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(2, a, b);
    int kind = comparison(i);
    uint32_t truth = 0, low = HAS(i, M_EX) ? predicate(m, w, &i->operand[5]) : 0;
    uint32_t flip = HAS(i, M_U32) ? 0 : 0x80000000;
    EACH {
        uint32_t x = a[l] ^ flip, y = b[l] ^ flip;
        uint32_t t = kind >> (x < y ? 0 : x == y ? 1 : 2) & 1;
        /* The high words of 64 bits: where they are equal, the low ones decide. */
        if (HAS(i, M_EX) && x == y) t = low >> l & 1;
        truth |= t << l;
    }
    put_comparison(m, w, i, truth, lanes);
}

/* A function of three bits, of all bits of all lanes: the table says of which combinations the result is set. */
static void lookup(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t table, uint32_t *r) {
    EACH r[l] = 0;
    for (int k = 0; k < 8; k++) {
        if (!(table >> k & 1)) continue;
        uint32_t x = k & 4 ? 0 : ~0u, y = k & 2 ? 0 : ~0u, z = k & 1 ? 0 : ~0u;
        EACH r[l] |= (a[l] ^ x) & (b[l] ^ y) & (c[l] ^ z);
    }
}

void op_LOP3(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = is_predicate(&i->operand[0]) ? 1 : 0;
    INTEGERS(first + 1, a, b, c);
    Vector r;
    uint32_t table = (uint32_t)i->operand[first + 4].value, some = 0;
    lookup(a, b, c, table, r);
    EACH some |= (uint32_t)(r[l] != 0) << l;
    if (first) {
        uint32_t with = predicate(m, w, &i->operand[first + 5]);
        put_predicate(w, &i->operand[0], some | with, lanes);
    }
    put(w, &i->operand[first], r, lanes);
}

void op_PLOP3(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    uint32_t a = predicate(m, w, &i->operand[2]), b = predicate(m, w, &i->operand[3]), c = predicate(m, w, &i->operand[4]);
    for (int n = 0; n < 2; n++) {
        uint32_t table = (uint32_t)i->operand[5 + n].value, r = 0;
        for (int k = 0; k < 8; k++)
            if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        put_predicate(w, &i->operand[n], r, lanes);
    }
}

void op_SHF(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a, s, c);
    Vector r;
    bool left = HAS(i, M_L), high = HAS(i, M_HI), is_signed = HAS(i, M_S32) || HAS(i, M_S64);
    uint32_t most = HAS(i, M_U64) || HAS(i, M_S64) ? 63 : 31;
    EACH {
        uint32_t by = HAS(i, M_W) ? s[l] & most : s[l] > most ? most + 1 : s[l];
        uint64_t v = a[l] | (uint64_t)c[l] << 32;
        if (left) v = by > 63 ? 0 : v << by;
        else if (is_signed) v = (uint64_t)((int64_t)v >> (by > 63 ? 63 : by));
        else v = by > 63 ? 0 : v >> by;
        r[l] = (uint32_t)(high ? v >> 32 : v);
    }
    put(w, &i->operand[0], r, lanes);
}

void op_LEA(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = is_predicate(&i->operand[1]) ? 2 : 1, last = i->operands - 1;
    bool high = HAS(i, M_HI), extends = HAS(i, M_SX32);
    uint32_t in = HAS(i, M_X) ? predicate(m, w, &i->operand[last--]) : 0, out = 0;
    uint32_t shift = (uint32_t)i->operand[last].value;
    Operand plain = i->operand[first];
    uint32_t flags = plain.flags;
    plain.flags = 0;
    Vector a, c, r;
    Wide b;
    source(m, w, &plain, a);
    if (first == 1 && !high && !extends && !HAS(i, M_X)) {
        source(m, w, &i->operand[2], c);
        EACH {
            uint32_t v = shift > 31 ? 0 : a[l] << shift;
            r[l] = (flags & F_NEGATE ? -v : flags & F_INVERT ? ~v : v) + c[l];
        }
        put(w, &i->operand[0], r, lanes);
        return;
    }
    addend(m, w, &i->operand[first + 1], b);
    if (high && !extends) source(m, w, &i->operand[first + 2], c);
    else memset(c, 0, sizeof c);
    EACH {
        uint64_t v = extends ? (uint64_t)(int64_t)(int32_t)a[l] : a[l] | (uint64_t)c[l] << 32;
        v <<= shift;
        v = high ? v >> 32 : (uint32_t)v;
        v &= 0xFFFFFFFF;
        if (flags & F_NEGATE) v = (~v & 0xFFFFFFFF) + 1;
        if (flags & F_INVERT) v = ~v & 0xFFFFFFFF;
        uint64_t s = v + b[l] + (in >> l & 1);
        r[l] = (uint32_t)s;
        out |= (uint32_t)(s >> 32 != 0) << l;
    }
    if (first == 2) put_predicate(w, &i->operand[1], out, lanes);
    put(w, &i->operand[0], r, lanes);
}

static inline uint32_t permuted(uint32_t low, uint32_t select, uint32_t high) {
    uint64_t v = low | (uint64_t)high << 32;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t n = select >> 4 * k & 15, byte = (uint32_t)(v >> 8 * (n & 7)) & 255;
        if (n & 8) byte = byte & 128 ? 255 : 0; /* its sign */
        r |= byte << 8 * k;
    }
    return r;
}
LANE_BY_LANE(PRMT, permuted(a[l], b[l], c[l]), a, b, c)

void op_SEL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a, b);
    uint32_t which = predicate(m, w, &i->operand[3]);
    EACH if (which >> l & 1) b[l] = a[l];
    put(w, &i->operand[0], b, lanes);
}

/* The least or the greatest of numbers, or of the halves of pairs. */
static void extreme(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, int numbers) {
    Vector r, a;
    int first = 1;
    while (is_predicate(&i->operand[first]) && i->operand[first].reg == PREDICATES - 1) first++; /* that it would tell nobody */
    if (i->operands != first + numbers + 1) fail(m, UNKNOWN, "two sorts of extremes");
    source(m, w, &i->operand[first], r);
    uint32_t least = predicate(m, w, &i->operand[first + numbers]), flip = HAS(i, M_U32) || HAS(i, M_U16X2) ? 0 : 0x80000000;
    int width = HAS(i, M_S16X2) || HAS(i, M_U16X2) ? 16 : 32, up = 32 - width;
    for (int from = 0; from < 32; from += width) {
        uint32_t mask = ~0u >> up << from;
        for (int k = first + 1; k < first + numbers; k++) {
            source(m, w, &i->operand[k], a);
            EACH if (((a[l] >> from << up ^ flip) < (r[l] >> from << up ^ flip)) == (least >> l & 1)) r[l] = (r[l] & ~mask) | (a[l] & mask);
        }
        if (HAS(i, M_RELU)) EACH if (r[l] >> (from + width - 1) & 1) r[l] &= ~mask;
    }
    put(w, &i->operand[0], r, lanes);
}
void op_IMNMX(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { extreme(m, w, i, lanes, 2); }
void op_VIMNMX3(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { extreme(m, w, i, lanes, 3); }

/* The lesser or the greater of a sum, which wraps around, and a third number. */
void op_VIADDMNMX(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a, b, c);
    uint32_t least = predicate(m, w, &i->operand[4]), flip = HAS(i, M_U32) ? 0 : 0x80000000;
    EACH {
        a[l] += b[l];
        if (((c[l] ^ flip) < (a[l] ^ flip)) == (least >> l & 1)) a[l] = c[l];
        if (HAS(i, M_RELU) && (int32_t)a[l] < 0) a[l] = 0;
    }
    put(w, &i->operand[0], a, lanes);
}

/* The highest bit that is set, of a signed number that differs from its sign; .SH counts from the top. */
void op_FLO(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector a;
    source(m, w, &i->operand[i->operands - 1], a);
    uint32_t found = 0;
    EACH {
        uint32_t v = HAS(i, M_U32) || (int32_t)a[l] >= 0 ? a[l] : ~a[l];
        found |= (uint32_t)(v != 0) << l;
        a[l] = !v ? 0xFFFFFFFF : HAS(i, M_SH) ? (uint32_t)__builtin_clz(v) : 31 - (uint32_t)__builtin_clz(v);
    }
    if (i->operands == 3) put_predicate(w, &i->operand[1], found, lanes);
    put(w, &i->operand[0], a, lanes);
}

static inline uint32_t reversed(uint32_t v) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k++) r |= (v >> k & 1) << (31 - k);
    return r;
}
LANE_BY_LANE(BREV, reversed(a[l]), a)

/* A place or a number of bits: as it is, but for what lies beyond all of them. */
static inline uint32_t up_to_32(const Instruction *i, uint32_t v) { return HAS(i, M_W) ? v & 31 : v > 32 ? 32 : v; }

/* So many bits from a place on. */
LANE_BY_LANE(BMSK, (uint32_t)(((1ull << up_to_32(i, b[l])) - 1) << up_to_32(i, a[l])), a, b)

static inline uint32_t extended(uint64_t v, uint32_t width, bool is_unsigned) {
    v &= (1ull << width) - 1;
    return (uint32_t)(is_unsigned || !width ? v : (uint64_t)((int64_t)(v << (64 - width)) >> (64 - width)));
}
LANE_BY_LANE(SGXT, extended(a[l], up_to_32(i, b[l]), HAS(i, M_U32)), a, b)

/* All predicates as bits of a register, and back; only those that a mask names. */
void op_P2R(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(2, a, mask);
    EACH {
        uint32_t v = 0;
        if (i->operand[1].reg) v = w->uniform_predicate;
        else for (int k = 0; k < PREDICATES - 1; k++) v |= (w->predicate[k] >> l & 1) << k;
        a[l] = (a[l] & ~mask[l]) | (v & mask[l]);
    }
    put(w, &i->operand[0], a, lanes);
}

void op_R2P(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a, mask);
    for (int k = 0; k < PREDICATES - 1; k++) {
        uint32_t value = 0, which = 0;
        EACH value |= (a[l] >> k & 1) << l, which |= (mask[l] >> k & 1) << l;
        which &= lanes;
        w->predicate[k] = (w->predicate[k] & ~which) | (value & which);
    }
}

/* Four products of bytes, or two of halves with bytes, added up. */
void op_IDP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a, b, c);
    if (!HAS(i, M_4A) || HAS(i, M_S8) == HAS(i, M_U8)) fail(m, UNKNOWN, "IDP of this kind");
    EACH for (int k = 0; k < 4; k++) {
        int32_t x = a[l] >> 8 * k & 255, y = b[l] >> 8 * k & 255;
        if (HAS(i, M_S8)) x = (int8_t)x, y = (int8_t)y;
        c[l] += (uint32_t)(x * y);
    }
    put(w, &i->operand[0], c, lanes);
}
