"""What the scripts of ``detmatrix repro`` are made of.

A word in capitals behind a dollar sign is filled in by ``scanner.repro.script``, which also chooses what a row needs.
"""

from __future__ import annotations

import msgspec

# What the alerts say behind the name of their caller (scanner/alerts.py).
ALERT = "does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
CUBLAS_ALERT = "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or"
# What a backward phase says that was compiled with another flag, and refuses to run.
REFUSAL = "This compiled backward function is being run with torch.use_deterministic_algorithms(True)"


class Circumstance(msgspec.Struct, frozen=True, kw_only=True):
    """What brings a perturbation (scanner/worker/perturb.py) about; $BLOCKS and $DEVICE are filled in."""

    imports: tuple[str, ...] = ()
    definition: str = ""
    start: str = ""  # statements before the first execution
    before: str = ""  # and before each


POISON = Circumstance(
    definition='''
def poison(number):
    """Fill memory and free it, with another byte each time, so that reading what was never written shows."""
    sizes = $BLOCKS * 2
    [torch.full((size,), number % 251 + 1, dtype=torch.uint8, device="$DEVICE") for size in sizes]
''',
    before="poison(number)\n",
)
PAUSE = Circumstance(
    imports=("import time",), before="time.sleep(0.015)  # in which the op's threads fall asleep\n"
)
SHIFT = Circumstance(
    imports=("import random",),
    definition='''
def shift(held=[], draws=random.Random(0)):
    """Hold other blocks during each execution, so that what the op allocates lies elsewhere."""
    sizes = [size for size in $BLOCKS for _ in range(draws.randrange(3))]
    held[:] = [torch.empty(size, dtype=torch.uint8, device="$DEVICE") for size in sizes]
''',
    before="shift()\n",
)
STRESS = Circumstance(
    imports=("import threading",),
    definition='''
def burn(data=bytes(1 << 17)):
    """Keep a core busy; hashing lets go of the interpreter lock."""
    if hasattr(os, "sched_setaffinity"):
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5))
    while True:
        hashlib.sha256(data).digest()

def cores_of_parent():
    """Return the cores of the process that started this one, which may be bound to one of them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(os.getppid())) if affinity else range(os.cpu_count() or 1)

def move(threads, cores, number):
    """Keep every other core busy, by turns, so that one of the op's threads is held up against another."""
    for place, thread in enumerate(threads if hasattr(os, "sched_setaffinity") else ()):
        os.sched_setaffinity(thread.native_id, {cores[(2 * place + number + 1) % len(cores)]})
''',
    start="""\
cores = cores_of_parent()
threads = [threading.Thread(target=burn, daemon=True) for _ in cores[::2]]
for thread in threads:
    thread.start()
""",
    before="move(threads, cores, number)\n",
)
STREAM_STRESS = Circumstance(
    start="""\
stream, left = torch.$DEVICE.Stream(), torch.ones(1 << 24, device="$DEVICE")
out = torch.empty_like(left)
torch.$DEVICE.synchronize()
""",
    before="""\
with torch.$DEVICE.stream(stream):  # beside the op's stream, to keep the GPU busy
    for _ in range(32):
        torch.mul(left, 1.0001, out=out)
""",
)

PARTS = '''
def parts(value):
    """Return the dense tensors that together hold all bits of an output."""
'''
# Statements of `parts`: of what they are needed for, and the names (scanner/worker/bits.py) by which that is known.
SEQUENCE = """
if isinstance(value, (tuple, list)):
    return [part for item in value for part in parts(item)]
"""
BRANCHES = {
    r"\.indices": """
if value.layout == torch.sparse_coo:  # not coalesced, which may itself sum in any order
    return [value._indices(), value._values()]
""",
    r"\.crow_indices": """
if value.layout in (torch.sparse_csr, torch.sparse_bsr):
    return [value.crow_indices(), value.col_indices(), value.values()]
""",
    r"\.ccol_indices": """
if value.layout in (torch.sparse_csc, torch.sparse_bsc):
    return [value.ccol_indices(), value.row_indices(), value.values()]
""",
    r"\.scales": """
if value.is_quantized and value.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
    return [value.int_repr(), value.q_per_channel_scales(), value.q_per_channel_zero_points()]
""",
    r"\.int_repr \(scale": """
if value.is_quantized:
    return [value.int_repr(), torch.tensor([value.q_scale(), value.q_zero_point()], dtype=torch.float64)]
""",
}
# For outputs of which nothing is known, before and behind the others.
ANYTHING = """
if isinstance(value, dict):
    value = list(value.values())
if value is None:
    return []
if isinstance(value, (bool, int, float, complex)):
    kind = {float: torch.float64, complex: torch.complex128}.get(type(value))
    return [torch.tensor(value, dtype=kind)]
"""
NESTED = """
if value.is_nested:
    return parts(value.unbind())
"""

