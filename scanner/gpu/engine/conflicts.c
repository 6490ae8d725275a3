/* The conflict log: accesses to one byte by different threads, at least one of which changes it, that nothing orders. A barrier of
 * the whole block orders what its threads did before and after; so does, in a warp, a WARPSYNC of all its lanes, and an instruction
 * that lanes execute together (compilers leave out a __syncwarp for that); the end of a launch orders everything; nothing else does.
 * So what it does not find cannot happen in any order of blocks, warps or lanes. */
#include "operands.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { MOST_CELLS = 1 << 20, PAGE = 256, FIRST_SLOTS = 1 << 10, CHUNK = 1 << 12, MOST_CHUNKS = 4 * MOST_CELLS / CHUNK, KEPT = 64 };

typedef struct {
    uint32_t block, epoch, warp_epoch, line, kind, together;
    uint64_t step;   /* up to here the same for all lanes */
    uint32_t thread;
    uint64_t value, old;
} Access;

/* All accesses of one sort to a place since the launch began, as far as a later one needs to know of them: whether several blocks
 * were there, and of the last block, since its last barrier, whether several warps were, and which lanes of the last warp. */
enum Sort { READING, STORING, UPDATING, ADDING, SORTS };
typedef struct {
    uint32_t block, epoch, warp, warp_epoch, lanes, together, kind;
    bool several, blocks, warps, mixed, ever; /* mixed: not all of one kind, or not all of the same bytes; ever: whatever barriers lie between */
    uint64_t step, bytes; /* bytes: what was stored; of what changes memory otherwise its type */
    Access last, before, far; /* the last by different threads, and the last by another warp than that, to be told; those of several */
} Set;

/* Of additions of floats that nothing orders: their number by scope, all magnitudes, and the last place of all terms. */
typedef struct {
    uint32_t pairs[SCOPES], additions, sample;
    double magnitude;
    uint64_t left; /* by the last of them */
    int32_t unit;
    bool from_zero;
} Sum;

/* Of one place, numbers of what is known of it, from 1 on: most places are read alone, or written once. */
typedef struct { uint32_t set[SORTS], sum, sample; } Cell;

/* Neighbouring places, found by their common number; 0 where the slot is free. */
typedef struct { uint64_t number; Cell cell[PAGE]; } Page;

/* It lives on from launch to launch, so that its memory need not be asked for again. */
typedef struct Log {
    Page **slot, **page, *last;
    Set *chunk[MOST_CHUNKS];
    Sum *sum;
    uint64_t slots, pages, page_room, held, sets, sums, sum_room;
    Access now; /* of the instruction that is executed, */
    uint64_t noted; /* which is the so manieth */
    uint32_t told[SCOPES]; /* conflicts that are told, of each scope so many at most that the others have room */
    uint32_t unit, shift; /* unit: bytes of a cell: the smallest access of the program, two to the power of shift */
} Log;
static Log *spare;

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
    Log *log = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQUIRE);
    if (!log) log = calloc(1, sizeof *log);
    if (log && !log->slot) log->slot = calloc(log->slots = FIRST_SLOTS, sizeof *log->slot);
    if (!log || !log->slot) fail(m, UNKNOWN, "out of memory");
    log->unit = unit, log->shift = (uint32_t)__builtin_ctz(unit), log->last = NULL, log->noted = 0;
    memset(log->told, 0, sizeof log->told);
    m->log = log;
}

/* Room for one more of what lies one after the other. */
static void *roomy(Machine *m, void *items, uint64_t *room, uint64_t count, size_t size) {
    if (count < *room) return items;
    *room = *room ? 2 * *room : 256;
    if (!(items = realloc(items, *room * size))) fail(m, UNKNOWN, "out of memory");
    return items;
}

static Page **slot_of(Log *log, uint64_t number) {
    for (uint64_t at = number * 0x9E3779B97F4A7C15ull >> 20;; at++) {
        Page **p = &log->slot[at & (log->slots - 1)];
        if (!*p || (*p)->number == number) return p;
    }
}

