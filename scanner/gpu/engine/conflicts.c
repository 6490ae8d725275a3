/* The conflict log: accesses to one byte by different threads, at least one of which changes it, that nothing orders. A barrier of
 * the whole block orders what its threads did before and after; so does, in a warp, a WARPSYNC of all its lanes, and an instruction
 * that lanes execute together (compilers leave out a __syncwarp for that); the end of a launch orders everything; nothing else does.
 * So what it does not find cannot happen in any order of blocks, warps or lanes. */
#include "operands.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_CELLS = 1 << 20, PAGE = 256, FIRST_SLOTS = 1 << 10, FIRST_ACCESSES = 1 << 16, KEPT = 1 << 12 };

/* What lanes of a warp did in one instruction. */
typedef struct {
    uint32_t block, epoch, warp, warp_epoch, line, kind, together, whole; /* whole: no lane of the warp stood elsewhere */
    uint64_t step, type, values; /* type: of what changes memory otherwise than by a store; values: where those of lane 0 would be */
} Access;

/* What one lane did has a number: that of the access, and five bits of the lane below it; 0 where there is none. */

/* All accesses of one sort to a place since the launch began, as far as a later one needs to know of them: whether several blocks
 * were there, and of the last block, since its last barrier, whether several warps were, and which lanes of the last warp. */
enum Sort { READING, STORING, UPDATING, ADDING, SORTS };
typedef struct {
    uint32_t lanes, together, last, before, far; /* the last by different threads, and the last by another warp than that, to be told */
    bool several, blocks, warps, mixed, ever; /* several: before and far are known; mixed: not all of one kind, or not all of the same bytes; ever: whatever barriers lie between */
} Set;

/* Of additions of floats that nothing orders: their number by scope, all magnitudes, and the last place of all terms. */
typedef struct {
    uint32_t pairs[SCOPES], additions, sample;
    double magnitude;
    uint64_t left; /* by the last of them */
    int32_t unit;
    bool from_zero;
} Sum;

/* Neighbouring places. Of most all that need be known of a sort is one access: its lane stands there, with LATER where others came
 * before it that a barrier orders with all that may come. Else the number of a set does. */
enum { IS_SET = 1u << 31, LATER = 1 << 30 };
typedef struct Page {
    uint64_t number; /* what their addresses have in common; NO_ADDRESS: in shared memory; 0: of nobody */
    struct Page *next;
    bool rare;                           /* whether what stands below them is in use */
    uint32_t known[SORTS][PAGE];         /* of those that read and store, and */
    uint32_t sum[PAGE], sample[PAGE];    /* of rarer ones; from 1 on */
    uint32_t stored[PAGE];               /* bytes of the last store */
} Page;
static const uint64_t NO_ADDRESS = ~0ull;

/* It lives on from launch to launch, so that its memory need not be asked for again. */
typedef struct Log {
    Page **slot, **page, *last, *free;
    Access *access;
    uint64_t *value;
    Set *set;
    Sum *sum;
    uint64_t slots, pages, page_room, held, sets, set_room, sums, sum_room, accesses, access_room, most_accesses, values, value_room;
    uint32_t free_set, told[SCOPES]; /* conflicts that are told, of each scope so many at most that the others have room */
    uint32_t unit, shift; /* unit: bytes of a cell: the smallest access of the program, two to the power of shift */
} Log;
static Log *spare;

static bool commutes(uint32_t kind) { return kind >= ADDS && kind <= MAXIMA; }
static double power_of_two(int e) { return e > 1023 ? INFINITY : e >= -1022 ? as_double((uint64_t)(e + 1023) << 52) : 0; }

