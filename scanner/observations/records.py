"""The records of a run file, and what each field means; beside it stand the settings.

A run file holds observations only. Verdicts and findings are derived when it is read (``detmatrix.scanner.verdicts.findings``),
so that a better definition needs no second scan.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, field

from detmatrix.scanner.invariance import Property, Trial
from detmatrix.scanner.modes import MODES as MODES
from detmatrix.scanner.modes import WORKER_MODES as WORKER_MODES
from detmatrix.scanner.modes import Mode as Mode
from detmatrix.scanner.observations.settings import MOST_NAMES as MOST_NAMES
from detmatrix.scanner.observations.settings import MOST_WORKERS
from detmatrix.scanner.observations.settings import Device as Device
from detmatrix.scanner.observations.settings import Settings as Settings
from detmatrix.scanner.observations.settings import Source as Source
from detmatrix.scanner.perturbations import PERTURBATIONS
from detmatrix.scanner.schedules import SCHEDULES

# Run file format history:
#
# 1: header (settings, environment, planned rows), observations, closing.
# 2: controls, sentinels, costs; warn_only; execution groups, severity and alerts of an observation. Read with the
#    defaults below a file of format 1 says what it always said: quiet executions, and nothing known of the rest.
# 3: overloads that the build has and that each row reaches; where a row is from (source, provoked, recipe, samples), what
#    was enumerated, and the settings of both. A file of format 1 or 2 knows of no overloads: "not recorded".
# 4: rows that are not to be believed, because a control behind them answered wrongly; the mode "unfilled"; the digest of the
#    file that declares a row's spec, empty in older files, of which none is gone on with; threads of an observation, and a
#    further process of mode off. Of a file of an earlier format it is not known how many threads worked, so that none of
#    its rows is called serial.
# 5: entries of databases in lines of their own behind the header, whose rows belong to the plan; digests begin with their
#    kind, and those without one, of older files, are never held against them; the worker that made an observation or a
#    sentinel, where several worked side by side; TF32 and ROCm of an environment, not known of older files; the mode
#    "no_workspace".
# 6: the plan, by its digest and its groups of rows, and the shard of it that a file holds; merged files, whose parts are
#    files of one plan. Older files name no plan, and are not merged. Modes that a scan was asked for beside off and on;
#    launches of Triton kernels, and the perturbation "order"; what rows give with other threads, batches and layouts, where a
#    scan asked for that; which rows are compiled, and what a reference gives that holds in every mode; further processes
#    of on and unfilled.
# 7: scans of a simulated GPU: the setting, the device, its perturbations, and of an observation the schedule that shows
#    a difference, how it is to the CPU, and the calls of libraries. No older file has any.
# 8: samples of outputs. Of older files it is not known how far bits moved.
# 9: other spellings of ops, how they are to the op, and its time beside theirs. No older file has any.
# 10: whether a device was given the inputs of a simulated GPU. In no older file it was. The model of a CPU, not known of older files.
FORMAT = 10


# What a scan counts, and how long it takes, stays far below, and sums of it can be computed with; beyond, a number in a
# run file is a mistake or an attack.
Count = Annotated[int, Meta(ge=0, le=2**53)]
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
# The lists of a release have 60 bullets; each is held against every row.
MOST_CLAIMS = 300
# Of a plan; each may be a job of a batch system.
MOST_SHARDS = 10_000
Direction = Literal["forward", "backward"]
# Raw bits of sampled numbers, hexadecimal, each as wide as its dtype.
Sample = Annotated[str, Meta(pattern=r"^([0-9a-f]{2,16}( [0-9a-f]{2,16})*)?\Z", max_length=300)]
# Names that stand in a script that is run: run files come from anywhere, so what is no such name is refused where they are
# read.
Dtype = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,39}\Z")]
# A class of schedules of a simulated GPU.
ScheduleClass = Annotated[str, Meta(pattern=f"^({'|'.join(SCHEDULES)})\\Z")]
# A perturbation, the retired `threads` with its count.
_PLAIN = "|".join(name for name in PERTURBATIONS if name != "threads")
Perturbed = Annotated[str, Meta(pattern=f"^({_PLAIN}|threads=[1-9][0-9]{{0,3}})\\Z")]

# ran      every execution returned
# raised   an execution raised; `exception` and `message` hold what
# invalid  it returned, but what it returned proves nothing; `message` says why
# timeout  the worker was stopped when the case exceeded the limit
# crash    the worker ended in the middle of the case; `message` says how
# not_run  it was never called; `message` says why
Outcome = Literal["ran", "raised", "invalid", "timeout", "crash", "not_run"]

# What an output that never changes may owe to holding no information.
#
# zeros    every element is zero
# nan      every element is NaN
# value    every element is one and the same value
# input    it has the bits of an input
Blank = Literal["zeros", "nan", "value", "input"]

# samples   a sample of the database as it is: tiny, and hardly anything in it collides
# enlarged  grown so that threads share the work, indices and values repeating
Provoked = Literal["", "samples", "enlarged"]


def digest_kind(digest: str) -> str:
    """Return what kind a digest is of; those of different kinds say nothing of one another."""
    return digest.rpartition(":")[0]


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: immutable, written by keyword, and strict about unknown fields when read."""


