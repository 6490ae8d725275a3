/* The machine: blocks become resident, their warps take turns, and lanes that stand at one place go on together. */
#define TABLES
#include "operands.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A warp that runs for so long without an end gives way to others, whatever it does. */
enum { SLICE = 1 << 24, STEPS_BETWEEN_LOOKS = 1 << 16, LONGEST_DRAWN_SLICE = 9, JUMPS_BEFORE_SUSPICION = 8 };
enum Turn { WAITS, GIVES_WAY, PAUSES };

/* The state of a warp. One that comes back to it, while nobody has written, waits for memory to change. */
typedef struct Snapshot {
    uint32_t pc[LANES], predicate[PREDICATES], uniform_predicate, uniform[UNIFORMS], alive, waiting, differs;
    uint32_t reg[][LANES];
} Snapshot;

_Noreturn void fail(Machine *m, int status, const char *format, ...) {
    Launch *launch = m->launch;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(launch->text, sizeof launch->text, format, list);
    va_end(list);
    if (m->now && n >= 0 && n < (int)sizeof launch->text)
        snprintf(launch->text + n, sizeof launch->text - (size_t)n, " (instruction %#x)", m->now->line * 16);
    launch->status = (uint32_t)status, launch->line = m->now ? m->now->line : ~0u;
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

/* The one that comes at a place, of so many, in an order that is not drawn. */
static uint32_t in_order(uint32_t how, uint32_t at, uint32_t count) {
    uint32_t odd = count / 2;
    if (how == DESCENDING) return count - 1 - at;
    if (how == ODD_FIRST) return at < odd ? 2 * at + 1 : 2 * (at - odd);
    return how == FIRST_LAST ? (at + 1) % count : at;
}

void lane_order(Machine *m, const Warp *w, uint8_t order[LANES]) {
    uint32_t how = m->launch->schedule.lanes, drawn[LANES];
    EACH drawn[l] = in_order(how, (uint32_t)l, LANES);
    if (how >= DRAWN) shuffle(m, drawn, LANES);
    EACH order[l] = (uint8_t)drawn[l];
    if (w->steps != w->stop || !m->launch->swap.asked || m->launch->swap.scope != SCOPE_LANES) return;
    Swap *swap = &m->launch->swap;
    uint8_t first = (uint8_t)(swap->thread[0] % LANES), second = (uint8_t)(swap->thread[1] % LANES);
    order[first] = second, order[second] = first;
    swap->done = 1;
}

/* ---- accesses that are looked for, and one pair of them swapped ---- */

enum { FIRST, SECOND };

static bool of_warp(const Mark *mark, const Warp *w) {
    return mark->block == w->block->index && mark->thread / LANES == w->index;
}

/* Go on to the next mark of a warp behind the instruction that it is at; `from` is the first that may be it. */
static void next_mark(const Launch *launch, Warp *w, uint64_t from, bool first) {
    while (!first && from < launch->marks && of_warp(&launch->mark[from], w) && launch->mark[from].step <= w->steps) from++;
    w->mark = from;
    w->stop = from < launch->marks && of_warp(&launch->mark[from], w) ? launch->mark[from].step : ~0ull;
}

static void begin_marks(const Launch *launch, Warp *w) {
    uint64_t low = 0, high = launch->marks;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        const Mark *one = &launch->mark[middle];
        if (one->block < w->block->index || (one->block == w->block->index && one->thread / LANES < w->index)) low = middle + 1;
        else high = middle;
    }
    next_mark(launch, w, low, true);
}

/* A warp has come to where the swap looks at it. Whether it has to give way. */
static bool swap_here(Machine *m, Warp *w) {
    Swap *swap = &m->launch->swap;
    bool second = w->block->index == swap->block[SECOND] && w->index == swap->thread[SECOND] / LANES;
    if (!swap->asked || swap->scope == SCOPE_LANES || swap->done) return false;
    if (second) return swap->done = 1, false; /* the first is let go behind this instruction */
    if (swap->scope == SCOPE_BLOCKS) w->block->held = 1;
    w->held = 1;
    return true;
}

