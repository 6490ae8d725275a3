/* The machine that executes SASS: what its parts hold. One warp is a vector of 32 lanes; an opcode is a function of it. */
#pragma once
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 32, BARRIERS = 16, PREDICATES = 8, UNIFORMS = 260, RZ = 255, URZ = 255, BANKS = 16 };

/* What an operand is, and what is done to its value; sass.py writes the same numbers. */
enum Kind { K_NONE, K_REG, K_UREG, K_PRED, K_UPRED, K_CONST, K_IMMEDIATE, K_ADDRESS, K_SPECIAL, K_BARRIER, K_ALL_PREDICATES };
enum { F_NEGATE = 1, F_ABSOLUTE = 2, F_INVERT = 4, F_LOW_HALF = 8, F_HIGH_HALF = 16, F_WIDE = 32, F_INDEXED = 64 };

typedef struct {
    uint8_t kind, flags, reg, ureg; /* ureg: of an address, beside its register */
    uint32_t scale;                 /* of the register of an address; bank of a constant */
    uint64_t value;                 /* bits of an immediate, offset of a constant or an address, number of a special register */
} Operand;

enum { OPERANDS = 8, MODIFIER_WORDS = 3 };
typedef struct {
    uint16_t op;
    uint8_t guard, operands; /* guard: a predicate, | 8 where it is negated, | 16 where it is uniform */
    uint32_t line;           /* its place in the program */
    uint64_t modifiers[MODIFIER_WORDS];
    Operand operand[OPERANDS];
} Instruction;

typedef struct { uint64_t start, end; } Range;

/* Orders that are free; schedule.py chooses them. Odd ones before even ones, the first behind all others, drawn, and drawn and
 * interleaved. */
enum { ASCENDING, DESCENDING, ODD_FIRST, FIRST_LAST, DRAWN, INTERLEAVED };
typedef struct {
    uint32_t blocks, warps, lanes, paths; /* orders */
    uint32_t any_dispatch;                /* blocks become resident in any order, not in that of their index */
    uint32_t registers;                   /* what registers and shared memory nobody wrote hold */
    uint64_t seed;
    uint32_t moved, unused; /* moved: results of MUFU have another last bit */
} Schedule;

/* What an access does to memory; from ADDS to MAXIMA integers whose old value nobody is given. */
enum Access { READS, WRITES, ADDS, ANDS, ORS, XORS, MINIMA, MAXIMA, ADDS_FLOATS, EXCHANGES };
/* By how much two threads differ that are not ordered. */
enum { SCOPE_BLOCKS, SCOPE_WARPS, SCOPE_LANES, SCOPES };
typedef struct {
    uint64_t address;
    uint32_t scope, shows; /* scope: SCOPES where it has turned out to commute; shows: whether the other order leaves other bits, |2 where nothing came between */
    uint32_t kind[2], block[2], thread[2], line[2];
    uint64_t step[2], value[2], old; /* step: instructions that the warp had executed; old: what the first found */
} Conflict;

/* One pair of accesses in the other order: the first thread, its warp or its block is held up before its access until the second
 * has made its own. All else is canonical. */
typedef struct {
    uint32_t asked, scope, block[2], thread[2];
    uint64_t step[2];
    uint32_t done, unused; /* done: whether it came to that */
} Swap;

/* An access that is looked for in other orders; they ascend by block, warp and step. turn: when it came, 0 where it has not. */
typedef struct {
    uint32_t block, thread, line, unused;
    uint64_t step, turn, value, old;
} Mark;

/* One launch, filled in by engine.py in the order of these fields. */
typedef struct {
    const Instruction *program;
    uint64_t instructions;
    uint32_t grid[3], block[3];
    uint32_t registers, shared, local, resident; /* resident: blocks that the device holds at once */
    const uint8_t *bank[BANKS];
    uint64_t bank_size[BANKS];
    const Range *ranges; /* memory of the device that exists, in ascending order */
    uint64_t range_count;
    const uint64_t *external; /* addresses that stand for functions outside of the code */
    uint64_t external_count;
    Schedule schedule;
    double deadline; /* seconds of CLOCK_MONOTONIC */
    uint64_t shared_window, local_window; /* where generic addresses of these begin */
    Conflict *sample; /* room for so many conflicts to be told one by one */
    uint32_t samples, log; /* log: whether conflicts are looked for */
    Swap swap;
    Mark *mark;
    uint64_t marks;
    /* What came out. */
    uint64_t pairs[SCOPES], commuting, tame; /* pairs of accesses in conflict, those that commute, and those too few to show it */
    uint32_t sampled, architecture; /* architecture: of the device, such as 80 */
    uint64_t steps, work; /* instructions of warps, and of threads */
    uint32_t status, flags, line, unused_too; /* status: as below; line: of the instruction that failed */
    char text[512];
} Launch;
enum { RAN, FAULT, UNKNOWN, TIMEOUT };
enum { READS_CLOCK = 1, COPIES_LATER = 2, LOG_TOO_SMALL = 4, APPROXIMATES = 8 };