# deterministic  "will act deterministically when mode=True"
# raises         "will throw a RuntimeError when mode=True"
# cublas         raises unless CUBLAS_WORKSPACE_CONFIG is set (torch up to 2.9 lists these apart)
# other          bullets about ops under a heading that is none of these: never parsed, always shown
# note           a note about calls of any op, whatever the flag: no bullet, and it names no ops
Section = Literal["deterministic", "raises", "cublas", "other", "note"]
ClaimDevice = Literal["cpu", "cuda", "mps", "any"]
# backward  "when attempting to differentiate", or of a tensor "that requires grad"
# any       all else: "when called" is said of convolutions too, whose gradients are what differs
# forward   said by no release yet
ClaimDirection = Literal["forward", "backward", "any"]

# keyword      a keyword argument has one of the values: accumulate=True, mode='max', a nested list of modes
# argument     what an argument is: src "Tensor", weights "given", index "list of tensors"
# input        a property of the input tensor: quantized, requires_grad
# dtype        the input's dtype is one of the values: floating, complex, integer, bool
# layout       the operands' layouts: "sparse-dense"
# output       the claim is about one output: "indices"
# fill         what uninitialised elements are filled with: "floating:NaN"
# unspecified  the bullet says that there is a condition and not which: "in some cases"
Kind = Literal["keyword", "argument", "input", "dtype", "layout", "output", "fill", "unspecified"]


class Condition(Record, frozen=True):
    """One thing a claim presupposes; where there are several, all of them."""

    kind: Kind
    name: str
    values: tuple[str, ...]  # any of them


class Claim(Record, frozen=True):
    """What one bullet says of its ops on one device."""

    # section/targets[/device][/direction][/name=value…], the same in every release whatever the wording:
    # "raises/torch.Tensor.put_/cuda/accumulate=True".
    id: str
    section: Section
    targets: tuple[str, ...]  # dotted names, in the bullet's order
    device: ClaimDevice
    direction: ClaimDirection
    conditions: tuple[Condition, ...]
    text: str  # the bullet's own words
    parsed: bool  # false: not understood; "any" and no conditions then mean nothing
    order: Count  # the bullet's place in the docstring, from 0; the claims of one bullet share it
    # The bullet's lines without its indentation, and the blank lines up to the next bullet, so that the lists
    # can be written again as they were. None in the tables of reports/claims, which hold no docstrings.
    source: str | None = None


class SimulatedDevice(Record, frozen=True):
    """The GPU that was simulated, and what executed its kernels."""

    architecture: str  # "sm_80"
    name: str  # of the device whose published table it has
    multiprocessors: Count
    build: str  # digest of the interpreter and the stand-in libraries
    # Class of schedules -> executions of a row in a mode; they end behind the first class that differs.
    executions: dict[ScheduleClass, Count]