/* Let the first go on: the second has been there, or cannot come before it does. */
static void end_swap(Machine *m) {
    m->launch->swap.done = 1;
    for (uint32_t k = 0; k < m->residents; k++) {
        Block *b = m->resident[k];
        b->held = 0;
        for (uint32_t v = 0; b->warp && v < b->warps; v++) b->warp[v].held = 0;
    }
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
    b->barred &= ~(1u << n);
    b->machine->opened = 1;
    return true;
}

/* Lanes of a warp that wait for one another, by the masks that they wait with. `but` are not waited for, if it is at a BSYNC:
 * who goes on without them does not come back to them. */
static bool release_lanes(Warp *w, uint32_t but) {
    uint32_t let_go = 0, here[AT_BAR] = {0};
    ACTIVE(w->waiting) if (w->at[l] < AT_BAR) here[w->at[l]] |= 1u << l;
    ACTIVE(w->waiting) if (w->at[l] < AT_BAR) {
        uint32_t with = w->at[l] >= AT_WARPSYNC ? w->sync_mask[l] : w->convergence[w->at[l]][l];
        if (w->at[l] >= AT_WARPSYNC && but) continue;
        if (!(with & w->alive & ~here[w->at[l]] & ~but)) let_go |= 1u << l;
    }
    uint32_t apart = let_go & here[AT_EXCLUSIVE];
    let_go &= ~apart;
    if (apart && !(w->exclusive & w->alive & ~w->waiting)) let_go |= w->exclusive = apart & w->sync_mask[first_lane(apart)];
    for (int b = 0; but && b < BARRIERS; b++) EACH w->convergence[b][l] &= ~(let_go & here[b]);
    w->waiting &= ~let_go;
    w->epoch += let_go == w->alive && w->at[first_lane(let_go | 1u << 31)] == AT_WARPSYNC;
    return let_go != 0;
}

bool release(Warp *w) {
    bool done = release_lanes(w, 0);
    for (uint32_t left = w->block->barred; left; left &= left - 1) done |= release_barrier(w->block, (uint32_t)__builtin_ctz(left));
    return done;
}

/* ---- one warp ---- */

/* Of the lanes that can go on those at one place, by default at the lowest. `others` is the next place where some wait to be met. */
static uint32_t choose(Machine *m, Warp *w, uint32_t *pc, uint32_t *others, uint32_t *places) {
    uint32_t ready = w->alive & ~w->waiting, how = m->launch->schedule.paths, place[LANES], lanes[LANES], count = 0;
    *places = 1;
    if (!ready) return 0;
    for (uint32_t left = ready; left; left &= ~lanes[count++]) {
        uint32_t at = w->pc[first_lane(left)], here = 0;
        EACH here |= (uint32_t)(w->pc[l] == at) << l;
        place[count] = at, lanes[count] = here & left;
    }
    *pc = place[0], *others = ~0u;
    if (count == 1) {
        w->turn = 0;
        return lanes[0];
    }
    *places = count;
    uint32_t which = how == DESCENDING ? count - 1 : how >= DRAWN ? (uint32_t)(draw(m) % count) : 0, chosen = 0;
    which = (which + w->turn) % count;
    for (uint32_t k = 0; k < count; k++) { /* the one that so many lie below */
        uint32_t below = 0;
        for (uint32_t n = 0; n < count; n++) below += place[n] < place[k];
        if (below == which) chosen = k;
    }
    for (uint32_t k = 0; k < count; k++)
        if (place[k] > place[chosen] && place[k] < *others) *others = place[k];
    *pc = place[chosen];
    return lanes[chosen];
}

static bool is_at(const Warp *w, Snapshot *s, uint32_t registers) {
    if (memcmp(s->reg[s->differs], w->reg[s->differs], sizeof *s->reg) || memcmp(s->pc, w->pc, sizeof s->pc)) return false;
    if (s->alive != w->alive || s->waiting != w->waiting || s->uniform_predicate != w->uniform_predicate) return false;
    if (memcmp(s->predicate, w->predicate, sizeof s->predicate) || memcmp(s->uniform, w->uniform, sizeof s->uniform)) return false;
    for (uint32_t r = 0; r < registers; r++)
        if (memcmp(s->reg[r], w->reg[r], sizeof *s->reg)) {
            s->differs = r;
            return false;
        }
    return true;
}