void begin_log(Machine *m) {
    const Launch *launch = m->launch;
    uint32_t unit = 4;
    if (!launch->log) return;
    for (uint64_t k = 0; k < launch->instructions; k++) {
        const Instruction *i = &launch->program[k];
        if (i->op != O_LDG && i->op != O_LD && i->op != O_LDS && i->op != O_STG && i->op != O_ST && i->op != O_STS) continue;
        if (HAS(i, M_U8) || HAS(i, M_S8)) unit = 1;
        else if ((HAS(i, M_U16) || HAS(i, M_S16)) && unit > 2) unit = 2;
    }
    Log *log = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQUIRE);
    if (!log) log = calloc(1, sizeof *log);
    if (log && !log->slot) log->slot = calloc(log->slots = FIRST_SLOTS, sizeof *log->slot);
    if (!log || !log->slot) fail(m, UNKNOWN, "out of memory");
    log->unit = unit, log->shift = (uint32_t)__builtin_ctz(unit), log->last = log->free = NULL, log->accesses = 1, log->most_accesses = FIRST_ACCESSES;
    log->free_set = log->told[SCOPE_BLOCKS] = log->told[SCOPE_WARPS] = log->told[SCOPE_LANES] = 0;
    m->log = log;
}

/* Room for so many more of what lies one after the other. */
static void *roomy(Machine *m, void *items, uint64_t *room, uint64_t count, size_t size) {
    if (count < *room) return items;
    uint64_t more = *room ? 2 * *room : 256;
    if (!(items = realloc(items, more * size))) fail(m, UNKNOWN, "out of memory");
    *room = more; /* not before: another launch takes over a log that is as it was */
    return items;
}

static Page **slot_of(Log *log, uint64_t number) {
    for (uint64_t at = number * 0x9E3779B97F4A7C15ull >> 20;; at++) {
        Page **p = &log->slot[at & (log->slots - 1)];
        if (!*p || (*p)->number == number) return p;
    }
}

static Page *new_page(Machine *m, uint64_t number) {
    Log *log = m->log;
    Page *page = log->free;
    if (page) log->free = page->next;
    else {
        uint64_t room = log->page_room;
        log->page = roomy(m, log->page, &log->page_room, log->pages, sizeof *log->page);
        if (room < log->page_room) memset(log->page + room, 0, (log->page_room - room) * sizeof *log->page);
        page = log->page[log->pages];
        if (!page && !(page = log->page[log->pages] = malloc(sizeof *page))) fail(m, UNKNOWN, "out of memory");
        log->pages++;
    }
    memset(page->known, 0, UPDATING * sizeof *page->known);
    page->rare = false, page->number = number;
    return page;
}

static Page *page_of(Machine *m, uint64_t number) {
    Log *log = m->log;
    if (log->last && log->last->number == number) return log->last;
    Page **slot = slot_of(log, number);
    if (!*slot) {
        if (2 * log->pages >= log->slots) {
            Page **more = calloc(2 * log->slots, sizeof *more);
            if (!more) fail(m, UNKNOWN, "out of memory");
            free(log->slot), log->slot = more, log->slots *= 2;
            for (uint64_t k = 0; k < log->pages; k++)
                if (log->page[k]->number && log->page[k]->number != NO_ADDRESS) *slot_of(log, log->page[k]->number) = log->page[k];
            slot = slot_of(log, number);
        }
        *slot = new_page(m, number);
    }
    return log->last = *slot;
}

/* Places of shared memory, which no block has in common with others: when it has ended, nobody asks for them. */
static Page *shared_page(Machine *m, Block *b, uint64_t number) {
    if (!b->known && !(b->known = calloc((m->launch->shared >> m->log->shift) / PAGE + 1, sizeof *b->known))) fail(m, UNKNOWN, "out of memory");
    return b->known[number] ? b->known[number] : (b->known[number] = new_page(m, NO_ADDRESS));
}

static inline Access *access_of(const Log *log, uint32_t one) { return &log->access[(one & ~LATER) / LANES]; }

/* Of two accesses by how little their threads differ, as a scope and one; 0: they are ordered. */
static inline int unordered(const Log *log, uint32_t one, uint32_t other) {
    const Access *a = access_of(log, one), *b = access_of(log, other);
    if (a->block != b->block) return SCOPE_BLOCKS + 1;
    if (a->epoch != b->epoch) return 0;
    if (a->warp != b->warp) return SCOPE_WARPS + 1;
    /* Lanes that stand together execute an instruction as one, so that what either does at another is ordered with it. */
    bool together = a->step != b->step && (a->together >> other % LANES & 1 || b->together >> one % LANES & 1);
    return one % LANES != other % LANES && a->warp_epoch == b->warp_epoch && !together ? SCOPE_LANES + 1 : 0;
}