class Environment(Record, frozen=True):
    """The machine and the build that were scanned; ``None`` where there is no such thing here."""

    torch: str
    torch_git: str | None
    cuda: str | None  # the CUDA version torch was built with
    cudnn: int | None
    driver: str | None
    gpu: str | None
    gpu_capability: str | None  # "9.0"
    cpu: str
    cores: Count
    threads: Count  # torch.get_num_threads() in a worker
    affinity: Annotated[tuple[Count, ...], Meta(max_length=1 << 16)]  # the cores a worker may use
    load: tuple[float, ...]  # 1, 5 and 15 minute load averages before the scan
    python: str
    os: str
    variables: Annotated[
        dict[str, Annotated[dict[str, str], Meta(max_length=MOST_NAMES)]], Meta(max_length=MOST_NAMES)
    ]  # mode -> the variables of its workers' environment that steer what they compute
    # Libraries that may compute float32 in TF32: "matmul", "cuDNN"; None: not known.
    tf32: Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)] | None = None
    rocm: str | None = None  # the version of ROCm torch was built with, which presents itself as CUDA
    triton: str | None = None  # retired: the version of Triton, where its interpreter ran kernels
    simulated: SimulatedDevice | None = None
    # What its name hides on a virtual machine: "cpu family 25, model 17, avx2, avx512f".
    cpu_model: str | None = None


# Nobody has chosen these inputs so that the op computes something.
_MAY_BE_BLANK = "inputs of PyTorch's database for which the op gives only zeros, NaN or what it was given"


class Row(Record, frozen=True):
    """A row of the matrix as planned, with what its spec said of it."""

    family: str
    spec: str
    op: str  # the dotted path that was called
    case: str
    direction: Direction
    dtype: Dtype
    device: Device
    provokes: str  # what could expose a difference; empty for an innocent case
    why: str
    documented: tuple[str, ...] = ()  # the names by which PyTorch's lists would speak of this op
    traits: dict[str, str] = {}  # what this case is an instance of, as the lists' conditions name it
    constant: str = ""  # why the result holds no information by definition; empty: it must hold some
    digest: str = ""  # SHA-256 of the file of the user's that declares the spec; what it imports is not in it
    source: Source = "documented"
    provoked: Provoked = ""  # empty of what is written by hand: `provokes` says it
    enlargement: str = field(
        default="", name="recipe"
    )  # how an enlarged case was grown, as detmatrix.opspecs.pytorch.enlarge reads it
    samples: Count = 0  # that the database has of the entry in this dtype
    compiled: bool = False  # it runs in the modes under torch.compile that the scan was asked for
    part: Count = 0  # of a merged file: the place in `Header.parts` of the one that observed it

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What observations refer to a row by; a run has one device."""
        return (self.spec, self.case, self.direction, self.dtype)

    @property
    def id(self) -> str:
        """``spec:case:direction:dtype``, as patterns match it."""
        return ":".join(self.key)

    @property
    def may_be_blank(self) -> str:
        """Why a result that holds no information is no error; empty if it is one."""
        return self.constant or (_MAY_BE_BLANK if self.provoked else "")


class Severity(Record, frozen=True):
    """How far differing outputs were from the first one: the largest of each measure over those examined.

    A is the first output, B a differing one. Integers, indices and booleans are counted, never subtracted: only
    the first four fields speak of them. Distances leave out pairs in which either value is not finite, relative
    ones also those in which A is zero; ``None`` where no pair is left. V_ermv and V_c are those of Shanmugavelu
    et al., arXiv 2408.05148.
    """

    examined: Annotated[int, Meta(ge=1)]  # differing executions that were looked at
    elements: Annotated[int, Meta(ge=1, le=2**53)]
    differing_elements: Count  # raw bits differ
    v_c: Fraction  # fraction of elements whose values differ, A != B; NaN equals NaN here
    v_ermv: float | None = None  # mean of |A - B| / |A|
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: Whole | None = None  # in units of the output's own dtype; capped at 2**63 - 1
    not_finite: Count = 0  # pairs left out because a value is infinite or NaN


class Output(Record, frozen=True):
    """One compared tensor: the op's output, or one gradient in the backward direction."""

    name: str  # "output", "output[1]", "grad of args[0]"
    shape: tuple[Count, ...]
    dtype: Dtype
    differing: Count  # executions in which this one differed from the first
    severity: Severity | None = None  # None: never differed, or differed in shape
    # Numbers of the first execution, at places that its name and shape decide, so that other releases can be held against
    # them. In the first process of a mode; empty: not recorded, or the tensor is empty.
    sample: Sample = ""