/* Whether a warp is where it was, nothing having been written since: what it waits for is others. Told now and then. */
static bool comes_back(Machine *m, Warp *w) {
    if (w->quiet != m->writes) w->quiet = m->writes, w->jumps = 0;
    uint64_t jumps = ++w->jumps, registers = m->launch->registers, then = w->been;
    if (jumps >= JUMPS_BEFORE_SUSPICION && !(jumps & (jumps - 1))) {
        if (!w->seen && !(w->seen = malloc(sizeof *w->seen + registers * sizeof *w->seen->reg))) fail(m, UNKNOWN, "out of memory");
        Snapshot *s = w->seen;
        memcpy(s->pc, w->pc, sizeof s->pc), memcpy(s->predicate, w->predicate, sizeof s->predicate);
        memcpy(s->uniform, w->uniform, sizeof s->uniform), memcpy(s->reg, w->reg, registers * sizeof *s->reg);
        s->uniform_predicate = w->uniform_predicate, s->alive = w->alive, s->waiting = w->waiting, s->differs = 0;
        then = 0;
    } else if (!w->seen || !is_at(w, w->seen, (uint32_t)registers)) return false;
    w->been = m->writes + 1;
    return then == w->been;
}

static void look_at_clock(Machine *m, const Warp *w) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec <= m->launch->deadline) return;
    uint32_t warps = 0, wait = 0;
    for (uint32_t r = 0; r < m->residents; r++)
        for (uint32_t k = 0; m->resident[r]->warp && k < m->resident[r]->warps; k++) {
            const Warp *one = &m->resident[r]->warp[k];
            warps += one->alive != 0, wait += one->alive && !(one->alive & ~one->waiting);
        }
    fail(m, TIMEOUT, "it did not end in time: warp %u of block %u runs, of %u warps that have begun %u wait for others", w->index,
         w->block->index, warps, wait);
}

static enum Turn run_warp(Machine *m, Warp *w, uint64_t slice) {
    Launch *launch = m->launch;
    uint32_t pc, others, lanes, places, spun = 0;
    bool waited = w->spins == m->writes + 1; /* and nobody has written since it was seen to */
    while ((lanes = choose(m, w, &pc, &others, &places))) {
        m->jump = m->sleeps = 0;
        while (pc < others && !m->jump && slice) {
            if (pc >= launch->instructions) fail(m, FAULT, "the code ended");
            const Instruction *i = m->now = &launch->program[pc];
            bool looked_at = w->steps == w->stop;
            if (looked_at && swap_here(m, w)) {
                ACTIVE(lanes) w->pc[l] = pc;
                return GIVES_WAY;
            }
            uint32_t guard = w->predicate[i->guard & 7], on;
            if (i->guard & 16) guard = w->uniform_predicate >> (i->guard & 7) & 1 ? ~0u : 0;
            on = lanes & (i->guard & 8 ? ~guard : guard);
            launch->work += (uint64_t)__builtin_popcount(on);
            if (!(++launch->steps % STEPS_BETWEEN_LOOKS)) look_at_clock(m, w);
            pc++, slice--, m->together = lanes;
            if (!on) {
                if (looked_at) next_mark(launch, w, w->mark, false);
                w->steps++;
                continue;
            }
            if (i->op >= OPCODES) fail(m, UNKNOWN, "an instruction that is unknown");
            if (MOVES[i->op]) ACTIVE(lanes) w->pc[l] = pc;
            m->marked = looked_at ? w : NULL;
            OPCODE[i->op](m, w, i, on);
            if (looked_at) {
                m->marked = NULL;
                next_mark(launch, w, w->mark, false);
                if (launch->swap.done) end_swap(m);
            }
            w->steps++;
        }
        if (m->opened) return PAUSES; /* behind a barrier the order of warps begins anew */
        if (!m->jump) {
            ACTIVE(lanes) w->pc[l] = pc; /* it has met others, or its slice is over */
        } else if (m->sleeps || comes_back(m, w)) {
            /* Another path of it may have to go on, and if none can, another warp. */
            w->turn++, w->jumps = 0;
            if (w->spins != m->writes + 1) spun = 0, waited = false;
            w->spins = m->writes + 1;
            if (++spun < places || (waited && release_lanes(w, w->yielded))) continue;
            return GIVES_WAY;
        }
        if (!slice) return PAUSES;
    }
    return WAITS;
}

