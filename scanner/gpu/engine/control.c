/* Warps and control: votes and shuffles, branches, convergence, barriers. */
#include "operands.h"

/* Opcodes without an effect here: fences (memory is in order), hints, and scoreboards. */
void op_NOP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) { (void)m, (void)w, (void)i, (void)lanes; }

/* Who is in such a loop may have to wait for lanes at its end; these need not wait for it (CUDA: each thread gets on). */
void op_YIELD(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    (void)m, (void)i;
    w->yielded |= lanes;
}

/* It lets others go first: who waits for memory to change says so. */
void op_NANOSLEEP(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    (void)i;
    w->yielded |= lanes;
    m->sleeps = 1;
}

/* ---- warps ---- */

void op_VOTE(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = is_predicate(&i->operand[0]) ? 0 : 1;
    uint32_t yes = predicate(m, w, &i->operand[first + 1]) & lanes;
    uint32_t truth = HAS(i, M_ANY) ? (yes ? ~0u : 0) : HAS(i, M_ALL) ? (yes == lanes ? ~0u : 0) : yes == lanes || !yes ? ~0u : 0;
    Vector ballot;
    EACH ballot[l] = yes;
    if (first) put(w, &i->operand[0], ballot, lanes);
    put_predicate(w, &i->operand[first], truth, lanes);
}

void op_SHFL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(2, value, by, bounds);
    Vector result;
    uint32_t valid = 0;
    EACH {
        int segment = bounds[l] >> 8 & 31, clamp = bounds[l] & 31, k = by[l] & 31;
        int low = l & segment, high = low | (clamp & ~segment), from;
        bool inside;
        if (HAS(i, M_IDX)) from = low | (k & ~segment), inside = from <= high;
        else if (HAS(i, M_UP)) from = l - k, inside = from >= high;
        else if (HAS(i, M_DOWN)) from = l + k, inside = from <= high;
        else from = l ^ k, inside = from <= high;
        if (!inside) from = l;
        if (lanes >> l & 1 && !(lanes >> from & 1)) {
            /* PTX: undefined. Code that does not use the value is common, so it gets what memory nobody wrote holds. */
            result[l] = m->launch->schedule.registers;
        } else result[l] = value[from];
        valid |= (uint32_t)inside << l;
    }
    put(w, &i->operand[1], result, lanes);
    put_predicate(w, &i->operand[0], valid, lanes);
}

/* Lanes that hold the same value as this one. */
void op_MATCH(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    int first = is_predicate(&i->operand[0]) ? 1 : 0;
    Wide value;
    Vector same;
    if (HAS(i, M_U64)) source_wide(m, w, &i->operand[first + 1], value);
    else source_extended(m, w, &i->operand[first + 1], value);
    uint32_t all = ~0u;
    EACH {
        same[l] = 0;
        for (int k = 0; k < LANES; k++) same[l] |= (uint32_t)((lanes >> k & 1) && value[k] == value[l]) << k;
    }
    ACTIVE(lanes) if (same[l] != lanes) all = 0;
    if (HAS(i, M_ALL)) EACH same[l] = all ? lanes : 0;
    put(w, &i->operand[first], same, lanes);
    if (first) put_predicate(w, &i->operand[0], all, lanes);
}

void op_REDUX(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(1, a);
    uint32_t r = a[first_lane(lanes)], flip = HAS(i, M_S32) ? 0x80000000 : 0;
    ACTIVE(lanes & (lanes - 1)) {
        if (HAS(i, M_OR)) r |= a[l];
        else if (HAS(i, M_XOR)) r ^= a[l];
        else if (HAS(i, M_SUM)) r += a[l];
        else if (HAS(i, M_MIN) || HAS(i, M_MAX)) r = ((a[l] ^ flip) < (r ^ flip)) == (bool)HAS(i, M_MIN) ? a[l] : r;
        else r &= a[l]; /* without a name */
    }
    EACH a[l] = r;
    put(w, &i->operand[0], a, lanes);
}

/* One of the lanes. */
void op_ELECT(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    if (i->operand[1].reg != URZ) fail(m, UNKNOWN, "ELECT that tells whom");
    put_predicate(w, &i->operand[0], lanes & -lanes, lanes);
}

/* ---- branches ---- */

static void go(Machine *m, Warp *w, uint32_t lanes, uint64_t to) {
    if (to / 16 >= m->launch->instructions) fail(m, UNKNOWN, "a jump to %#llx, outside of the kernel", (unsigned long long)to);
    ACTIVE(lanes) w->pc[l] = (uint32_t)(to / 16);
    m->jump = 1;
}

/* What lies outside of the code is not executed: an assertion that failed ends there, and so does what prints or allocates. */
static bool is_external(Machine *m, uint64_t to) {
    for (uint64_t k = 0; k < m->launch->external_count; k++)
        if (m->launch->external[k] == to) return true;
    return false;
}

void op_BRA(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *to = &i->operand[i->operands - 1];
    if (HAS(i, M_ANY)) lanes = m->together; /* all of them, if the guard holds for one */
    /* Taken where lanes of a warp are not together; a guard has asked for that already (see R2UR). */
    if (HAS(i, M_DIV) && (i->guard & 7) == PREDICATES - 1 && lanes == w->alive) return;
    if (HAS(i, M_CONV) && lanes != w->alive) return;
    if (i->operands > 1 && is_predicate(&i->operand[0])) lanes &= predicate(m, w, &i->operand[0]);
    if (to->value / 16 == i->line && lanes) fail(m, FAULT, "a trap (a branch to itself)");
    if (lanes) go(m, w, lanes, to->value);
}