FORWARD = """
def execute(args, kwargs):
    torch.manual_seed($SEED)
    with torch.no_grad():
        return $JUDGED
"""
BACKWARD = """
def execute(args, kwargs, leaves):
    torch.manual_seed($SEED)
    output = $CALL
    outputs = $OUTPUTS
    outputs = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    g = torch.Generator().manual_seed($UPSTREAM)  # random, since equal gradients hide a reordered sum
    upstream = [torch.empty_like(o).copy_($DRAWN) for $EACH]
    return $JUDGED
"""
# Where some modes run the op under torch.compile.
COMPILED = """
def call(*args, **kwargs):
    return $OP

if sys.argv[1:] and sys.argv[1] in $OWN:
    cache = tempfile.TemporaryDirectory()  # with what other processes compiled this one would show nothing of its own
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
if sys.argv[1:] and sys.argv[1] in $COMPILED:
    call = torch.compile(call, dynamic=False)
"""
# Before a process of a mode that takes compiled code out of a cache: another one, whose flag is off in the backward phase.
CACHE = """\
        if mode in $CACHED:
            cache = tempfile.TemporaryDirectory()
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
"""
FILL_CACHE = """\
        if mode in $CACHED:
            filler = subprocess.run([*command, "fill_cache"], capture_output=True, text=True$ENV)
            if filler.returncode:
                print(f"fill_cache: error: {error_of(filler)[:100]}")
"""
# Behind the executions of such a process.
TAKEN = """\
    if mode in $CACHED and not torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]:
        sys.exit("nothing was taken from the cache")
"""
# In place of the last line, where the flag is another one in the backward phase.
SWITCHED = """
    switch_flag(sys.argv[1])
    judged = $JUDGED
    switch_flag(sys.argv[1])
    return judged

def switch_flag(mode):
    if mode in $SWITCHED:
        torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())
"""

DIGEST = '''
def digest(tensors):
    """Hash raw bits: a norm misses reordered sums, and NaN, the sign of zero and indices count."""
    sha = hashlib.sha256()
    for t in (t.detach().cpu().clone(memory_format=torch.contiguous_format) for t in tensors):
        sha.update(f"{t.dtype} {tuple(t.shape)}".encode())
        sha.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return sha.hexdigest()
'''

OBSERVE = '''
def observe(mode):
    """In a process of its own, execute again and again under one mode; print the hashes of the outputs."""
    about = f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.get_num_threads()} threads"
    print(about, $WHERE, sep=", ", flush=True)
    torch.use_deterministic_algorithms($FLAG, warn_only=mode == "warn_only")
$CUDNN$UNFILLED$REPEAT$TAKEN'''
REPEAT = """
drawn = inputs()
print(json.dumps([digest(execute(*drawn)) for _ in range(RUNS)]))
"""
REPEAT_DISTURBED = """
drawn, hashes = inputs(), []
$STARTfor number in range(RUNS):
$BEFORE    hashes.append(digest(execute(*drawn)))
print(json.dumps(hashes))
"""