/* Whether of two accesses of one sort the later one is all that need be known, since who is not ordered with the first is not with
 * it: a barrier lies between them and no other block will ask, or the same thread reads again. */
static inline bool stands_for(const Log *log, uint32_t one, uint32_t now, enum Sort sort, bool shared) {
    const Access *a = access_of(log, one), *b = access_of(log, now);
    if (a->block != b->block) return false;
    if (a->epoch != b->epoch) return sort == READING || shared;
    return sort == READING && one % LANES == now % LANES && a->warp == b->warp && a->warp_epoch == b->warp_epoch && a->whole && b->whole;
}

/* What is said of one access beside that of its others. */
static Set set_of(const Log *log, uint32_t known) {
    if (known & IS_SET) return log->set[known & ~IS_SET];
    return (Set){.last = known & ~LATER, .lanes = 1u << known % LANES, .together = access_of(log, known)->together, .several = known & LATER};
}

/* In which scopes an access is not ordered with some of a set; a bit a scope. Where a set does not tell, it is not. */
static uint32_t scopes_against(const Log *log, const Set *s, const Access *now, uint32_t lane) {
    const Access *last = access_of(log, s->last);
    uint32_t found = 0;
    if (s->blocks || last->block != now->block) found |= 1u << SCOPE_BLOCKS;
    if (last->block != now->block || last->epoch != now->epoch) return found;
    if (s->warps || last->warp != now->warp) found |= 1u << SCOPE_WARPS;
    if (last->warp != now->warp || last->warp_epoch != now->warp_epoch) return found;
    uint32_t others = s->lanes & ~(1u << lane);
    bool ordered = last->step != now->step && (!(others & ~now->together) || s->together >> lane & 1);
    return others && !ordered ? found | 1u << SCOPE_LANES : found;
}

static Set *new_set(Machine *m, uint32_t *known) {
    Log *log = m->log;
    Set first = set_of(log, *known);
    log->set = roomy(m, log->set, &log->set_room, log->sets, sizeof *log->set);
    *known = log->free_set ? log->free_set : (uint32_t)log->sets++ | IS_SET;
    Set *s = &log->set[*known & ~IS_SET];
    log->free_set = log->free_set ? s->last : 0;
    *s = first;
    return s;
}

static void insert(Machine *m, Page *page, uint32_t i, enum Sort sort, uint32_t one, uint64_t bytes) {
    Log *log = m->log;
    uint32_t *known = &page->known[sort][i];
    const Access *now = access_of(log, one);
    if (!*known) { *known = one; return; }
    Set *s = *known & IS_SET ? &log->set[*known & ~IS_SET] : NULL;
    uint32_t before = s ? s->last : *known;
    const Access *last = access_of(log, before);
    bool same_block = last->block == now->block, same_time = same_block && last->epoch == now->epoch;
    if ((!s || (!s->blocks && !same_time)) && stands_for(log, before, one, sort, page->number == NO_ADDRESS)) {
        *known = s || !same_time || *known & LATER ? one | LATER : one;
        if (s) s->last = log->free_set, log->free_set = (uint32_t)(s - log->set) | IS_SET;
        return;
    }
    if (!s) s = new_set(m, known);
    bool same_warp = same_time && last->warp == now->warp && last->warp_epoch == now->warp_epoch;
    s->blocks |= !same_block;
    s->warps = same_time && (s->warps || last->warp != now->warp);
    bool unlike = last->kind != now->kind || (sort == STORING ? page->stored[i] : last->type) != bytes;
    s->ever |= unlike;
    /* What lies before a barrier of the only block there is in conflict with none of its threads; with another block's it is. */
    s->mixed = (same_time || s->blocks) && (s->mixed || unlike);
    s->lanes = (same_warp ? s->lanes : 0) | 1u << one % LANES;
    s->together = same_warp ? s->together & now->together : now->together;
    bool other_warp = !same_block || last->warp != now->warp;
    if (other_warp || s->last % LANES != one % LANES || !s->several) s->before = s->last;
    if (other_warp || !s->several) s->far = s->last;
    s->several = true, s->last = one;
}

