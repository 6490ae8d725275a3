/* Memory: global, shared, local and constant; every address is held against what exists. */
#include "operands.h"
#include <math.h>

uint32_t add_pairs(uint32_t a, uint32_t b, bool brain);

enum Space { GLOBAL, SHARED, LOCAL, GENERIC };
static const char *const SPACE[] = {"global", "shared", "local", "generic"};

static void addresses(Machine *m, const Warp *w, const Operand *o, enum Space space, uint64_t *out) {
    bool wide = space == GLOBAL || space == GENERIC;
    uint64_t base = o->value;
    if (o->kind != K_ADDRESS) fail(m, UNKNOWN, "an operand of kind %u for an address", o->kind);
    if (o->ureg != URZ) base += w->uniform[o->ureg] | (wide ? (uint64_t)w->uniform[o->ureg + 1] << 32 : 0);
    EACH {
        uint64_t a = base;
        if (o->reg != RZ) {
            a += (uint64_t)w->reg[o->reg][l] * o->scale;
            if (o->flags & F_WIDE) a += (uint64_t)w->reg[o->reg + 1][l] << 32;
        }
        out[l] = wide ? a : (uint32_t)a;
    }
}

/* What is allocated around an address, most often what was last asked for; NULL where nothing is. */
static const Range *range_of(Machine *m, uint64_t address) {
    const Launch *launch = m->launch;
    const Range *r = &launch->ranges[m->last_range];
    if (!launch->range_count || (address >= r->start && address < r->end)) return launch->range_count ? r : NULL;
    uint64_t low = 0, high = launch->range_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (launch->ranges[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    m->last_range = low ? low - 1 : 0;
    r = &launch->ranges[m->last_range];
    return address >= r->start && address < r->end ? r : NULL;
}

static uint8_t *global(Machine *m, uint64_t address, int size) {
    const Range *r = range_of(m, address);
    if (!r || (uint64_t)size > r->end - address)
        fail(m, FAULT, "%d bytes at %#llx are no memory of the device", size, (unsigned long long)address);
    return (uint8_t *)address;
}

/* Which memory a generic address leads to. */
static enum Space window_of(Machine *m, uint64_t address) {
    uint64_t window = address & ~0xFFFFFFFFull;
    return window == m->launch->shared_window ? SHARED : window == m->launch->local_window ? LOCAL : GLOBAL;
}

/* Where an address of a lane lies in the memory of this process. */
static uint8_t *place(Machine *m, Warp *w, enum Space space, uint64_t address, int lane, int size) {
    const Launch *launch = m->launch;
    if (address % size) fail(m, FAULT, "%d bytes at %s address %#llx are not aligned", size, SPACE[space], (unsigned long long)address);
    if (space == GENERIC) {
        space = window_of(m, address);
        if (space != GLOBAL) address = (uint32_t)address;
    }
    if (space == GLOBAL) return global(m, address, size);
    uint32_t most = space == SHARED ? launch->shared : launch->local;
    if (address + size > most)
        fail(m, FAULT, "%d bytes at %s address %#llx, of %u that there are", size, SPACE[space], (unsigned long long)address, most);
    return space == SHARED ? w->block->shared + address : w->local + (uint64_t)lane * launch->local + address;
}

static int size_of(const Instruction *i) {
    return HAS(i, M_U8) || HAS(i, M_S8) ? 1 : HAS(i, M_U16) || HAS(i, M_S16) ? 2 : HAS(i, M_64) ? 8 : HAS(i, M_128) || HAS(i, M_256) ? 16 : 4;
}

static const Operand *address_of(const Instruction *i) {
    for (int k = 0; k < i->operands; k++)
        if (i->operand[k].kind == K_ADDRESS) return &i->operand[k];
    return &i->operand[0];
}

static void put_loaded(Warp *w, const Instruction *i, const Operand *to, int size, uint32_t value[4][LANES], uint32_t lanes) {
    if (HAS(i, M_S8)) EACH value[0][l] = (uint32_t)(int8_t)value[0][l];
    if (HAS(i, M_S16)) EACH value[0][l] = (uint32_t)(int16_t)value[0][l];
    for (int k = 0; k < (size + 3) / 4; k++) put_word(w, to, k, value[k], lanes);
}

static inline void take(uint32_t value[4][LANES], int lane, const uint8_t *p, int size) {
    uint32_t word[4] = {0};
    switch (size) {
    case 1: memcpy(word, p, 1); break;
    case 2: memcpy(word, p, 2); break;
    case 4: memcpy(word, p, 4); break;
    case 8: memcpy(word, p, 8); break;
    default: memcpy(word, p, 16);
    }
    value[0][lane] = word[0];
    if (size > 4) value[1][lane] = word[1];
    if (size > 8) value[2][lane] = word[2], value[3][lane] = word[3];
}

static inline void give(uint8_t *p, uint32_t value[4][LANES], int lane, int size) {
    uint32_t word[4] = {value[0][lane], size > 4 ? value[1][lane] : 0, size > 8 ? value[2][lane] : 0, size > 8 ? value[3][lane] : 0};
    switch (size) {
    case 1: memcpy(p, word, 1); break;
    case 2: memcpy(p, word, 2); break;
    case 4: memcpy(p, word, 4); break;
    case 8: memcpy(p, word, 8); break;
    default: memcpy(p, word, 16);
    }
}

/* Where the addresses of lanes lie. Most often all lanes ask for what lies in one allocation, or in shared or local memory: that is
 * held against what exists at once. Otherwise each lane is looked at. */
static void places(Machine *m, Warp *w, enum Space space, const uint64_t *address, uint32_t lanes, int size, uint8_t **at) {
    const Launch *launch = m->launch;
    uint64_t first = address[first_lane(lanes)], low = first, high = first, odd = 0;
    EACH {
        uint64_t a = lanes >> l & 1 ? address[l] : first;
        low = a < low ? a : low, high = a > high ? a : high, odd |= a;
    }
    uint64_t base = space == SHARED ? (uint64_t)w->block->shared : space == LOCAL ? (uint64_t)w->local : 0, stride = 0;
    bool all = !(odd & (uint64_t)(size - 1));
    if (space == SHARED) all &= high + (uint64_t)size <= launch->shared;
    else if (space == LOCAL) stride = launch->local, all &= high + (uint64_t)size <= launch->local;
    else if (all) {
        const Range *r = range_of(m, low);
        all = r && high < r->end && (uint64_t)size <= r->end - high;
    }
    if (all) EACH at[l] = (uint8_t *)(base + (uint64_t)l * stride + address[l]);
    else ACTIVE(lanes) at[l] = place(m, w, space, address[l], l, size);
}

/* The places of both halves of 256 bits: the second one lies behind the first. */
static void places_of(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, enum Space space, int size, uint8_t *at[2][LANES]) {
    Wide address;
    addresses(m, w, address_of(i), space, address);
    if (HAS(i, M_256)) places(m, w, space, address, lanes, 32, at[1]);
    places(m, w, space, address, lanes, size, at[0]);
    ACTIVE(lanes) at[1][l] = at[0][l] + 16;
}

/* Of 256 bits the first half goes to the last register that is named. */
static void load(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, enum Space space) {
    uint8_t *at[2][LANES];
    uint32_t value[4][LANES];
    int size = size_of(i), halves = HAS(i, M_256) ? 2 : 1;
    places_of(m, w, i, lanes, space, size, at);
    for (int k = 0; k < halves; k++) {
        ACTIVE(lanes) take(value, l, at[k][l], size);
        if (NOTES(m)) note(m, w, lanes, NULL, at[k], size, READS, NULL, NULL, NULL);
        put_loaded(w, i, address_of(i) - 1 - k, size, value, lanes);
    }
}
void op_LDG(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { load(m, w, i, lanes, GLOBAL); }
void op_LD(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { load(m, w, i, lanes, GENERIC); }
void op_LDS(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { load(m, w, i, lanes, SHARED); }
void op_LDL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { load(m, w, i, lanes, LOCAL); }

/* Matrices of eight rows of eight halves: eight lanes have the addresses of the rows of one, and a lane gets of each two neighbours of
 * a row, or (MT88) of a column. */
void op_LDSM(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Wide address;
    uint8_t *at[LANES];
    int count = HAS(i, M_4) ? 4 : HAS(i, M_2) ? 2 : 1;
    uint32_t value[4][LANES];
    if (lanes != ~0u || !HAS(i, M_16)) fail(m, UNKNOWN, "LDSM of this kind");
    addresses(m, w, address_of(i), SHARED, address);
    places(m, w, SHARED, address, ~0u >> (LANES - 8 * count), 16, at);
    if (m->log) note(m, w, ~0u >> (LANES - 8 * count), NULL, at, 16, READS, NULL, NULL, NULL);
    for (int k = 0; k < count; k++) {
        uint16_t row[8][8];
        for (int r = 0; r < 8; r++) memcpy(row[r], at[8 * k + r], 16);
        EACH value[k][l] = HAS(i, M_MT88) ? row[2 * (l % 4)][l / 4] | (uint32_t)row[2 * (l % 4) + 1][l / 4] << 16
                                          : row[l / 4][2 * (l % 4)] | (uint32_t)row[l / 4][2 * (l % 4) + 1] << 16;
    }
    for (int k = 0; k < count; k++) put_word(w, &i->operand[0], k, value[k], lanes);
}

void op_LDC(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *o = &i->operand[1];
    uint32_t value[4][LANES];
    int size = size_of(i);
    memset(value, 0, sizeof value);
    if (!(o->flags & F_INDEXED) && !(o->value % (uint64_t)size)) {
        for (int k = 0; k < (size + 3) / 4; k++) {
            uint32_t v = (uint32_t)constant(m, o->scale, (uint32_t)o->value + 4 * k, size < 4 ? size : 4);
            EACH value[k][l] = v;
        }
    } else ACTIVE(lanes) {
        uint64_t at = o->value + (o->flags & F_INDEXED && o->reg != RZ ? w->reg[o->reg][l] : 0);
        if (o->flags & F_INDEXED && o->ureg != URZ) at += w->uniform[o->ureg];
        if (at % (uint64_t)size) fail(m, FAULT, "%d bytes at constant address %#llx are not aligned", size, (unsigned long long)at);
        for (int k = 0; k < (size + 3) / 4; k++)
            value[k][l] = (uint32_t)constant(m, o->scale, (uint32_t)at + 4 * k, size < 4 ? size : 4);
    }
    put_loaded(w, i, &i->operand[0], size, value, lanes);
}

static void store(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, enum Space space) {
    uint32_t value[4][LANES];
    uint8_t order[LANES], *at[2][LANES];
    int size = size_of(i), halves = HAS(i, M_256) ? 2 : 1;
    lane_order(m, w, order);
    m->writes++;
    places_of(m, w, i, lanes, space, size, at);
    for (int half = 0; half < halves; half++) {
        for (int k = 0; k < (size + 3) / 4; k++) words(m, w, &i->operand[i->operands - halves + half], k, value[k]);
        EACH if (lanes >> order[l] & 1) give(at[half][order[l]], value, order[l], size);
        if (NOTES(m)) note(m, w, lanes, order, at[half], size, WRITES, value, NULL, NULL);
    }
}
void op_STG(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { store(m, w, i, lanes, GLOBAL); }
void op_ST(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { store(m, w, i, lanes, GENERIC); }
void op_STS(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { store(m, w, i, lanes, SHARED); }
void op_STL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { store(m, w, i, lanes, LOCAL); }

/* From global to shared memory, done at once: what waits for it finds it done. */
void op_LDGSTS(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Wide to, from;
    int size = size_of(i);
    addresses(m, w, &i->operand[0], SHARED, to);
    addresses(m, w, &i->operand[1], GLOBAL, from);
    m->launch->flags |= COPIES_LATER;
    m->writes++;
    /* Where a predicate is false, zeros instead. */
    uint32_t copied = i->operands > 2 ? predicate(m, w, &i->operand[2]) : ~0u;
    ACTIVE(lanes) {
        uint8_t *p = place(m, w, SHARED, to[l], l, size);
        if (copied >> l & 1) memcpy(p, place(m, w, GLOBAL, from[l], l, size), size);
        else memset(p, 0, size);
    }
}

/* Whether an address lies in a window; in that of another block of a cluster (D) none does. */
void op_QSPC(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Wide address;
    addresses(m, w, address_of(i), GENERIC, address);
    enum Space asked = HAS(i, M_L) ? LOCAL : SHARED;
    uint32_t inside = 0;
    EACH inside |= (uint32_t)(window_of(m, address[l]) == asked && !HAS(i, M_D)) << l;
    put_predicate(w, &i->operand[0], inside, lanes);
}

static float no_denormal(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }

static bool is_real(const Instruction *i) { return HAS(i, M_F32) || HAS(i, M_F64) || HAS(i, M_F16X2) || HAS(i, M_BF16X2); }

static uint64_t combined(Machine *m, const Instruction *i, uint64_t old, uint64_t with, int size) {
    if (is_real(i) && !HAS(i, M_ADD)) fail(m, UNKNOWN, "an atomic on floats that does not add");
    if (HAS(i, M_F32)) {
        float a = as_float((uint32_t)old), b = as_float((uint32_t)with);
        float r = HAS(i, M_FTZ) ? no_denormal(no_denormal(a) + no_denormal(b)) : a + b;
        return isnan(r) ? 0x7FFFFFFF : bits_of(r);
    }
    if (HAS(i, M_F64)) {
        double r = as_double(old) + as_double(with);
        return isnan(r) ? 0x7FFFFFFFFFFFFFFF : bits_of_double(r);
    }
    if (HAS(i, M_F16X2) || HAS(i, M_BF16X2)) return add_pairs((uint32_t)old, (uint32_t)with, HAS(i, M_BF16X2));
    if (HAS(i, M_ADD)) return old + with;
    if (HAS(i, M_AND)) return old & with;
    if (HAS(i, M_OR)) return old | with;
    if (HAS(i, M_XOR)) return old ^ with;
    if (HAS(i, M_INC)) return old >= with ? 0 : old + 1;
    if (HAS(i, M_DEC)) return old == 0 || old > with ? with : old - 1;
    if (HAS(i, M_MIN) || HAS(i, M_MAX)) {
        uint64_t flip = HAS(i, M_S32) ? 1ull << 31 : HAS(i, M_S64) ? 1ull << 63 : 0;
        bool below = (size == 4 ? (uint32_t)(old ^ flip) < (uint32_t)(with ^ flip) : (old ^ flip) < (with ^ flip));
        return below == (bool)HAS(i, M_MIN) ? old : with;
    }
    fail(m, UNKNOWN, "an atomic operation of an unknown kind");
}

/* What it does as far as others that it is not ordered with see it: whose old value is used, that is an exchange. */
static uint32_t kind_of(const Instruction *i, bool used) {
    if (used || HAS(i, M_EXCH) || HAS(i, M_CAS) || HAS(i, M_CAST) || HAS(i, M_DEC)) return EXCHANGES;
    if (HAS(i, M_POPC)) return ADDS;
    if (HAS(i, M_INC)) return EXCHANGES;
    if (HAS(i, M_ADD)) return is_real(i) ? ADDS_FLOATS : ADDS;
    return HAS(i, M_AND) ? ANDS : HAS(i, M_OR) ? ORS : HAS(i, M_XOR) ? XORS : HAS(i, M_MIN) ? MINIMA : MAXIMA;
}

/* One lane after the other, in the order of the schedule: of a vector one of its words, each of which is changed by itself. */
static void atomic_word(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, enum Space space, uint32_t word) {
    int k = 0;
    while (is_predicate(&i->operand[k])) k++;
    const Operand *result = i->operand[k].kind == K_ADDRESS ? NULL : &i->operand[k];
    const Operand *at = address_of(i), *from = at + 1;
    int size = HAS(i, M_64) || HAS(i, M_F64) || HAS(i, M_S64) ? 8 : 4;
    Wide address, value, third, old;
    uint8_t order[LANES], *at_of[LANES];
    uint32_t left[2][LANES];
    addresses(m, w, at, space, address);
    EACH address[l] += 4 * word;
    if (space == GENERIC && k && i->operand[0].reg != PREDICATES - 1) {
        /* Elsewhere than in global memory it does nothing, and says so: the code then goes another way. */
        uint32_t global_ones = 0;
        EACH global_ones |= (uint32_t)(window_of(m, address[l]) == GLOBAL) << l;
        put_predicate(w, &i->operand[0], global_ones, lanes);
        lanes &= global_ones;
        if (!lanes) return;
    }
    memset(old, 0, sizeof old);
    bool counts = HAS(i, M_POPC), exchanges = HAS(i, M_EXCH), compares = HAS(i, M_CAS) || HAS(i, M_CAST);
    if (counts) EACH value[l] = 1;
    else if (size == 8) source_wide(m, w, from, value);
    else if (word) {
        Vector raw;
        words(m, w, from, (int)word, raw);
        EACH value[l] = raw[l];
    } else source_extended(m, w, from, value);
    if (compares && size == 8) source_wide(m, w, from + 1, third);
    else if (compares) source_extended(m, w, from + 1, third);
    lane_order(m, w, order);
    places(m, w, space, address, lanes, size, at_of);
    EACH {
        int lane = order[l];
        if (!(lanes >> lane & 1)) continue;
        uint8_t *p = at_of[lane];
        if (size == 4) memcpy(&old[lane], p, 4);
        else memcpy(&old[lane], p, 8);
        uint64_t next = counts ? old[lane] + 1 : exchanges ? value[lane]
                      : compares ? (old[lane] == value[lane] ? third[lane] : old[lane]) : combined(m, i, old[lane], value[lane], size);
        if (size == 4) memcpy(p, &next, 4);
        else memcpy(p, &next, 8);
        m->writes += next != old[lane];
        left[0][lane] = (uint32_t)next, left[1][lane] = (uint32_t)(next >> 32);
    }
    if (NOTES(m)) note(m, w, lanes, order, at_of, size, kind_of(i, result && result->reg != RZ), left, old, value);
    if (HAS(i, M_SPIN)) { /* whether it was swapped */
        uint32_t swapped = 0;
        EACH old[l] = old[l] == value[l], swapped |= (uint32_t)old[l] << l;
        if (is_predicate(&i->operand[0])) put_predicate(w, &i->operand[0], swapped, lanes);
    }
    if (!result) return;
    if (size == 8) put_wide(w, result, old, lanes);
    else put_part(w, result, 0, old, 0, lanes);
}
static void atomic(Machine *m, Warp *w, const Instruction *i, uint32_t lanes, enum Space space) {
    uint32_t count = HAS(i, M_V4) ? 4 : HAS(i, M_V2) ? 2 : 1;
    if (count > 1 && i->operand[1].kind == K_REG && i->operand[1].reg != RZ && i->op != O_RED) fail(m, UNKNOWN, "an atomic operation on a vector whose result is read");
    for (uint32_t word = 0; word < count; word++) atomic_word(m, w, i, lanes, space, word);
}
void op_RED(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { atomic(m, w, i, lanes, GLOBAL); }
void op_ATOMG(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { atomic(m, w, i, lanes, GLOBAL); }
void op_ATOM(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { atomic(m, w, i, lanes, GENERIC); }
void op_ATOMS(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { atomic(m, w, i, lanes, SHARED); }

/* ---- what the H100 copies by itself ---- */

/* Barriers in shared memory that wait for threads and for bytes: 64 bits that code of sm_100 writes itself. From the second lowest on:
 * how many threads arrive in a phase, bytes, how many have yet to come, and the phase; threads as 2^20 without them. */
static void arrive(Machine *m, uint8_t *barrier, uint64_t threads, int64_t bytes) {
    uint64_t v, most = (1 << 20) - 1, phase, expected, left;
    memcpy(&v, barrier, 8);
    phase = v >> 63, expected = -(v >> 1) & most, left = -(v >> 43) & most, bytes += (int64_t)(v << 21) >> 42;
    if (threads > left) fail(m, FAULT, "more threads arrive at a barrier of shared memory than it waits for");
    left -= threads;
    if (!left && !bytes) phase ^= 1, left = expected;
    v = (-expected & most) << 1 | ((uint64_t)bytes & 0x3FFFFF) << 21 | (-left & most) << 43 | phase << 63;
    memcpy(barrier, &v, 8);
    m->writes++;
}

void op_SYNCS(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *at = address_of(i);
    Wide address;
    Vector value;
    Wide made;
    uint32_t over = 0;
    if (HAS(i, M_CCTL)) return; /* a barrier, or all, are not used any more */
    addresses(m, w, at, SHARED, address);
    source(m, w, at + 1, value);
    if (HAS(i, M_EXCH)) lanes &= -lanes; /* of uniform registers, once */
    ACTIVE(lanes) {
        uint8_t *p = place(m, w, SHARED, address[l], l, 8);
        uint64_t v;
        if (HAS(i, M_EXCH)) source_wide(m, w, at + 1, made), memcpy(p, &made[l], 8);
        else if (HAS(i, M_ARRIVE)) arrive(m, p, 1, value[l]);
        else if (HAS(i, M_PHASECHK)) {
            memcpy(&v, p, 8);
            over |= (uint32_t)(v >> 63 != value[l] >> 31) << l;
        } else fail(m, UNKNOWN, "SYNCS of this kind");
    }
    if (!HAS(i, M_PHASECHK)) return;
    put_predicate(w, &i->operand[0], over, lanes);
    m->sleeps |= over != lanes;
}

/* From global to shared memory, done at once, by whichever lane; the barrier is told of the bytes. */
void op_UBLKCP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Wide to, from;
    Vector size;
    addresses(m, w, &i->operand[0], SHARED, to);
    addresses(m, w, &i->operand[1], GLOBAL, from);
    source(m, w, &i->operand[2], size);
    uint64_t barrier = w->uniform[i->operand[0].ureg + 1], bytes = (size[0] & 0xFFFF) * 16;
    int l = first_lane(lanes);
    m->launch->flags |= COPIES_LATER;
    for (uint64_t k = 0; k < bytes; k += 16) memcpy(place(m, w, SHARED, to[l] + k, l, 16), place(m, w, GLOBAL, from[l] + k, l, 16), 16);
    arrive(m, place(m, w, SHARED, barrier, l, 8), 0, -(int64_t)bytes);
}

/* Additions of what shared memory holds to global memory, one after the other. */
void op_UBLKRED(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Wide to, from;
    Vector size;
    addresses(m, w, &i->operand[0], GLOBAL, to);
    addresses(m, w, &i->operand[1], SHARED, from);
    source(m, w, &i->operand[2], size);
    int l = first_lane(lanes);
    m->launch->flags |= COPIES_LATER;
    for (uint64_t k = 0; k < (size[0] & 0xFFFF) * 16; k += 4) {
        uint32_t sum[1][LANES];
        uint8_t *at[LANES];
        Wide old = {0}, with = {0};
        memcpy(&with[l], place(m, w, SHARED, from[l] + k, l, 4), 4);
        at[l] = place(m, w, GLOBAL, to[l] + k, l, 4);
        memcpy(&old[l], at[l], 4);
        sum[0][l] = (uint32_t)combined(m, i, old[l], with[l], 4);
        memcpy(at[l], &sum[0][l], 4);
        m->writes += sum[0][l] != old[l];
        if (m->log) note(m, w, 1u << l, NULL, at, 4, ADDS_FLOATS, sum, old, with);
    }
}
