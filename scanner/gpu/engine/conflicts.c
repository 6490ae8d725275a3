/* The conflict log: accesses to one byte by different threads, at least one of which changes it, that nothing orders. A barrier of
 * the whole block orders what its threads did before and after; so does, in a warp, a WARPSYNC of all its lanes, and an instruction
 * that lanes execute together (compilers leave out a __syncwarp for that); the end of a launch orders everything; nothing else does.
 * So what it does not find cannot happen in any order of blocks, warps or lanes. */
#include "operands.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_CELLS = 1 << 20, FIRST_CELLS = 1 << 12 };

typedef struct { uint32_t block, thread, epoch, warp_epoch, line, kind, together; uint64_t value, old, step; } Access;

/* All accesses of one sort to a place since the launch began, as far as a later one needs to know of them: whether several blocks
 * were there, and of the last block, since its last barrier, whether several warps were, and which lanes of the last warp. */
enum Sort { READING, STORING, UPDATING, ADDING, SORTS };
typedef struct {
    Access last, before, far; /* the last by different threads, and the last by another warp than that, to be told */
    uint32_t block, epoch, warp, warp_epoch, lanes, together, kind;
    uint64_t step, bytes;
    bool any, blocks, warps, mixed; /* mixed: not all of one kind, or not all of the same bytes */
} Set;

typedef struct Cell {
    uint64_t key; /* its address, 0 where the slot is free */
    Set set[SORTS];
    uint32_t sample, last_kind;
    /* Of additions of floats that nothing orders: their number by scope, all magnitudes, and the last place of all terms. */
    uint32_t pairs[SCOPES], additions;
    double magnitude;
    int32_t unit;
    bool from_zero;
} Cell;

typedef struct Log {
    Cell *cells;
    uint64_t slots, held;
    uint32_t unit; /* bytes of a cell: the smallest access of the program */
} Log;

static bool commutes(uint32_t kind) { return kind >= ADDS && kind <= MAXIMA; }

void begin_log(Machine *m) {
    const Launch *launch = m->launch;
    uint32_t unit = 4;
    if (!launch->log) return;
    for (uint64_t k = 0; k < launch->instructions; k++) {
        const Instruction *i = &launch->program[k];
        bool accesses = i->op == O_LDG || i->op == O_LD || i->op == O_LDS || i->op == O_STG || i->op == O_ST || i->op == O_STS;
        if (!accesses) continue;
        if (HAS(i, M_U8) || HAS(i, M_S8)) unit = 1;
        else if ((HAS(i, M_U16) || HAS(i, M_S16)) && unit > 2) unit = 2;
    }
    m->log = calloc(1, sizeof *m->log);
    m->log->unit = unit;
    m->log->cells = calloc(m->log->slots = FIRST_CELLS, sizeof(Cell));
}

static Cell *slot_of(Log *log, uint64_t key) {
    for (uint64_t at = key * 0x9E3779B97F4A7C15ull >> 20;; at++) {
        Cell *c = &log->cells[at & (log->slots - 1)];
        if (!c->key || c->key == key) return c;
    }
}

static Cell *cell_of(Machine *m, uint64_t key) {
    Log *log = m->log;
    if (2 * log->held >= log->slots) {
        if (log->held >= MOST_CELLS) {
            m->launch->flags |= LOG_TOO_SMALL;
            return NULL;
        }
        Log larger = {calloc(2 * log->slots, sizeof(Cell)), 2 * log->slots, log->held, log->unit};
        if (!larger.cells) fail(m, UNKNOWN, "out of memory");
        for (uint64_t k = 0; k < log->slots; k++)
            if (log->cells[k].key) *slot_of(&larger, log->cells[k].key) = log->cells[k];
        free(log->cells);
        *log = larger;
    }
    Cell *c = slot_of(log, key);
    if (!c->key) c->key = key, log->held++, c->sample = ~0u, c->unit = 4096;
    return c;
}

/* Of two accesses by how little their threads differ, as a scope and one; 0: they are ordered. */
static int unordered(const Access *a, const Access *b) {
    if (a->block != b->block) return SCOPE_BLOCKS + 1;
    if (a->thread == b->thread || a->epoch != b->epoch) return 0;
    if (a->thread / LANES != b->thread / LANES) return SCOPE_WARPS + 1;
    /* Lanes that stand together execute an instruction as one, so that what either does at another is ordered with it. */
    bool together = a->step != b->step && (a->together >> b->thread % LANES & 1 || b->together >> a->thread % LANES & 1);
    return a->warp_epoch == b->warp_epoch && !together ? SCOPE_LANES + 1 : 0;
}