class Group(Record, frozen=True):
    """The executions of an observation that ran under one perturbation."""

    perturbation: Perturbed  # "quiet"
    executions: Count
    differing: Count  # from the execution they are compared with
    # Retired: of executions in another order, or with another thread count, which were compared among themselves alone. A group
    # that has them is left out.
    digests: dict[str, Annotated[int, Meta(ge=1)]] | None = None


class Enumerated(Record, frozen=True):
    """What a worker found in one of PyTorch's databases, of the entries that were asked for."""

    source: Source
    entries: Count
    samples: Count  # that the entries have, in all dtypes scanned
    taken: Count  # of those
    enlarged: Count
    refused: Count  # samples that were taken and of which no enlargement is accepted within the limits


class Closing(Record, frozen=True, tag="closing", tag_field="kind"):
    """Last line of a complete run file."""

    seconds: Seconds  # wall time of the scan, or of what a resumed scan added last; of a merged file the sum
    load: tuple[float, ...]
    observations: Count  # those of controls included
    sentinels: Count = 0
    costs: Count = 0
    dispatches: Count = 0
    invariances: Count = 0  # those of controls included
    distrust: tuple[str, ...] = ()  # why the scan cannot be trusted; empty if it can


# Retired: earlier releases went on on another machine in a further file, of which nobody has kept one.
Began = Annotated[tuple[str, ...], Meta(max_length=0)]
Alone = Literal[1]


class Part(Record, frozen=True, kw_only=True):
    """What one scan wrote of a plan, and the machine it ran on; a merged file has several."""

    shard: Annotated[int, Meta(ge=1, le=MOST_SHARDS)]
    file: Alone = 1
    started: str  # UTC, ISO 8601
    environment: Environment
    # Side by side. Those of the first part come first where observations and sentinels name a worker, and so on.
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
    closing: Closing | None  # None: it did not finish
    began: Began = ()


class Header(Record, frozen=True, tag="header", tag_field="kind"):
    """First line of a run file."""

    format: int
    tool: str  # version of detmatrix
    started: str  # UTC, ISO 8601
    settings: Settings
    environment: Environment
    planned: tuple[Row, ...]
    claims: Annotated[
        tuple[Claim, ...], Meta(max_length=MOST_CLAIMS)
    ] = ()  # what the docstring of the scanned torch says of its ops
    controls: tuple[Row, ...] = ()  # rows whose answer is known; observed in every process of every mode
    enumerated: tuple[Enumerated, ...] = ()  # by database
    continues: Literal[""] = ""
    began: Began = ()
    plan: str = ""  # digest of what was planned, the same for all shards; empty in older files
    groups: dict[
        str, Annotated[int, Meta(ge=1, le=MOST_SHARDS)]
    ] = {}  # spec, in planned order -> the shard that has its rows
    shards: Annotated[int, Meta(ge=1, le=MOST_SHARDS)] = 1  # of the plan
    shard: Annotated[int, Meta(ge=1, le=MOST_SHARDS)] = 1  # that this file holds
    file: Alone = 1
    parts: Annotated[tuple[Part, ...], Meta(max_length=MOST_SHARDS)] = ()  # of a merged file, by shard


class EnumeratedEntry(Record, frozen=True, tag="entry", tag_field="kind"):
    """An entry of one of PyTorch's databases as a worker enumerated it; its rows are planned behind those of the header."""

    source: Source
    spec: str
    rows: tuple[Row, ...]  # that the patterns select
    samples: Count
    taken: Count
    enlarged: Count
    refused: Count


class Compiled(Record, frozen=True):
    """What ``torch.compile`` made of an op in one process."""

    graphs: Count  # that were compiled; none: the op ran eagerly
    breaks: Count  # where a graph ended and what came next ran eagerly
    kernels: Count  # that the compiler wrote; without them its code calls those of eager ops
    hits: Count = 0  # graphs that were taken out of a cache


class HeldReference(Record, frozen=True):
    """What a reference gives that holds in every mode."""

    digest: str
    elements: Count  # of the first execution that are not those of the reference


class Schedule(Record, frozen=True):
    """What a simulated execution is repeated from."""

    name: ScheduleClass
    number: Count  # of the execution in its class
    seed: Whole