static Page *page_of(Machine *m, uint64_t number) {
    Log *log = m->log;
    Page **slot = slot_of(log, number);
    if (*slot) return *slot;
    if (2 * log->pages >= log->slots) {
        free(log->slot);
        if (!(log->slot = calloc(log->slots *= 2, sizeof *log->slot))) fail(m, UNKNOWN, "out of memory");
        for (uint64_t k = 0; k < log->pages; k++) *slot_of(log, log->page[k]->number) = log->page[k];
        slot = slot_of(log, number);
    }
    uint64_t room = log->page_room;
    log->page = roomy(m, log->page, &log->page_room, log->pages, sizeof *log->page);
    if (room < log->page_room) memset(log->page + room, 0, (log->page_room - room) * sizeof *log->page);
    Page *page = log->page[log->pages];
    if (!page && !(page = log->page[log->pages] = malloc(sizeof *page))) fail(m, UNKNOWN, "out of memory");
    memset(page, 0, sizeof *page);
    page->number = number;
    log->pages++;
    return *slot = page;
}

static Cell *cell_of(Machine *m, uint64_t place) {
    Log *log = m->log;
    if (!log->last || log->last->number != place / PAGE + 1) log->last = page_of(m, place / PAGE + 1);
    return &log->last->cell[place % PAGE];
}

static inline Set *set_of(const Log *log, uint32_t number) { return &log->chunk[(number - 1) / CHUNK][(number - 1) % CHUNK]; }

static Set *new_set(Machine *m, uint32_t *number) {
    Log *log = m->log;
    Set **chunk = &log->chunk[log->sets / CHUNK];
    if (!*chunk && !(*chunk = malloc(CHUNK * sizeof **chunk))) fail(m, UNKNOWN, "out of memory");
    *number = (uint32_t)++log->sets;
    return set_of(log, *number);
}

static Sum *sum_of(Machine *m, Cell *c) {
    Log *log = m->log;
    if (!c->sum) {
        log->sum = roomy(m, log->sum, &log->sum_room, log->sums, sizeof *log->sum);
        log->sum[log->sums] = (Sum){.unit = 4096};
        c->sum = (uint32_t)++log->sums;
    }
    return &log->sum[c->sum - 1];
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
    if (s->blocks || s->block != now->block) found |= 1u << SCOPE_BLOCKS;
    if (s->block != now->block || s->epoch != now->epoch) return found;
    if (s->warps || s->warp != now->thread / LANES) found |= 1u << SCOPE_WARPS;
    if (s->warp != now->thread / LANES || s->warp_epoch != now->warp_epoch) return found;
    uint32_t others = s->lanes & ~(1u << lane);
    bool ordered = s->step != now->step && (!(others & ~now->together) || s->together >> lane & 1);
    return others && !ordered ? found | 1u << SCOPE_LANES : found;
}