struct Block;
typedef struct Warp {
    struct Block *block;
    uint32_t index, first_thread;
    uint32_t alive, waiting;           /* lanes; waiting: at a barrier of whatever kind */
    uint32_t pc[LANES];
    uint32_t predicate[PREDICATES];    /* a bit a lane */
    uint32_t uniform_predicate;        /* a bit a predicate */
    uint32_t uniform[UNIFORMS];
    uint32_t convergence[BARRIERS][LANES]; /* BSSY: the lanes that meet at the BSYNC */
    uint8_t at[LANES];                 /* what a waiting lane waits at: a BSYNC by its number, or AT_... */
    uint32_t barred[BARRIERS];         /* lanes that wait at a barrier of the block */
    uint32_t sync_mask[LANES];         /* WARPSYNC, */
    uint32_t exclusive;                /* and lanes that go on from it, while others with another mask wait there */
    uint32_t yielded;                  /* lanes that have executed YIELD since their last BSYNC */
    uint32_t epoch;                    /* WARPSYNCs of all lanes so far */
    uint64_t steps, stop;              /* instructions so far, and behind how many the next mark is looked at */
    uint64_t mark;                     /* that */
    uint32_t held;                     /* for the swap */
    uint32_t turn;                     /* fairness between paths of a warp */
    struct Snapshot *seen;             /* an earlier state of it, if it has run for long without writing */
    uint64_t quiet, jumps;             /* Machine.writes when it last jumped, and how often it has jumped since */
    uint64_t been;                     /* Machine.writes when it was last in that state, + 1 */
    uint64_t spins;                    /* Machine.writes when it was seen to do nothing but wait for memory, + 1 */
    uint32_t barrier_vote;             /* BAR.RED: what the lanes bring, */
    uint32_t barrier_count;            /* and what it came to */
    uint32_t (*reg)[LANES];
    uint8_t *local;
} Warp;

enum { AT_WARPSYNC = BARRIERS, AT_EXCLUSIVE, AT_BAR };

/* Of a block: threads it waits for (0: all), what BAR.RED does, and how many warps have lanes there. */
enum { NO_VOTE, VOTE_COUNT, VOTE_ALL, VOTE_ANY };
typedef struct { uint32_t count, vote; } Barrier;

/* Memory of a block: warps, their registers and local memory, shared memory. */
typedef struct Piece {
    struct Piece *next;
    Warp warp[];
} Piece;

typedef struct Block {
    struct Machine *machine;
    uint32_t index, id[3], warps, held, epoch; /* epoch: barriers of all threads so far */
    uint64_t key; /* its place in the order of blocks */
    Barrier barrier[BARRIERS];
    uint32_t barred; /* a bit a barrier, where somebody waits */
    uint8_t *shared;
    Warp *warp;
    Piece *piece;
    struct Page **known; /* what the log knows of its shared memory */
} Block;

typedef struct Machine {
    Launch *launch;
    const Instruction *now; /* the instruction that is being executed */
    uint64_t random;
    uint64_t writes; /* stores and atomics that changed memory, so far */
    uint64_t turn;   /* marked accesses so far */
    uint32_t jump; /* set by an opcode that moved program counters or made lanes wait */
    uint32_t opened; /* set where a barrier of the block lets its threads go */
    uint32_t sleeps; /* set by an opcode that lets others go first */
    uint64_t last_range;
    Block **resident;
    uint32_t residents;
    const Warp *marked; /* the warp whose instruction is looked at for marks */
    Piece *spare; /* of blocks that have ended */
    uint32_t together; /* the lanes that stand at the instruction, whatever its guard says */
    struct Log *log;
    jmp_buf stop;
} Machine;

typedef void (*Opcode)(Machine *, Warp *, const Instruction *, uint32_t lanes);

_Noreturn void fail(Machine *, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void lane_order(Machine *, const Warp *, uint8_t order[LANES]); /* in which lanes store, and add */
uint64_t draw(Machine *);                         /* the next number of the schedule */
bool release(Warp *);                             /* let go who waits for nobody any more */
void begin_log(Machine *);
void end_log(Machine *);
void forget_shared(Machine *, Block *);
void note(Machine *, const Warp *, uint32_t lanes, const uint8_t order[LANES], uint8_t *const at[LANES], int size, uint32_t kind,
          const uint32_t (*left)[LANES], const uint64_t *old, const uint64_t *value);
/* Tell an access to the log, or to the marks that look for it. */
#define NOTES(m) ((m)->log || (m)->marked)