AS_ON_CPU = "as on the CPU"


class CpuComparison(Record, frozen=True):
    """How the canonical execution on a simulated GPU is to the CPU's result of the same call with the flag off."""

    whose: ClassVar[str] = "the CPU"
    agrees: bool | None  # None: they were not compared
    why: str | None = None  # they were not
    output: str | None = None  # the worst
    elements: Count = 0  # outside of the tolerance
    of: Count = 0  # elements compared
    error: Annotated[float, Meta(ge=0)] = 0.0  # the largest, in tolerances
    pair: tuple[str, str] | None = None  # that of the worst element: simulated, CPU

    @property
    def words(self) -> str:
        """Say how they are."""
        if self.agrees is None:
            return f"not compared with {self.whose}: {self.why}"
        if self.agrees:
            return AS_ON_CPU
        values = f" ({self.pair[0]}, {self.whose} has {self.pair[1]})" if self.pair else ""
        return f"{self.elements} of {self.of} elements of {self.output} are not {self.whose}'s{values}"


class OpComparison(CpuComparison, frozen=True):
    """How another spelling of an op is to the op's result on the CPU, by one thread and with the flag off."""

    whose: ClassVar[str] = "the op"
    # The largest distance of two elements, over the largest element of the op's result; None: nothing to divide by.
    largest: Annotated[float, Meta(ge=0)] | None = None


Calls = Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)]


Hex = Annotated[str, Meta(pattern=r"^(0x)?[0-9a-f]{1,32}\Z")]
Scope = Literal["blocks", "warps", "lanes"]


class Conflicts(Record, frozen=True):
    """Pairs of accesses to one byte by different threads, at least one of which changes it, that nothing orders."""

    pairs: tuple[Count, Count, Count]  # by threads of two blocks, of two warps of a block, of one warp
    commuting: Count = 0  # that give the same in both orders, and are none of those
    tame: Count = 0  # additions of which each place had too few to show an order
    sampled: Count = 0  # pairs that were looked for in other orders
    reversed: Count = 0  # those of them that came in the other one in some execution
    # What else may differ in life, or was not looked for: "reads a clock", "copies asynchronously", "its log was full",
    # "depends on addresses".
    doubts: Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)] = ()


class Witness(Record, frozen=True):
    """One pair of accesses that shows a difference by itself: all else in canonical order, they alone in the other one."""

    kernel: str
    launch: Count  # of those of the execution
    scope: Scope
    address: Whole
    kinds: tuple[
        str, str
    ]  # "float add", "write", "read"; the first of each pair came first in canonical order
    blocks: tuple[Count, Count]
    threads: tuple[Count, Count]  # of the block
    lines: tuple[Count, Count]  # instructions
    steps: tuple[Count, Count]  # instructions that its warp had executed
    values: tuple[Hex, Hex]  # what they wrote or added
    old: Hex  # what the first found
    shows: bool  # these two alone, with these values, tell that the orders differ; else others came before the first, too
    output: str  # that an element of differs
    element: Count  # the first that does, counted in memory
    canonical: Hex  # its bits
    swapped: Hex
    source: str = ""  # the file of the kernel, "RangeFactories.cu"; empty: its names do not tell it