static void insert(Set *s, const Access *now, uint64_t bytes, bool first) {
    uint32_t warp = now->thread / LANES, bit = 1u << now->thread % LANES;
    if (first) {
        s->blocks = s->warps = s->mixed = s->ever = s->several = false;
        s->lanes = bit, s->together = now->together;
    } else {
        bool same_block = s->block == now->block, same_time = same_block && s->epoch == now->epoch;
        bool same_warp = same_time && s->warp == warp && s->warp_epoch == now->warp_epoch;
        s->blocks |= !same_block;
        s->warps = same_time && (s->warps || s->warp != warp);
        bool unlike = s->kind != now->kind || s->bytes != bytes;
        s->ever |= unlike;
        /* What lies before a barrier of the only block there is in conflict with none of its threads; with another block's it is. */
        s->mixed = (same_time || s->blocks) && (s->mixed || unlike);
        s->lanes = same_warp ? s->lanes | bit : bit;
        s->together = same_warp ? s->together & now->together : now->together;
        bool other = s->last.block != now->block || s->last.thread != now->thread;
        if (other || !s->several) s->before = s->last;
        if (!s->several || s->last.block != now->block || s->last.thread / LANES != warp) s->far = s->last;
        s->several = true;
    }
    s->block = now->block, s->epoch = now->epoch, s->warp = warp, s->warp_epoch = now->warp_epoch;
    s->step = now->step, s->kind = now->kind, s->bytes = bytes;
    memcpy(&s->last, now, offsetof(Access, thread));
    s->last.thread = now->thread, s->last.value = now->value, s->last.old = now->old;
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

/* Of each place the last conflict that shows, of the threads that are furthest apart, is told: of writers it decides what memory
 * holds in the end. Of additions one is, if there is one, that come one behind the other, so that nothing is swapped but they. */
enum { SHOWS = 1, ADJACENT = 2 };
static void tell(Machine *m, Cell *c, uint64_t address, const Access *a, const Access *b, int scope, bool adjacent) {
    Launch *launch = m->launch;
    bool showing = shows(m, a, b);
    uint32_t how = showing ? SHOWS | (adjacent && a->kind == ADDS_FLOATS ? ADJACENT : 0) : 0;
    bool full = m->log->told[scope] >= launch->samples / SCOPES;
    if (!c->sample) {
        if (launch->sampled == launch->samples || full) return;
        c->sample = ++launch->sampled;
    } else {
        const Conflict *known = &launch->sample[c->sample - 1];
        if (!showing || known->scope < (uint32_t)scope || (known->scope == (uint32_t)scope && known->shows > how)) return;
        if (known->scope != (uint32_t)scope && full) return;
        m->log->told[known->scope]--;
    }
    m->log->told[scope]++;
    launch->sample[c->sample - 1] = (Conflict){.address = address, .scope = (uint32_t)scope, .shows = how, .kind = {a->kind, b->kind}, .block = {a->block, b->block},
        .thread = {a->thread, b->thread}, .line = {a->line, b->line}, .step = {a->step, b->step}, .value = {a->value, b->value}, .old = a->old};
}

static void compare(Machine *m, Cell *c, uint64_t address, enum Sort sort, const Access *now, uint64_t bytes) {
    Launch *launch = m->launch;
    const Set *s = set_of(m->log, c->set[sort]);
    uint32_t scopes = scopes_against(s, now);
    if (!scopes) return;
    bool alike = !(scopes & 1u << SCOPE_BLOCKS ? s->ever : s->mixed) && s->kind == now->kind && s->bytes == bytes;
    if (alike && (sort == STORING || (sort == UPDATING && commutes(now->kind)))) {
        launch->commuting++;
        return;
    }
    const Access *known[] = {&s->last, &s->before, &s->far}, *furthest = NULL;
    int scope = SCOPES;
    for (int k = 0; k < (s->several ? 3 : 1); k++) {
        int found = unordered(known[k], now) - 1;
        if (found >= 0 && found < scope) furthest = known[k], scope = found;
    }
    if (furthest) tell(m, c, address, furthest, now, scope, furthest == &s->last);
    for (int k = 0; k < SCOPES; k++)
        if (scopes >> k & 1) {
            if (sort == ADDING && alike) sum_of(m, c)->pairs[k]++;
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

static void add_term(Sum *s, double v) {
    int place = last_place(v);
    s->magnitude += fabs(v);
    if (place < s->unit) s->unit = place;
}

/* What an instruction takes that which it changes for: only what is of one type commutes. */
static uint64_t type_of(const Instruction *i, uint32_t kind, int size) {
    bool below_zero = (kind == MINIMA || kind == MAXIMA) && (HAS(i, M_S32) || HAS(i, M_S64));
    return (uint64_t)size | (uint64_t)below_zero << 8 | (uint64_t)HAS(i, M_F32) << 9 | (uint64_t)HAS(i, M_FTZ) << 10;
}

/* The first time that a marked access is made; lanes of one instruction come in the order in which it makes them. */
static void find_mark(Machine *m, const Warp *w, int lane, uint64_t old, uint64_t value) {
    Launch *launch = m->launch;
    for (uint64_t k = w->mark; k < launch->marks && launch->mark[k].step == w->steps && launch->mark[k].block == w->block->index; k++) {
        Mark *one = &launch->mark[k];
        if (one->thread == w->first_thread + (uint32_t)lane && one->line == m->now->line && !one->turn)
            one->turn = ++m->turn, one->value = value, one->old = old;
    }
}

void note(Machine *m, const Warp *w, int lane, const void *at, int size, uint32_t kind, uint64_t old, uint64_t value) {
    if (m->marked && m->space != IN_LOCAL) find_mark(m, w, lane, old, value);
    Log *log = m->log;
    if (!log || m->space == IN_LOCAL) return;
    uint32_t unit = log->unit;
    Access *now = &log->now;
    if (log->noted != m->launch->steps) {
        log->noted = m->launch->steps;
        *now = (Access){w->block->index, w->block->epoch, w->epoch, m->now->line, kind, m->together, w->steps, 0, 0, 0};
    }
    now->thread = w->first_thread + (uint32_t)lane, now->value = value, now->old = old;
    /* Blocks have shared memory each; their cells are told apart by what no address of the device has. */
    uint64_t base = m->space == IN_SHARED ? (1ull << 62 | (uint64_t)w->block->index << 24) + (uint64_t)((const uint8_t *)at - w->block->shared) : (uint64_t)at;
    enum Sort sort = kind == READS ? READING : kind == WRITES ? STORING : kind == ADDS_FLOATS ? ADDING : UPDATING;
    for (int k = 0; k < size; k += (int)unit) {
        uint64_t address = base + (uint64_t)k, bytes = sort == UPDATING || sort == ADDING ? type_of(m->now, kind, size) : 0;
        Cell *c = cell_of(m, address >> log->shift);
        bool blank = !(c->set[READING] | c->set[STORING] | c->set[UPDATING] | c->set[ADDING]);
        if (blank && log->held >= MOST_CELLS) {
            m->launch->flags |= LOG_TOO_SMALL;
            return;
        }
        log->held += blank;
        if (sort == STORING) memcpy(&bytes, (const uint8_t *)at + k, unit);
        const Set *added = sort == ADDING && c->set[ADDING] ? set_of(log, c->set[ADDING]) : NULL;
        bool same_type = !added || (added->bytes == bytes && !added->ever);
        if (sort == ADDING && !k) {
            uint32_t digits = m->now->op == O_RED || m->now->op == O_ATOM || m->now->op == O_ATOMG || m->now->op == O_UBLKRED ? (size == 8 ? 53u : HAS(m->now, M_F32) ? 24u : 0u) : 0u;
            double a = digits == 24 ? as_float((uint32_t)old) : as_double(old), b = digits == 24 ? as_float((uint32_t)value) : as_double(value);
            Sum *s = sum_of(m, c);
            bool on = s->additions && old == s->left; /* nothing else has changed any byte of it */
            s->from_zero = !s->additions++ ? old == 0 : s->from_zero && on;
            if (!on) add_term(s, digits ? a : NAN);
            add_term(s, digits && same_type ? b : NAN);
            s->left = 0;
            memcpy(&s->left, at, (size_t)size);
            /* A sum of them may need more digits, be too large, or be a denormal that is flushed. */
            if (s->magnitude >= ldexp(1, (int)digits + s->unit) || (digits == 24 && s->magnitude > (double)FLT_MAX) || (HAS(m->now, M_FTZ) && s->unit < -126)) s->unit = -4096;
        }
        for (int other = 0; other < SORTS && !blank; other++)
            if (c->set[other] && !(other == READING && sort == READING) && !(other == ADDING && sort == ADDING && k && same_type)) compare(m, c, address, (enum Sort)other, now, bytes);
        bool first = !c->set[sort];
        insert(first ? new_set(m, &c->set[sort]) : set_of(log, c->set[sort]), now, bytes, first);
        if (c->sum) log->sum[c->sum - 1].sample = c->sample;
    }
}

/* Additions of floats are told when all are known: exact ones commute, and so do two onto zero. */
void end_log(Machine *m) {
    Launch *launch = m->launch;
    Log *log = m->log;
    if (!log) return;
    for (uint64_t k = 0; k < log->sums; k++) {
        const Sum *s = &log->sum[k];
        uint64_t pairs = (uint64_t)s->pairs[0] + s->pairs[1] + s->pairs[2];
        if (!pairs) continue;
        if (s->unit > -4096) launch->commuting += pairs;
        else if (s->additions == 2 && s->from_zero) launch->tame += pairs;
        else {
            for (int n = 0; n < SCOPES; n++) launch->pairs[n] += s->pairs[n];
            continue;
        }
        if (s->sample) launch->sample[s->sample - 1].scope = SCOPES;
    }
    /* What is more than most launches take is given back. */
    for (uint64_t k = KEPT; k < MOST_CHUNKS && log->chunk[k]; k++) free(log->chunk[k]), log->chunk[k] = NULL;
    for (uint64_t k = KEPT * CHUNK / PAGE; k < log->pages; k++) free(log->page[k]), log->page[k] = NULL;
    memset(log->slot, 0, log->slots * sizeof *log->slot);
    log->pages = log->held = log->sets = log->sums = 0;
    log = __atomic_exchange_n(&spare, log, __ATOMIC_RELEASE);
    if (!log) return;
    for (uint64_t k = 0; k < MOST_CHUNKS; k++) free(log->chunk[k]);
    for (uint64_t k = 0; k < log->page_room; k++) free(log->page[k]);
    free(log->slot), free(log->page), free(log->sum), free(log);
}