void op_BRX(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(0, a);
    ACTIVE(lanes) go(m, w, 1u << l, (uint64_t)((int64_t)(int32_t)a[l] + (int64_t)i->operand[1].value + ((int64_t)i->line + 1) * 16));
}

void op_CALL(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *to = &i->operand[i->operands - 1];
    Wide target;
    if (HAS(i, M_REL)) {
        go(m, w, lanes, to->value);
        return;
    }
    if (to->kind == K_IMMEDIATE) EACH target[l] = to->value;
    else source_wide(m, w, &i->operand[0], target);
    uint64_t value = target[first_lane(lanes)];
    if (is_external(m, value)) fail(m, FAULT, "a call of the driver's function %llu", (unsigned long long)value);
    go(m, w, lanes, value);
}

/* The address of this instruction: what a function that is called returns behind. */
void op_LEPC(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    (void)m;
    Wide at;
    EACH at[l] = (uint64_t)i->line * 16;
    put_wide(w, &i->operand[0], at, lanes);
}

void op_RET(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    INTEGERS(0, a);
    ACTIVE(lanes) go(m, w, 1u << l, (uint64_t)((int64_t)(int32_t)a[l] + (int64_t)i->operand[1].value));
}

void op_BPT(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    (void)w, (void)i, (void)lanes;
    fail(m, FAULT, "a trap");
}

void op_EXIT(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    if (i->operands) lanes &= predicate(m, w, &i->operand[0]);
    w->alive &= ~lanes;
    m->jump = 1;
    release(w); /* others may have waited for them */
}

/* ---- convergence ---- */

void op_BSSY(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    (void)m;
    ACTIVE(lanes) w->convergence[i->operand[0].value][l] = lanes;
}

static void wait_at(Machine *m, Warp *w, uint32_t lanes, int what) {
    ACTIVE(lanes) w->at[l] = (uint8_t)what, w->pc[l] = m->now->line + 1;
    w->waiting |= lanes;
    m->jump = 1;
    release(w);
}

void op_BSYNC(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    w->yielded &= ~lanes;
    wait_at(m, w, lanes, (int)i->operand[0].value);
}

void op_WARPSYNC(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector mask;
    if (HAS(i, M_ALL)) EACH mask[l] = ~0u;
    else source(m, w, &i->operand[0], mask);
    ACTIVE(lanes) w->sync_mask[l] = mask[l];
    wait_at(m, w, lanes, HAS(i, M_EXCLUSIVE) ? AT_EXCLUSIVE : AT_WARPSYNC);
}

/* Lanes that leave do not come to the BSYNC. */
void op_BREAK(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *b = &i->operand[i->operands - 1];
    if (i->operands > 1) lanes &= predicate(m, w, &i->operand[0]);
    uint32_t with = 0;
    ACTIVE(lanes) with |= w->convergence[b->value][l];
    EACH if (with >> l & 1) w->convergence[b->value][l] &= ~lanes;
    if (release(w)) m->jump = 1;
}

void op_BMOV(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    const Operand *to = &i->operand[0], *from = &i->operand[1];
    if (to->kind == K_BARRIER) {
        Vector v;
        source(m, w, from, v);
        ACTIVE(lanes) w->convergence[to->value][l] = v[l];
    } else if (from->kind == K_BARRIER) put(w, to, w->convergence[from->value], lanes);
    else fail(m, UNKNOWN, "BMOV without a barrier");
    if (HAS(i, M_CLEAR) && from->kind == K_BARRIER) ACTIVE(lanes) w->convergence[from->value][l] = 0;
}

/* ---- barriers of a block ---- */

void op_BAR(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    Vector number = {0}, count = {0};
    int k = 0, first = first_lane(lanes);
    if (k < i->operands && !is_predicate(&i->operand[k])) source(m, w, &i->operand[k++], number);
    if (k < i->operands && !is_predicate(&i->operand[k])) source(m, w, &i->operand[k++], count);
    uint32_t n = number[first];
    if (n >= BARRIERS) fail(m, FAULT, "barrier %u", n);
    Barrier *b = &w->block->barrier[n];
    uint32_t vote = !HAS(i, M_RED) ? NO_VOTE : HAS(i, M_POPC) ? VOTE_COUNT : HAS(i, M_AND) ? VOTE_ALL : VOTE_ANY;
    bool waited = false;
    for (uint32_t v = 0; v < w->block->warps; v++) waited |= w->block->warp[v].barred[n] != 0;
    if (waited && (b->count != count[first] || b->vote != vote)) fail(m, FAULT, "threads disagree about barrier %u", n);
    b->count = count[first], b->vote = vote;
    if (vote) {
        uint32_t truth = k < i->operands ? predicate(m, w, &i->operand[k]) : ~0u;
        w->barrier_vote = (w->barrier_vote & ~lanes) | (truth & lanes);
    }
    w->barred[n] |= lanes;
    w->block->barred |= 1u << n;
    wait_at(m, w, lanes, AT_BAR);
}

/* What BAR.RED came to. */
void op_B2R(Machine *m, Warp *w, const Instruction *i, uint32_t lanes) {
    if (!HAS(i, M_RESULT)) fail(m, UNKNOWN, "B2R that is not RESULT");
    Vector v;
    EACH v[l] = w->barrier_count;
    put(w, &i->operand[0], v, lanes);
    if (i->operands > 1) put_predicate(w, &i->operand[1], w->barrier_count ? ~0u : 0, lanes);
}