void forget_shared(Machine *m, Block *b) {
    for (uint64_t k = 0; b->known && m->log && k <= (m->launch->shared >> m->log->shift) / PAGE; k++) {
        Page *page = b->known[k];
        if (page) page->number = 0, page->next = m->log->free, m->log->free = page;
    }
    free(b->known);
}

/* What is not in use of a page until it is asked for. */
static void rare_of(Page *page) {
    if (!page->rare) memset(page->known[UPDATING], 0, (SORTS - UPDATING) * sizeof *page->known + sizeof page->sum + sizeof page->sample);
    page->rare = true;
}

static Sum *sum_of(Machine *m, Page *page, uint32_t i) {
    Log *log = m->log;
    if (!page->sum[i]) {
        log->sum = roomy(m, log->sum, &log->sum_room, log->sums, sizeof *log->sum);
        log->sum[log->sums] = (Sum){.unit = 4096};
        page->sum[i] = (uint32_t)++log->sums;
    }
    return &log->sum[page->sum[i] - 1];
}

/* Of an access these numbers are kept: what each lane wrote; or what it brought, and what it found. */
enum { NEW, OLD };
static uint32_t kept_values(uint32_t kind) { return kind == READS ? 0 : kind == WRITES ? LANES : 2 * LANES; }
static uint64_t value_of(const Log *log, uint32_t one, int which) {
    const Access *a = access_of(log, one);
    return a->kind < WRITES + (uint32_t)which ? 0 : log->value[a->values + (one % LANES) * (a->kind == WRITES ? 1 : 2) + (uint32_t)which];
}

/* Whether two additions in the other order leave other bits behind; anything else that is in conflict may. */
static bool shows(const Machine *m, uint32_t one, uint32_t other) {
    const Log *log = m->log;
    if (access_of(log, one)->kind != ADDS_FLOATS || access_of(log, other)->kind != ADDS_FLOATS) return true;
    uint64_t old = value_of(log, one, OLD), x = value_of(log, one, NEW), y = value_of(log, other, NEW);
    if (HAS(m->now, M_F64)) return bits_of_double(as_double(old) + as_double(x) + as_double(y)) != bits_of_double(as_double(old) + as_double(y) + as_double(x));
    float from = as_float((uint32_t)old), a = as_float((uint32_t)x), b = as_float((uint32_t)y);
    return !HAS(m->now, M_F32) || bits_of(from + a + b) != bits_of(from + b + a);
}

/* Of each place the last conflict that shows, of the threads that are furthest apart, is told: of writers it decides what memory
 * holds in the end. Of additions one is, if there is one, that come one behind the other, so that nothing is swapped but they. */
enum { SHOWS = 1, ADJACENT = 2 };
static void tell(Machine *m, uint32_t *number, uint64_t address, uint32_t one, uint32_t other, uint32_t scope, bool adjacent) {
    Launch *launch = m->launch;
    Log *log = m->log;
    Conflict *known = *number ? &launch->sample[*number - 1] : NULL;
    bool full = log->told[scope] >= launch->samples / SCOPES;
    if (known ? known->scope < scope || (known->scope != scope && full) : launch->sampled == launch->samples || full) return;
    const Access *a = access_of(log, one), *b = access_of(log, other);
    bool showing = shows(m, one, other);
    uint32_t how = showing ? SHOWS | (adjacent && a->kind == ADDS_FLOATS ? ADJACENT : 0) : 0;
    if (known) {
        if (!showing || (known->scope == scope && known->shows > how)) return;
        log->told[known->scope]--;
    } else known = &launch->sample[(*number = ++launch->sampled) - 1];
    log->told[scope]++;
    *known = (Conflict){.address = address, .scope = scope, .shows = how, .kind = {a->kind, b->kind}, .block = {a->block, b->block},
        .thread = {a->warp * LANES + one % LANES, b->warp * LANES + other % LANES}, .line = {a->line, b->line}, .step = {a->step, b->step},
        .value = {value_of(log, one, NEW), value_of(log, other, NEW)}, .old = value_of(log, one, OLD)};
}

