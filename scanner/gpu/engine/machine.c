/* The machine: blocks become resident, their warps take turns, and lanes that stand at one place go on together. */
#define TABLES
#include "operands.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A warp that neither ends nor waits gives way after so many instructions: somebody may have to go on before it can. */
enum { SLICE = 100000, STEPS_BETWEEN_LOOKS = 1 << 16, LONGEST_DRAWN_SLICE = 9 };
enum Turn { WAITS, GIVES_WAY };

_Noreturn void fail(Machine *m, int status, const char *format, ...) {
    Launch *launch = m->launch;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(launch->text, sizeof launch->text, format, list);
    va_end(list);
    if (m->now && n >= 0 && n < (int)sizeof launch->text)
        snprintf(launch->text + n, sizeof launch->text - (size_t)n, " (instruction %#x)", m->now->line * 16);
    launch->status = (uint32_t)status, launch->line = m->now ? m->now->line : 0;
    longjmp(m->stop, 1);
}

uint64_t draw(Machine *m) { /* splitmix64 */
    uint64_t z = m->random += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static void shuffle(Machine *m, uint32_t *items, uint32_t count) {
    for (uint32_t k = count; k > 1; k--) {
        uint32_t other = (uint32_t)(draw(m) % k), item = items[other];
        items[other] = items[k - 1], items[k - 1] = item;
    }
}

void lane_order(Machine *m, uint8_t order[LANES]) {
    uint32_t how = m->launch->schedule.lanes, drawn[LANES];
    EACH drawn[l] = how == DESCENDING ? (uint32_t)(LANES - 1 - l) : (uint32_t)l;
    if (how >= DRAWN) shuffle(m, drawn, LANES);
    EACH order[l] = (uint8_t)drawn[l];
}

/* ---- barriers ---- */

static bool release_barrier(Block *b, uint32_t n) {
    Barrier *barrier = &b->barrier[n];
    uint32_t here = 0, missing = 0, count = 0, all = 1;
    for (uint32_t k = 0; k < b->warps; k++) {
        Warp *w = &b->warp[k];
        bool whole = w->barred[n] && !(w->alive & ~w->barred[n]);
        missing |= w->alive & ~w->barred[n];
        here += whole ? LANES : 0;
        count += (uint32_t)__builtin_popcount(w->barrier_vote & w->barred[n]);
        all &= !(w->barred[n] & ~w->barrier_vote);
    }
    if (!here || (barrier->count ? here < barrier->count : missing != 0)) return false;
    b->epoch += !missing;
    for (uint32_t k = 0; k < b->warps; k++) {
        Warp *w = &b->warp[k];
        if (barrier->vote && w->barred[n]) w->barrier_count = barrier->vote == VOTE_COUNT ? count : barrier->vote == VOTE_ALL ? all : count > 0;
        w->waiting &= ~w->barred[n];
        w->barred[n] = 0;
    }
    return true;
}

/* Lanes of a warp that wait for one another, by the masks that they wait with. */
static bool release_lanes(Warp *w) {
    uint32_t let_go = 0, here[AT_BAR] = {0};
    ACTIVE(w->waiting) if (w->at[l] < AT_BAR) here[w->at[l]] |= 1u << l;
    ACTIVE(w->waiting) if (w->at[l] < AT_BAR) {
        uint32_t with = w->at[l] == AT_WARPSYNC ? w->sync_mask[l] : w->convergence[w->at[l]][l];
        if (!(with & w->alive & ~here[w->at[l]])) let_go |= 1u << l;
    }
    w->waiting &= ~let_go;
    w->epoch += let_go == w->alive && w->at[first_lane(let_go | 1u << 31)] == AT_WARPSYNC;
    return let_go != 0;
}

bool release(Machine *m, Warp *w) {
    (void)m;
    bool done = release_lanes(w);
    for (uint32_t n = 0; n < BARRIERS; n++) {
        bool waits = false;
        for (uint32_t k = 0; k < w->block->warps && !waits; k++) waits = w->block->warp[k].barred[n] != 0;
        if (waits) done |= release_barrier(w->block, n);
    }
    return done;
}

/* ---- one warp ---- */

/* Of the lanes that can go on those at one place, by default at the lowest. `others` is the next place where some wait to be met. */
static uint32_t choose(Machine *m, Warp *w, uint32_t *pc, uint32_t *others) {
    uint32_t ready = w->alive & ~w->waiting, how = m->launch->schedule.paths, at = 0, places = 0, place[LANES];
    if (!ready) return 0;
    uint32_t left = ready;
    while (left) { /* the places, ascending */
        at = ~0u;
        ACTIVE(left) if (w->pc[l] < at) at = w->pc[l];
        place[places++] = at;
        ACTIVE(left) if (w->pc[l] == at) left &= ~(1u << l);
    }
    if (places == 1) w->turn = 0;
    uint32_t which = how == DESCENDING ? places - 1 : how >= DRAWN && places > 1 ? (uint32_t)(draw(m) % places) : 0;
    which = (which + w->turn) % places;
    *pc = place[which];
    *others = which + 1 < places ? place[which + 1] : ~0u;
    uint32_t lanes = 0;
    ACTIVE(ready) if (w->pc[l] == *pc) lanes |= 1u << l;
    return lanes;
}

static void look_at_clock(Machine *m) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec > m->launch->deadline) fail(m, TIMEOUT, "it did not end in time");
}