/* In which scopes an access is not ordered with some of a set; a bit a scope. Where a set does not tell, it is not. */
static uint32_t scopes_against(const Set *s, const Access *now) {
    uint32_t found = 0, lane = now->thread % LANES;
    if (!s->any) return 0;
    if (s->blocks || s->block != now->block) found |= 1u << SCOPE_BLOCKS;
    if (s->block != now->block || s->epoch != now->epoch) return found;
    if (s->warps || s->warp != now->thread / LANES) found |= 1u << SCOPE_WARPS;
    if (s->warp != now->thread / LANES || s->warp_epoch != now->warp_epoch) return found;
    uint32_t others = s->lanes & ~(1u << lane);
    bool ordered = s->step != now->step && (!(others & ~now->together) || s->together >> lane & 1);
    return others && !ordered ? found | 1u << SCOPE_LANES : found;
}

static void insert(Set *s, const Access *now, uint64_t bytes) {
    uint32_t warp = now->thread / LANES, bit = 1u << now->thread % LANES;
    bool same_block = s->any && s->block == now->block, same_time = same_block && s->epoch == now->epoch;
    bool same_warp = same_time && s->warp == warp && s->warp_epoch == now->warp_epoch;
    s->blocks |= s->any && !same_block;
    s->warps = same_time && (s->warps || s->warp != warp);
    /* What is behind a barrier of the only block there is no longer in conflict with anything. */
    if (!s->any || (!same_time && !s->blocks)) s->mixed = false;
    else s->mixed |= s->kind != now->kind || s->bytes != bytes;
    s->lanes = same_warp ? s->lanes | bit : bit;
    s->together = same_warp ? s->together & now->together : now->together;
    if (!s->any) s->before = s->far = *now;
    if (s->any && (s->last.block != now->block || s->last.thread != now->thread)) s->before = s->last;
    if (s->any && (s->last.block != now->block || s->last.thread / LANES != warp)) s->far = s->last;
    s->any = true, s->block = now->block, s->epoch = now->epoch, s->warp = warp, s->warp_epoch = now->warp_epoch;
    s->step = now->step, s->kind = now->kind, s->bytes = bytes, s->last = *now;
}

/* Whether two additions in the other order leave other bits behind; anything else that is in conflict may. */
static bool shows(const Machine *m, const Access *a, const Access *b) {
    if (a->kind != ADDS_FLOATS || b->kind != ADDS_FLOATS) return true;
    if (HAS(m->now, M_F64)) {
        double old = as_double(a->old), x = as_double(a->value), y = as_double(b->value);
        return bits_of_double(old + x + y) != bits_of_double(old + y + x);
    }
    float old = as_float((uint32_t)a->old), x = as_float((uint32_t)a->value), y = as_float((uint32_t)b->value);
    return !HAS(m->now, M_F32) || bits_of(old + x + y) != bits_of(old + y + x);
}

/* Of each place the last conflict that shows, of the threads that are furthest apart, is told: of writers it decides what memory holds in the end. */
static void tell(Machine *m, Cell *c, const Access *a, const Access *b, int scope) {
    Launch *launch = m->launch;
    bool showing = shows(m, a, b);
    if (c->sample == ~0u) {
        if (launch->sampled == launch->samples) return;
        c->sample = launch->sampled++;
    } else if (!showing || launch->sample[c->sample].scope < (uint32_t)scope) return;
    launch->sample[c->sample] = (Conflict){.address = c->key, .scope = (uint32_t)scope, .shows = showing, .kind = {a->kind, b->kind}, .block = {a->block, b->block},
        .thread = {a->thread, b->thread}, .line = {a->line, b->line}, .step = {a->step, b->step}, .value = {a->value, b->value}, .old = a->old};
}