static void compare(Machine *m, Page *page, uint32_t i, uint64_t address, enum Sort sort, uint32_t one, uint64_t bytes) {
    Launch *launch = m->launch;
    Log *log = m->log;
    Set s = set_of(log, page->known[sort][i]);
    const Access *now = access_of(log, one), *last = access_of(log, s.last);
    uint32_t scopes = scopes_against(log, &s, now, one % LANES);
    if (!scopes) return;
    bool alike = !(scopes & 1u << SCOPE_BLOCKS ? s.ever : s.mixed) && last->kind == now->kind && (sort == STORING ? page->stored[i] : last->type) == bytes;
    if (alike && (sort == STORING || (sort == UPDATING && commutes(now->kind)))) {
        launch->commuting++;
        return;
    }
    uint32_t known[] = {s.last, s.before, s.far}, furthest = 0;
    int scope = SCOPES;
    for (int k = 0; k < (s.several ? 3 : 1); k++) {
        int found = known[k] ? unordered(log, known[k], one) - 1 : -1;
        if (found >= 0 && found < scope) furthest = known[k], scope = found;
    }
    rare_of(page);
    if (furthest) tell(m, &page->sample[i], address, furthest, one, (uint32_t)scope, furthest == s.last);
    for (int k = 0; k < SCOPES; k++)
        if (scopes >> k & 1) {
            if (sort == ADDING && alike) sum_of(m, page, i)->pairs[k]++;
            else launch->pairs[k]++;
        }
}

/* The exponent of the last place of a number that is set. */
static int last_place(double v) {
    if (v == 0) return 4096;
    if (!isfinite(v)) return -4096;
    uint64_t bits = bits_of_double(v), exponent = bits >> 52 & 0x7FF;
    return (int)(exponent ? exponent : 1) - 1075 + __builtin_ctzll(exponent ? bits | 1ull << 52 : bits);
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

/* What a lane left at a place. */
static inline uint32_t bytes_at(const uint32_t (*left)[LANES], uint32_t lane, uint32_t k, uint32_t unit) { return left[k * unit / 4][lane] >> k * unit % 4 * 8 & ~0u >> (32 - 8 * unit); }
static inline uint64_t stored_value(const uint32_t (*left)[LANES], uint32_t lane, int size) { return left[0][lane] ^ (size > 4 ? (uint64_t)left[1][lane] << 32 : 0); }

/* Keep of all accesses those that are still known somewhere, with new numbers in their order. */
static void forget(Machine *m) {
    Log *log = m->log;
    uint32_t *number = calloc(log->accesses, sizeof *number);
    uint64_t kept = 1, values = 0;
    if (!number) fail(m, UNKNOWN, "out of memory");
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t p = 0; p < log->pages; p++)
            for (uint32_t k = 0; log->page[p]->number && k < (log->page[p]->rare ? SORTS : UPDATING) * PAGE; k++) {
                uint32_t *known = &log->page[p]->known[k / PAGE][k % PAGE];
                Set *s = *known & IS_SET ? &log->set[*known & ~IS_SET] : NULL;
                uint32_t *all[] = {s ? &s->last : known, s ? &s->before : known, s ? &s->far : known};
                for (int n = 0; n < (s ? 3 : 1); n++) {
                    uint32_t *to = &number[(*all[n] & ~LATER) / LANES];
                    if (pass) *all[n] = *to * LANES | (*all[n] & (LATER | (LANES - 1)));
                    else *to = *all[n] != 0;
                }
            }
        for (uint64_t k = 1; !pass && k < log->accesses; k++) {
            if (!number[k]) continue;
            Access *a = &log->access[kept];
            *a = log->access[k], number[k] = (uint32_t)kept++;
            memmove(log->value + values, log->value + a->values, kept_values(a->kind) * sizeof *log->value);
            a->values = values, values += kept_values(a->kind);
        }
    }
    free(number);
    log->accesses = kept, log->values = values, log->most_accesses = FIRST_ACCESSES + 2 * kept + log->held / 4;
}