/* ---- blocks ---- */

static void fill_words(void *at, uint64_t count, uint32_t with) {
    uint32_t *word = at;
    for (uint64_t k = 0; k < count; k++) word[k] = with;
}

/* What a block needs lies in one piece; that of a block that has ended is the next one's. */
static void begin_block(Machine *m, Block *b) {
    const Launch *launch = m->launch;
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2], fill = launch->schedule.registers;
    uint32_t warps = (threads + LANES - 1) / LANES;
    uint64_t registers = (launch->registers + 4ul) * LANES, local = ((uint64_t)launch->local * LANES + 16) / 4, shared = (launch->shared + 16ul) / 4;
    b->machine = m;
    b->warps = warps;
    b->id[0] = b->index % launch->grid[0];
    b->id[1] = b->index / launch->grid[0] % launch->grid[1];
    b->id[2] = b->index / launch->grid[0] / launch->grid[1];
    Piece *piece = m->spare;
    if (piece) m->spare = piece->next;
    else if (!(piece = malloc(sizeof *piece + warps * sizeof(Warp) + 4 * (warps * (registers + local) + shared) + 64))) fail(m, UNKNOWN, "out of memory");
    uint32_t *words = (uint32_t *)(((uintptr_t)(piece->warp + warps) + 63) & ~63ull); /* as vectors like it */
    fill_words(words, warps * (registers + local) + shared, fill);
    memset(piece->warp, 0, warps * sizeof(Warp));
    b->piece = piece, b->warp = piece->warp, b->shared = (uint8_t *)(words + warps * (registers + local));
    for (uint32_t k = 0; k < warps; k++) {
        Warp *w = &b->warp[k];
        w->block = b, w->index = k, w->first_thread = k * LANES;
        begin_marks(launch, w);
        uint32_t left = threads - w->first_thread;
        w->alive = left >= LANES ? ~0u : (1u << left) - 1;
        w->predicate[PREDICATES - 1] = ~0u, w->uniform_predicate = 1u << (PREDICATES - 1);
        w->reg = (uint32_t(*)[LANES])(words + k * registers);
        w->local = (uint8_t *)(words + warps * registers + k * local);
        fill_words(w->uniform, UNIFORMS, fill);
    }
}

static void end_block(Machine *m, Block *b) {
    for (uint32_t k = 0; b->warp && k < b->warps; k++) free(b->warp[k].seen);
    if (b->warp) b->piece->next = m->spare, m->spare = b->piece;
    forget_shared(m, b);
    free(b);
}

/* Name the first lanes that wait, and what for. */
static _Noreturn void deadlock(Machine *m, const Block *b) {
    const Warp *w = b->warp;
    while (!(w->alive & w->waiting)) w++;
    int l = first_lane(w->alive & w->waiting);
    static const char *const AT[] = {"a BSYNC", "a WARPSYNC", "a WARPSYNC", "a barrier of the block"};
    uint32_t same = 0, at = w->at[l];
    for (int k = 0; k < LANES; k++) same |= (uint32_t)((w->alive & w->waiting) >> k & 1 && w->at[k] == at && w->pc[k] == w->pc[l]) << k;
    m->now = NULL;
    fail(m, FAULT, "deadlock: lanes %#x of %#x of warp %u of block %u wait at %s before %#x for others that do not come", same, w->alive,
         w->index, b->index, AT[at < AT_WARPSYNC ? 0 : at - AT_WARPSYNC + 1], w->pc[l] * 16);
}

/* Run the warps of a block in turns, until all of them have ended (it waits), none can do more than wait for memory that
 * others write, or the slice is over. */