static enum Turn run_warp(Machine *m, Warp *w, uint64_t slice) {
    Launch *launch = m->launch;
    uint32_t pc, others, lanes;
    m->yield = 0;
    while ((lanes = choose(m, w, &pc, &others))) {
        while (pc < others) {
            if (pc >= launch->instructions) fail(m, FAULT, "the code ended");
            const Instruction *i = m->now = &launch->program[pc];
            uint32_t guard = w->predicate[i->guard & 7], on;
            if (i->guard & 16) guard = w->uniform_predicate >> (i->guard & 7) & 1 ? ~0u : 0;
            on = lanes & (i->guard & 8 ? ~guard : guard);
            launch->work += (uint64_t)__builtin_popcount(on);
            if (!(++launch->steps % STEPS_BETWEEN_LOOKS)) look_at_clock(m);
            m->jump = 0;
            if (on) {
                if (i->op >= OPCODES) fail(m, UNKNOWN, "an instruction that is unknown");
                if (MOVES[i->op]) ACTIVE(lanes) w->pc[l] = pc + 1;
                OPCODE[i->op](m, w, i, on);
            }
            pc++;
            bool over = !--slice || m->yield;
            if (!m->jump && !over) continue;
            if (!m->jump) ACTIVE(lanes) w->pc[l] = pc;
            if (over) {
                w->turn++;
                return GIVES_WAY;
            }
            break;
        }
        if (!m->jump) ACTIVE(lanes) w->pc[l] = pc; /* it has met others */
    }
    return WAITS;
}

/* ---- blocks ---- */

static void begin_block(Machine *m, Block *b) {
    const Launch *launch = m->launch;
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2], fill = launch->schedule.registers;
    b->machine = m;
    b->warps = (threads + LANES - 1) / LANES;
    b->id[0] = b->index % launch->grid[0];
    b->id[1] = b->index / launch->grid[0] % launch->grid[1];
    b->id[2] = b->index / launch->grid[0] / launch->grid[1];
    b->warp = calloc(b->warps, sizeof *b->warp);
    b->shared = malloc(launch->shared + 16u);
    for (uint32_t k = 0; k + 4 <= launch->shared; k += 4) memcpy(b->shared + k, &fill, 4);
    for (uint32_t k = 0; k < b->warps; k++) {
        Warp *w = &b->warp[k];
        w->block = b, w->index = k, w->first_thread = k * LANES;
        uint32_t left = threads - w->first_thread;
        w->alive = left >= LANES ? ~0u : (1u << left) - 1;
        w->predicate[PREDICATES - 1] = ~0u, w->uniform_predicate = 1u << (PREDICATES - 1);
        w->reg = malloc((launch->registers + 4ul) * sizeof *w->reg);
        w->local = malloc((uint64_t)launch->local * LANES + 16);
        if (!w->reg || !w->local) fail(m, UNKNOWN, "out of memory");
        for (uint32_t r = 0; r < launch->registers + 4; r++) EACH w->reg[r][l] = fill;
        for (uint32_t r = 0; r < UNIFORMS; r++) w->uniform[r] = fill;
        for (uint64_t r = 0; r + 4 <= (uint64_t)launch->local * LANES; r += 4) memcpy(w->local + r, &fill, 4);
    }
}

static void end_block(Block *b) {
    for (uint32_t k = 0; b->warp && k < b->warps; k++) free(b->warp[k].reg), free(b->warp[k].local);
    free(b->warp);
    free(b->shared);
    b->warp = NULL, b->shared = NULL;
}