/* The number of a new access; `left`, of stores, is what they wrote. */
static uint32_t new_access(Machine *m, const Warp *w, uint32_t kind, int size, const uint32_t (*left)[LANES], const uint64_t *old, const uint64_t *value) {
    Log *log = m->log;
    if (log->accesses >= log->most_accesses) forget(m);
    log->access = roomy(m, log->access, &log->access_room, log->accesses, sizeof *log->access);
    log->value = roomy(m, log->value, &log->value_room, log->values + 2 * LANES, sizeof *log->value);
    uint64_t *to = log->value + log->values;
    log->access[log->accesses] = (Access){w->block->index, w->block->epoch, w->index, w->epoch, m->now->line, kind, m->together, m->together == w->alive, w->steps,
        kind > WRITES ? type_of(m->now, kind, size) : 0, log->values};
    if (kind == WRITES) EACH to[l] = stored_value(left, (uint32_t)l, size);
    else if (kind != READS) EACH to[2 * l] = value[l], to[2 * l + 1] = old[l];
    log->values += kept_values(kind);
    return (uint32_t)log->accesses++;
}

/* Add a float to what is known of the sum at a place. */
static void add(Machine *m, Page *page, uint32_t i, int size, bool same_type, uint64_t old, uint64_t value, uint64_t left) {
    uint32_t digits = m->now->op == O_RED || m->now->op == O_ATOM || m->now->op == O_ATOMG || m->now->op == O_UBLKRED ? (size == 8 ? 53u : HAS(m->now, M_F32) ? 24u : 0u) : 0u;
    double a = digits == 24 ? as_float((uint32_t)old) : as_double(old), b = digits == 24 ? as_float((uint32_t)value) : as_double(value);
    Sum *s = sum_of(m, page, i);
    bool on = s->additions && old == s->left; /* nothing else has changed any byte of it */
    s->from_zero = !s->additions++ ? old == 0 : s->from_zero && on;
    if (!on) add_term(s, digits ? a : NAN);
    add_term(s, digits && same_type ? b : NAN);
    s->left = left;
    /* A sum of them may need more digits, be too large, or be a denormal that is flushed. */
    if (s->magnitude >= power_of_two((int)digits + s->unit) || (digits == 24 && s->magnitude > (double)FLT_MAX) || (HAS(m->now, M_FTZ) && s->unit < -126)) s->unit = -4096;
}

/* One place, of which others are known: whether there was room to note it. */
static bool note_place(Machine *m, Page *page, uint32_t i, uint64_t address, uint32_t one, int k, int size, enum Sort sort, uint64_t bytes, uint64_t left) {
    Log *log = m->log;
    if (sort >= UPDATING) rare_of(page);
    int sorts = page->rare ? SORTS : UPDATING;
    uint32_t others = 0;
    for (int other = 0; other < sorts; other++) others |= page->known[other][i];
    if (!others && log->held >= MOST_CELLS) return m->launch->flags |= LOG_TOO_SMALL, false;
    log->held += !others;
    bool same_type = true;
    if (sort == ADDING && page->known[ADDING][i]) {
        Set added = set_of(log, page->known[ADDING][i]);
        same_type = access_of(log, added.last)->type == bytes && !added.ever;
    }
    if (sort == ADDING && !k) add(m, page, i, size, same_type, value_of(log, one, OLD), value_of(log, one, NEW), left);
    for (int other = 0; other < sorts; other++)
        if (page->known[other][i] && !(other == READING && sort == READING) && !(other == ADDING && sort == ADDING && k && same_type)) compare(m, page, i, address, (enum Sort)other, one, bytes);
    insert(m, page, i, sort, one, bytes);
    if (sort == STORING) page->stored[i] = (uint32_t)bytes;
    if (page->rare && page->sum[i]) log->sum[page->sum[i] - 1].sample = page->sample[i];
    return true;
}

/* Some neighbouring places that one lane reads or stores to, of which one access of a sort is known at most, the same of all, and
 * nothing that it is in conflict with. Whether that is so. */