# Where some modes run the op under torch.compile.
REFUSED = """\
    if REFUSAL in error:
        return "refused"
"""
CELL = '''
def verdict_of(error):
    """Tell PyTorch's alert from other errors; a compiler wraps it into errors of its own."""
$REFUSED    return "raises" if "RuntimeError" in error and $ALERTED else "error"

def error_of(child):
    """Return the line that says why a process failed."""
    said = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    alerts = [line[line.find(" RuntimeError") + 1 :] for line in said if verdict_of(line) != "error"]
    last = [line for line in said if "Error: " in line][-1:] or said[-1:]
    return (alerts or last or [f"ended with code {child.returncode}"])[0]

def cell(mode):
    """Print the verdict of a mode, whose processes make one set of outputs; return it and the first output."""
    command, hashes, errors = [sys.executable, "-W", "ignore", __file__], [], []
    for _ in range(PROCESSES):
$CACHE$ENVIRONMENT$FILL_CACHE        child = subprocess.run([*command, mode], capture_output=True, text=True$ENV)
        if child.returncode == 0:
            hashes += json.loads(child.stdout.splitlines()[-1])
        else:
            errors.append(error_of(child))
    if mode == "off":
        print(*child.stdout.splitlines()[:1])
    if errors:
        verdicts = [verdict_of(one) for one in errors]
        verdict = verdicts[0] if mode != "off" and verdicts == verdicts[:1] * PROCESSES else "error"
        print(f"{mode}: {verdict}: {errors[0][:100]}")
        return verdict, None
    differing = len(hashes) - hashes.count(hashes[0])
    verdict = "nondeterministic" if differing else "deterministic"
    print(f"{mode}: {verdict}: {differing} of {len(hashes)} differed, {len(set(hashes))} distinct")
    return verdict, hashes[0]
'''

CUDNN = """\
    torch.backends.cudnn.$SWITCH = mode in $MODES
"""
CHOSEN = """\
    found = {}  # of the modes beside off and on, each held against off
    for mode in $MODES:
        verdict, bits = cell(mode)
        if verdict == off == "deterministic":
            print(f"{mode}: {'the same bits as' if bits == off_bits else 'other bits than'} with the flag off")
        found[mode] = {
            ("deterministic", "deterministic"): "as_off" if bits == off_bits else "mode_dependent",
            ("deterministic", "nondeterministic"): "differs",
            ("nondeterministic", "deterministic"): "fixed_by_mode",
            ("nondeterministic", "nondeterministic"): "also_differs",
        }.get((off, verdict), verdict if verdict in ("raises", "refused") else "inconclusive")
        if verdict == "nondeterministic" and mode in $GUARDED:
            found[mode] = "silent"  # the flag is on in the phase that is compared
        if found[mode] == "mode_dependent" and RUNS * PROCESSES < $LEAST_RUNS:
            found[mode] = "inconclusive (a larger RUNS shows whether it is mode_dependent)"
"""
# Behind the finding of off and on.
FOUND = """\
    for mode, said in found.items():
        print(f"finding in {mode}: {said}")
"""
UNFILLED = """\
    torch.utils.deterministic.fill_uninitialized_memory = mode != "unfilled"
"""
FILLED = """\
    if (off, on) == ("nondeterministic", "deterministic") and cell("unfilled")[0] == "nondeterministic":
        findings[off, on] = "uninitialized"  # the fill of memory cures it, not the flag
"""

MAIN = """
def main():
    (off, off_bits), (on, on_bits) = cell("off"), cell("on")
    warn_only = cell("warn_only")[0] if on == "raises" else None
    findings = {
        ("deterministic", "deterministic"): "deterministic" if off_bits == on_bits else "mode_dependent",
        ("nondeterministic", "deterministic"): "fixed_by_mode",
        ("nondeterministic", "raises"): "raises",
        ("deterministic", "raises"): {"nondeterministic": "raises", "deterministic": "over_alert"}.get(warn_only),
    }
$CHOSEN$FILLED    finding = "silent" if on == "nondeterministic" else findings.get((off, on)) or "inconclusive"
    if finding in $NEED_RUNS and RUNS * PROCESSES < $LEAST_RUNS:
        finding = f"inconclusive (a larger RUNS shows whether it is {finding})"
    print(f"finding$WHOSE: {finding}")
$FOUND
if __name__ == "__main__" and not sys.argv[1:]:
    main()
    sys.exit()  # Its processes alone load torch, which would bind this one to one core, and with it all that it starts.
"""
END = """
if __name__ == "__main__":
    observe(sys.argv[1])
"""