/* Name the first lanes that wait, and what for. */
static _Noreturn void deadlock(Machine *m, const Block *b) {
    const Warp *w = b->warp;
    while (!(w->alive & w->waiting)) w++;
    int l = first_lane(w->alive & w->waiting);
    static const char *const AT[] = {"a BSYNC", "a WARPSYNC", "a barrier of the block"};
    uint32_t same = 0, at = w->at[l];
    for (int k = 0; k < LANES; k++) same |= (uint32_t)((w->alive & w->waiting) >> k & 1 && w->at[k] == at && w->pc[k] == w->pc[l]) << k;
    m->now = NULL;
    fail(m, FAULT, "deadlock: lanes %#x of %#x of warp %u of block %u wait at %s before %#x for others that do not come", same, w->alive,
         w->index, b->index, AT[at < AT_WARPSYNC ? 0 : at - AT_WARPSYNC + 1], w->pc[l] * 16);
}

/* Run the warps of a block in turns. It waits if all of them have ended. */
static enum Turn run_block(Machine *m, Block *b, uint64_t slice) {
    uint32_t how = m->launch->schedule.warps, order[LANES];
    if (!b->warp) begin_block(m, b);
    for (;;) {
        uint32_t ready = 0, alive = 0;
        for (uint32_t k = 0; k < b->warps; k++) {
            Warp *w = &b->warp[how == DESCENDING ? b->warps - 1 - k : k];
            alive |= w->alive;
            if (w->alive & ~w->waiting) order[ready++] = w->index;
        }
        if (!ready && !alive) return WAITS;
        if (!ready) deadlock(m, b);
        if (how >= DRAWN) shuffle(m, order, ready);
        bool gave_way = false;
        for (uint32_t k = 0; k < (how == INTERLEAVED ? 1 : ready); k++) {
            uint64_t before = m->launch->steps, most = how == INTERLEAVED ? 1ull << draw(m) % LONGEST_DRAWN_SLICE : SLICE;
            enum Turn turn = run_warp(m, &b->warp[order[k]], most < slice ? most : slice);
            uint64_t spent = m->launch->steps - before;
            gave_way |= turn == GIVES_WAY && (m->yield || how != INTERLEAVED);
            if (spent >= slice) return GIVES_WAY;
            slice -= spent;
        }
        if (gave_way) return GIVES_WAY;
    }
}

static int by_key(const void *a, const void *b) {
    const Block *x = *(Block *const *)a, *y = *(Block *const *)b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static void run_grid(Machine *m) {
    Launch *launch = m->launch;
    uint32_t blocks = launch->grid[0] * launch->grid[1] * launch->grid[2], how = launch->schedule.blocks, next = 0, turn = 0, *count = &m->residents;
    uint32_t room = launch->schedule.any_dispatch || launch->resident > blocks ? blocks : launch->resident;
    Block **resident = m->resident = calloc(room + 1ul, sizeof *resident);
    if (!room || !resident) fail(m, UNKNOWN, "no block can be resident");
    while (next < blocks || *count) {
        bool more = false;
        for (; *count < room && next < blocks; more = true) {
            Block *b = calloc(1, sizeof *b);
            if (!b) fail(m, UNKNOWN, "out of memory");
            b->index = next++;
            b->key = how == ASCENDING ? b->index : how == DESCENDING ? ~(uint64_t)b->index : draw(m);
            resident[(*count)++] = b;
        }
        if (more) qsort(resident, *count, sizeof *resident, by_key), turn = 0;
        uint64_t slice = ~0ull;
        if (how == INTERLEAVED) turn = (uint32_t)(draw(m) % *count), slice = 1ull << draw(m) % (LONGEST_DRAWN_SLICE + 3);
        turn %= *count;
        Block *b = resident[turn];
        if (run_block(m, b, slice) == WAITS) {
            end_block(b);
            free(b);
            memmove(&resident[turn], &resident[turn + 1], (--*count - turn) * sizeof *resident);
            turn = 0;
        } else turn++;
    }
}

uint64_t sizes(void) { return sizeof(Instruction) << 32 | sizeof(Launch); }

void run(Launch *launch) {
    Machine *m = calloc(1, sizeof *m);
    m->launch = launch;
    m->random = launch->schedule.seed;
    launch->status = RAN, launch->text[0] = 0, launch->steps = launch->work = launch->flags = 0;
    launch->sampled = 0, launch->commuting = launch->tame = 0;
    for (int s = 0; s < SCOPES; s++) launch->pairs[s] = 0;
    begin_log(m);
    if (!setjmp(m->stop)) run_grid(m);
    end_log(m);
    for (uint32_t k = 0; k < m->residents; k++) end_block(m->resident[k]), free(m->resident[k]);
    free(m->resident);
    free(m);
}