static inline bool note_run(Log *log, Page *page, uint32_t i, uint32_t count, uint32_t one, enum Sort sort, const uint32_t (*left)[LANES]) {
    uint32_t *reads = &page->known[READING][i], *stores = &page->known[STORING][i], read = *reads, store = *stores, others = 0;
    for (uint32_t k = 1; k < count; k++) others |= (reads[k] ^ read) | (stores[k] ^ store);
    if (page->rare) for (uint32_t k = 0; k < count; k++) others |= page->known[UPDATING][i + k] | page->known[ADDING][i + k];
    if (others || (read | store) & IS_SET || (!(read | store) && log->held + count > MOST_CELLS)) return false;
    if (store && unordered(log, store, one)) return false;
    if (sort == STORING && read && unordered(log, read, one)) return false;
    uint32_t known = sort == STORING ? store : read, *at = sort == STORING ? stores : reads;
    if (known && !stands_for(log, known, one, sort, page->number == NO_ADDRESS)) return false;
    if (!(read | store)) log->held += count;
    if (known && (known & LATER || access_of(log, known)->epoch != access_of(log, one)->epoch)) one |= LATER;
    for (uint32_t k = 0; k < count; k++) at[k] = one;
    if (sort == STORING) for (uint32_t k = 0; k < count; k++) page->stored[i + k] = bytes_at(left, one % LANES, k, log->unit);
    return true;
}

/* Tell accesses of lanes, in their order, to the marks that look for them, and to the log. `left`: words that they left behind. */
void note(Machine *m, const Warp *w, uint32_t lanes, const uint8_t order[LANES], uint8_t *const at[LANES], int size, uint32_t kind, const uint32_t (*left)[LANES], const uint64_t *old, const uint64_t *value) {
    Log *log = m->log;
    Block *b = w->block;
    enum Sort sort = kind == READS ? READING : kind == WRITES ? STORING : kind == ADDS_FLOATS ? ADDING : UPDATING;
    uint32_t number = log ? new_access(m, w, kind, size, left, old, value) * LANES : 0, unit = log ? log->unit : 1, count = (uint32_t)size / unit;
    for (int n = 0; n < LANES; n++) {
        uint32_t lane = order ? order[n] : (uint32_t)n, one = number + lane;
        if (!(lanes >> lane & 1)) continue;
        uint64_t place = (uint64_t)at[lane], offset = place - (uint64_t)b->shared;
        bool shared = offset < m->launch->shared;
        if (!shared && place - (uint64_t)w->local < (uint64_t)m->launch->local * LANES) continue;
        if (m->marked) find_mark(m, w, (int)lane, old ? old[lane] : 0, kind == WRITES ? stored_value(left, lane, size) : value ? value[lane] : 0);
        if (!log) continue;
        place = (shared ? offset : place) >> log->shift;
        Page *page = shared ? shared_page(m, b, place / PAGE) : page_of(m, place / PAGE + 1);
        if (sort <= STORING && note_run(log, page, place % PAGE, count, one, sort, left)) continue;
        /* Blocks have shared memory each: it is told apart by what no address of the device has. */
        uint64_t address = shared ? (1ull << 62 | (uint64_t)b->index << 24) + offset : (uint64_t)at[lane];
        for (uint32_t k = 0; k < count; k++) {
            uint64_t bytes = sort >= UPDATING ? access_of(log, one)->type : sort == STORING ? bytes_at(left, lane, k, unit) : 0;
            if (!note_place(m, page, place % PAGE + k, address + k * unit, one, (int)k, size, sort, bytes, sort == ADDING ? stored_value(left, lane, size) : 0)) break;
        }
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
    bool large = log->pages > KEPT || log->value_room + 4 * log->set_room > 4 * MOST_CELLS;
    memset(log->slot, 0, log->slots * sizeof *log->slot);
    log->pages = log->held = log->sets = log->sums = log->values = 0;
    m->log = NULL;
    if (!large) log = __atomic_exchange_n(&spare, log, __ATOMIC_RELEASE);
    if (!log) return;
    for (uint64_t k = 0; k < log->page_room; k++) free(log->page[k]);
    free(log->slot), free(log->page), free(log->access), free(log->value), free(log->set), free(log->sum), free(log);
}