class Simulation(Record, frozen=True):
    """What is known of executions on a simulated GPU alone."""

    # The first that gave other bits, in the weakest class that shows it by itself.
    schedule: Schedule | None = None
    cpu: CpuComparison | None = None  # None: no execution ended
    value_race: bool = False  # that schedule gave other values than the CPU, not only other rounding
    # With another last bit in what the GPU approximates (MUFU) it is no more as on the CPU.
    approximation_sensitive: bool = False
    libraries: Calls = ()  # that nobody executed: "cudnnConvolutionForward (cuDNN)"
    products: Calls = ()  # matrix products that the CPU computed
    conflicts: Conflicts | None = None  # None: nobody looked for them
    witness: Witness | None = None
    # Whether the difference is there with small integers, which do not round; None: `exact_why`, or nothing differed.
    exact: Literal["vanishes", "stays"] | None = None
    exact_why: str = ""
    # That host code launches at the size that the case has on a GPU and did not launch here, five at most; None: `real_size_why`,
    # or the size is the same.
    other_kernels: Calls | None = None
    real_size_why: str = ""

    @property
    def raced(self) -> bool:
        """Whether a schedule gave other values: not where small integers, which do not round, show no difference."""
        return self.value_race and self.exact != "vanishes"

    @property
    def contradiction(self) -> str:
        """Why the witness and small integers say the opposite of one another, which may be a fault of the simulation."""
        kinds = set(self.witness.kinds) if self.witness else None
        if kinds == {"float add"} and self.exact == "stays":
            return "its witness are two additions, and with small integers the difference stays"
        if kinds == {"write"} and self.exact == "vanishes":
            return "its witness are two stores, and with small integers the difference vanishes"
        return ""

    @property
    def race_free(self) -> bool:
        """Whether nothing was in conflict, so that for these inputs every order gives these bits; unwritten memory is no order."""
        found = self.conflicts
        rests_on = self.libraries or self.products or self.schedule
        return found is not None and not rests_on and not (any(found.pairs) or found.tame or found.doubts)

    @property
    def not_exercised(self) -> bool:
        """Whether there were too few accesses in conflict to show an order."""
        found = self.conflicts
        return found is not None and bool(found.tame) and not any(found.pairs)