static enum Turn run_block(Machine *m, Block *b, uint64_t slice) {
    uint32_t how = m->launch->schedule.warps, order[LANES];
    if (!b->warp) begin_block(m, b);
    for (;;) {
        uint32_t ready = 0, alive = 0, held = 0;
        for (uint32_t k = 0; k < b->warps; k++) {
            Warp *w = &b->warp[in_order(how, k, b->warps)];
            alive |= w->alive, held |= w->held;
            if (w->alive & ~w->waiting && !w->held) order[ready++] = w->index;
        }
        if (!ready && !alive) return WAITS;
        if (!ready && held) {
            if (b->held) return GIVES_WAY;
            end_swap(m); /* the others of its block wait for it */
            continue;
        }
        if (!ready) deadlock(m, b);
        if (how >= DRAWN) shuffle(m, order, ready);
        m->opened = 0;
        for (uint32_t k = 0; k < (how == INTERLEAVED ? 1 : ready) && !m->opened; k++) {
            uint64_t before = m->launch->steps, most = how == INTERLEAVED ? 1ull << draw(m) % LONGEST_DRAWN_SLICE : SLICE;
            run_warp(m, &b->warp[order[k]], most < slice ? most : slice);
            uint64_t spent = m->launch->steps - before;
            if (spent >= slice) return PAUSES;
            if (spent >= SLICE) return GIVES_WAY; /* it may wait for others in a way that is not seen, such as by a clock */
            slice -= spent;
        }
        bool spins = !m->opened;
        for (uint32_t k = 0; k < b->warps && spins; k++) {
            Warp *w = &b->warp[k];
            spins = !(w->alive & ~w->waiting) || w->spins == m->writes + 1;
        }
        if (spins) return GIVES_WAY;
    }
}

/* Blocks that are resident, the one whose turn is first at the end, so that it leaves for nothing. */
static int by_key(const void *a, const void *b) {
    const Block *x = *(Block *const *)a, *y = *(Block *const *)b;
    return x->key < y->key ? 1 : x->key > y->key ? -1 : x->index < y->index ? 1 : -1;
}

static void enter(Machine *m, uint32_t index, bool in_order) {
    uint32_t how = m->launch->schedule.blocks, at = m->residents;
    Block *b = calloc(1, sizeof *b);
    if (!b) fail(m, UNKNOWN, "out of memory");
    b->index = index;
    b->key = how >= DRAWN ? draw(m) : how == DESCENDING ? ~(uint64_t)index : how == ODD_FIRST ? (uint64_t)(~index & 1) << 32 | index
           : how == FIRST_LAST && !index ? ~0ull : index;
    if (in_order) {
        uint32_t low = 0;
        while (low < at) {
            uint32_t middle = (low + at) / 2;
            if (by_key(&m->resident[middle], &b) < 0) low = middle + 1;
            else at = middle;
        }
        memmove(&m->resident[at + 1], &m->resident[at], (m->residents - at) * sizeof *m->resident);
    }
    m->resident[at] = b;
    m->residents++;
}

static void run_grid(Machine *m) {
    Launch *launch = m->launch;
    uint32_t blocks = launch->grid[0] * launch->grid[1] * launch->grid[2], how = launch->schedule.blocks, next = 0, turn = 0, idle = 0;
    uint32_t room = launch->schedule.any_dispatch || launch->resident > blocks ? blocks : launch->resident;
    m->resident = calloc(room + 1ul, sizeof *m->resident);
    if (!room || !m->resident) fail(m, UNKNOWN, "no block can be resident");
    while (next < room) enter(m, next++, false);
    qsort(m->resident, m->residents, sizeof *m->resident, by_key);
    while (m->residents) {
        uint64_t slice = ~0ull;
        if (how == INTERLEAVED) turn = (uint32_t)(draw(m) % m->residents), slice = 1ull << draw(m) % (LONGEST_DRAWN_SLICE + 3);
        turn %= m->residents;
        uint32_t at = m->residents - 1 - turn;
        Block *b = m->resident[at];
        if (run_block(m, b, slice) != WAITS) {
            turn++;
            /* One that is held up for a swap goes on where nobody else can. */
            if (b->held && ++idle > m->residents) end_swap(m), idle = 0;
            continue;
        }
        idle = 0;
        end_block(m, b);
        m->residents--;
        memmove(&m->resident[at], &m->resident[at + 1], (m->residents - at) * sizeof *m->resident);
        if (next < blocks) enter(m, next++, true);
        turn = 0;
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
    for (uint32_t k = 0; k < m->residents; k++) end_block(m, m->resident[k]);
    for (Piece *next; m->spare; m->spare = next) next = m->spare->next, free(m->spare);
    free(m->resident);
    free(m);
}