static void compare(Machine *m, Cell *c, enum Sort sort, const Access *now, uint64_t bytes) {
    Launch *launch = m->launch;
    const Set *s = &c->set[sort];
    uint32_t scopes = scopes_against(s, now);
    if (!scopes) return;
    bool alike = !s->mixed && s->kind == now->kind;
    if ((alike && sort == UPDATING && commutes(now->kind)) || (alike && sort == STORING && s->bytes == bytes)) {
        launch->commuting++;
        return;
    }
    const Access *known[] = {&s->last, &s->before, &s->far}, *furthest = NULL;
    int scope = SCOPES;
    for (int k = 0; k < 3; k++) {
        int found = unordered(known[k], now) - 1;
        if (found >= 0 && found < scope) furthest = known[k], scope = found;
    }
    if (furthest) tell(m, c, furthest, now, scope);
    for (int k = 0; k < SCOPES; k++)
        if (scopes >> k & 1) {
            if (sort == ADDING && now->kind == ADDS_FLOATS) c->pairs[k]++;
            else launch->pairs[k]++;
        }
}

/* The exponent of the last place of a number that is set. */
static int last_place(double v) {
    if (v == 0) return 4096;
    if (!isfinite(v)) return -4096;
    int e;
    int64_t digits = (int64_t)ldexp(frexp(v, &e), 53);
    return e - 53 + __builtin_ctzll((uint64_t)digits);
}

static void add_term(Cell *c, double v) {
    int place = last_place(v);
    c->magnitude += fabs(v);
    if (place < c->unit) c->unit = place;
}

void note(Machine *m, const Warp *w, int lane, const void *at, int size, uint32_t kind, uint64_t old, uint64_t value) {
    if (!m->log || m->space == IN_LOCAL) return;
    uint32_t unit = m->log->unit, digits = m->now->op == O_RED || m->now->op == O_ATOM || m->now->op == O_ATOMG ? (size == 8 ? 53u : HAS(m->now, M_F32) ? 24u : 0u) : 0u;
    Access now = {w->block->index, w->first_thread + (uint32_t)lane, w->block->epoch, w->epoch, m->now->line, kind, m->together, value, old, w->steps};
    /* Blocks have shared memory each; their cells are told apart by what no address of the device has. */
    uint64_t base = m->space == IN_SHARED ? (1ull << 62 | (uint64_t)w->block->index << 24) + (uint64_t)((const uint8_t *)at - w->block->shared) : (uint64_t)at;
    enum Sort sort = kind == READS ? READING : kind == WRITES ? STORING : kind == ADDS_FLOATS ? ADDING : UPDATING;
    for (int k = 0; k < size; k += (int)unit) {
        Cell *c = cell_of(m, base + (uint64_t)k);
        uint64_t bytes = 0;
        if (!c) return;
        if (sort == STORING) memcpy(&bytes, (const uint8_t *)at + k, unit);
        if (sort == ADDING && !k) {
            double a = digits == 24 ? as_float((uint32_t)old) : as_double(old), b = digits == 24 ? as_float((uint32_t)value) : as_double(value);
            c->from_zero = !c->additions ? old == 0 : c->from_zero && c->last_kind == ADDS_FLOATS;
            if (!c->additions++ || c->last_kind != ADDS_FLOATS) add_term(c, digits ? a : NAN);
            add_term(c, digits ? b : NAN);
            /* A sum of them may need more digits, or be a denormal that is flushed. */
            if (c->magnitude >= ldexp(1, (int)digits + c->unit) || (HAS(m->now, M_FTZ) && c->unit < -126)) c->unit = -4096;
        }
        for (int other = 0; other < SORTS; other++)
            if (!(other == READING && sort == READING) && !(other == ADDING && sort == ADDING && k)) compare(m, c, (enum Sort)other, &now, bytes);
        insert(&c->set[sort], &now, bytes);
        if (sort != READING) c->last_kind = kind;
    }
}

/* Additions of floats are told when all are known: exact ones commute, and so do two onto zero. */
void end_log(Machine *m) {
    Launch *launch = m->launch;
    if (!m->log) return;
    for (uint64_t k = 0; k < m->log->slots; k++) {
        const Cell *c = &m->log->cells[k];
        uint64_t pairs = c->pairs[0] + c->pairs[1] + c->pairs[2];
        if (!pairs) continue;
        if (c->unit > -4096) launch->commuting += pairs;
        else if (c->additions == 2 && c->from_zero) launch->tame += pairs;
        else {
            for (int s = 0; s < SCOPES; s++) launch->pairs[s] += c->pairs[s];
            continue;
        }
        if (c->sample != ~0u) launch->sample[c->sample].scope = SCOPES;
    }
    free(m->log->cells);
    free(m->log);
}