class OfRow(Record, frozen=True):
    """Base of what belongs to a row."""

    spec: str
    case: str
    direction: Direction
    dtype: Dtype

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The row it belongs to, as ``Row.key``."""
        return (self.spec, self.case, self.direction, self.dtype)


class Observation(OfRow, frozen=True, tag="observation", tag_field="kind"):
    """All executions of one row, or of one control, in one process of one mode."""

    mode: Mode
    process: Count
    outcome: Outcome
    executions: Count = 0  # compared with the first, itself included
    # Digest of the outputs -> executions that gave them, the first execution's digest first.
    digests: dict[str, Annotated[int, Meta(ge=1)]] = {}
    first_differing: Count | None = None  # index of the first execution that differed from execution 0
    outputs: tuple[Output, ...] = ()
    # Backward only: executions whose forward output differed from the first one's.
    forward_differing: Count = 0
    seeded: bool = False  # the op consumed the random generator, which was seeded before every execution
    # That worked in one quiet execution on the CPU, the calling one included; None: not measured. What one thread does
    # alone cannot race, and was not executed under stress.
    threads: Annotated[int, Meta(ge=1)] | None = None
    launches: Count = 0  # retired: Triton kernels that its interpreter ran in one execution
    inputs: tuple[str, ...] = ()  # "args[0]: float32 (64,)", strides where not contiguous
    inputs_digest: str | None = None
    groups: tuple[Group, ...] = ()  # by perturbation, in the order they ran; empty in format 1: all quiet
    blank: Blank | None = None  # what the first execution's output is, if it holds no information
    blank_output: str | None = None  # the one compared tensor that `blank` is said of; None: all of them
    alerts: tuple[str, ...] = ()  # mode warn_only: callers of the alerts of one execution, in order
    compiled: Compiled | None = None  # modes under torch.compile
    reference: HeldReference | None = None  # None: its case has none that holds in every mode
    simulated: Simulation | None = None  # on a simulated GPU
    instead: OpComparison | None = None  # of another spelling of an op, in the first process of off and on
    exception: str | None = None  # type name
    message: str | None = None
    # Of those side by side the one whose share the row is in, or which answered the control.
    worker: Count = 0
    seconds: Seconds = 0.0  # in the executions and their comparison
    setup_seconds: Seconds = 0.0  # drawing and digesting the inputs


class Sentinel(Record, frozen=True, tag="sentinel", tag_field="kind"):
    """Executions of an op known to differ, with the flag off, between two rows: could anything race there?"""

    mode: Mode  # of the worker it ran in
    process: Count
    before: Count  # place in `Header.planned` of the row that came next; its length behind the last
    op: str
    executions: Count
    differing: Count
    load: float  # one minute load average
    worker: Count = 0  # as that of an observation
    message: str | None = None  # why it did not run


class Distrust(Record, frozen=True, tag="distrust", tag_field="kind"):
    """A control that answered wrongly, and no observation tells: what it voids is not to be believed."""

    reason: str
    # The rows observed in this process since the controls last answered rightly: places in `Header.planned`, from
    # `since` up to, and without, `before`. None: all rows of the scan.
    mode: Mode | None = None
    process: Count = 0
    since: Count = 0
    before: Count = 0
    worker: Count = 0


class Timing(Record, frozen=True):
    """Seconds of one execution: median and quartiles over the samples."""

    # Quotients of them are finite.
    median: Annotated[float, Meta(ge=1e-12, le=1e9)]
    low: Annotated[float, Meta(ge=1e-12, le=1e9)]
    high: Annotated[float, Meta(ge=1e-12, le=1e9)]


class Cost(OfRow, frozen=True, tag="cost", tag_field="kind"):
    """What the flag costs one row, timed in one process that switches it between executions."""

    outcome: Outcome
    message: str | None = None  # why there are no timings
    samples: Count = 0  # per timing, taken in turns
    calls: Count = 0  # executions per sample; a sample's seconds are divided by them
    off: Timing | None = None
    on: Timing | None = None
    unfilled: Timing | None = None  # on, with fill_uninitialized_memory off
    op: Timing | None = None  # the op that the row is another spelling of, with the flag off
    off_memory: Count | None = None  # CUDA: peak bytes above what was allocated before the call
    on_memory: Count | None = None


# Where the kernel of an overload comes from, the first that holds.
#
# device      registered for the device's dense tensors
# composite   one for all devices, made of other ops
# layout      registered for the device's tensors of another layout: sparse, quantized, nested, mkldnn
# decomposed  one that is replaced by the ops it is made of before the recorder sees it
# none        there is none for the device: another device's, or a wrapper without one
Kernel = Literal["device", "composite", "layout", "decomposed", "none"]
# What an overload writes into: a new tensor (or a view), an argument it changes, the argument `out`.
Writes = Literal["new", "in_place", "out"]


class KernelGroup(Record, frozen=True):
    """Overloads of one sort."""

    kernel: Kernel
    writes: Writes
    names: tuple[str, ...]  # as the schema has them: "aten::add.Tensor"


class BuildOverloads(Record, frozen=True, tag="kernels", tag_field="kind"):
    """Every overload of the scanned build, each in one group; none if *message* says why they are not known."""

    groups: tuple[KernelGroup, ...]
    message: str | None = None
    alerts: tuple[str, ...] = ()  # callers that alerts compiled into the build name; none: not known


class Reached(Record, frozen=True):
    """What one execution under a recorder reached in one mode."""

    overloads: tuple[str, ...]  # in the order of their first call; the last one may have raised
    # The caller of each alert, and the overload that raised it; None: one that the recorder does not see.
    alerts: tuple[tuple[str, str | None], ...] = ()
    message: str | None = None  # what ended it, if not an alert


class Dispatch(OfRow, frozen=True, tag="dispatch", tag_field="kind"):
    """The overloads one row reaches, in an execution of its own that is not compared with any other."""

    outcome: Outcome  # ran: it was executed, whatever came of it
    message: str | None = None  # why it was not
    modes: dict[Mode, Reached] = field(default_factory=dict)  # warn_only only of a row that raises


class Tried(Record, frozen=True):
    """What a row gave at one value of a property."""

    value: str  # "3", "8 last", "transposed args[0]"
    outcome: Trial
    executions: Count = 0
    outputs: tuple[Output, ...] = ()  # the compared tensors that differed from those of the baseline
    message: str | None = None


class Invariance(OfRow, frozen=True, tag="invariance", tag_field="kind"):
    """A row, or a control, tried at each value of one property, with the flag off and in one process."""

    what: Property = field(name="property")
    outcome: Outcome
    message: str | None = None  # why it was not tried
    # What the values are held against: "2 threads", "48 items", "the inputs as drawn".
    baseline: str | None = None
    left_out: tuple[str, ...] = ()  # gradients that are summed over the batch
    executions: Count = 0  # of the baseline, before and behind those of the values
    differing: Count = 0  # of those, from the first one
    trials: Annotated[tuple[Tried, ...], Meta(max_length=MOST_NAMES)] = ()
    worker: Count = 0  # of a merged file: one of the part that asked
