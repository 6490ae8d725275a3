"""What ``locate`` found in programs that nobody ran, by the file that they would be: goldens show all that is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detmatrix.scanner.located import (
    COMPILED_IN_ONE,
    CodeLine,
    Distance,
    Located,
    OpSite,
    Parting,
    Phase,
    Root,
    SentinelSeen,
)

LINE = CodeLine("train.py", 12, "forward")
SITE = OpSite("aten::index_put", "backward", LINE, None, "Net.gather", "IndexBackward0")
ROOT = Root(
    SITE, "replay", ("float32[16, 8]",), first=10, calls=6, differing_calls=5, executions=20, differing=16, outputs=(0,),
    distance=Distance(128, 64, 0.5, 7), reached=3, flag="cured",
)  # fmt: skip
FOUND = Located(
    torch="2.11.0+cpu",
    python="3.11.7",
    threads=2,
    replays=4,
    ops=50,
    replayed=48,
    left_out={"take part in communication": 2},
    left_out_ops={"take part in communication": ("c10d::allreduce_",)},
    sentinels=(SentinelSeen("aten::index_put", "cpu", 32, 30),),
    roots=(ROOT,),
)
_MINE = replace(SITE, op="mine::op")
# What a root may be, of which what is said, and what is to be done, hangs on the cause and the flag.
_ROOTS: list[dict[str, Any]] = [
    *({"flag": flag} for flag in ("raises", "filled", "differs", "failed", "rare", None)),
    {"flag": "raises", "alert": "index_put_", "site": replace(SITE, op="aten::put_", phase="forward", node=None)},
    # Of an op whose rows do one thing or another by their arguments, and none of them what was seen.
    *({"flag": flag, "site": replace(SITE, op="aten::put_", phase="forward", node=None)} for flag in ("differs", None)),
    {"cause": "unwritten", "origin": "aten::empty", "flag": None, "reached": 1},
    {"cause": "changed", "argument": "self"},
    {"cause": "generator"},
    {"cause": "generator", "argument": "generator"},
    {"cause": "input", "argument": "self", "numbers": 2},
    {"cause": "input", "origin": "random, numpy.random"},
    {"cause": "input", "argument": "size=[5] against size=[7]"},
    {"cause": "schedule", "site": replace(SITE, op="triton::add_up"), "flag": None},
    {"cause": "schedule", "origin": "blocks", "saved": "kept/root-1.pt (900 bytes)"},
    {"site": OpSite("aten::put_", "forward", None, CodeLine("/lib/nn.py", 3, "put"), None, None), "distance": Distance()},
    {"site": replace(SITE, library=CodeLine("/lib/nn.py", 3, "put"), phase="recomputed", node=None), "tensors": ()},
    {"cause": "runs", "site": replace(SITE, op="compiled::Net"), "in_runs": (2, 3), "origin": COMPILED_IN_ONE},
    {"cause": "runs", "in_runs": (3,), "origin": "x"},
]  # fmt: skip
_HOSTILE = "<script>|`x`\x1b[31m\n# y"
_BAD = OpSite(_HOSTILE, "forward", CodeLine(_HOSTILE, 1, _HOSTILE), None, _HOSTILE, None)
_COMPILED = replace(SITE, op="compiled::Net")
# Call sites of which a simulated GPU showed each verdict there is.
_SUSPECTS: tuple[tuple[str, Phase], ...] = (
    ("aten::index_add", "forward"), ("aten::bincount", "forward"), ("aten::embedding_dense_backward", "backward"),
    # By the row of the op itself, which is one of a forward phase.
    ("aten::index_add", "backward"), ("aten::put", "backward"), ("aten::max_pool3d_with_indices_backward", "backward"),
    # What hangs in the backward phase of cumprod is a cumulative sum or product: this is none.
    ("aten::sum.dim_IntList", "backward"),
    ("aten::scatter.reduce", "forward"),  # with rows of two findings
    ("aten::convolution", "forward"), ("aten::addmm", "forward"), ("aten::bmm", "forward"), ("mine::op", "forward"),
)  # fmt: skip
SETTINGS = {
    "torch.use_deterministic_algorithms": "True, warn_only", "CUBLAS_WORKSPACE_CONFIG": ":16:8", "random": "drawn from",
    "torch.backends.cudnn.benchmark": "True", "torch.backends.cudnn.deterministic": "False", "PYTHONHASHSEED": "7",
    "torch.compile": "autotuning", "torch.manual_seed": "not called", "NCCL_ALGO": "Ring", "threads": "2", _HOSTILE: _HOSTILE,
    "scaled_dot_product_attention": "flash, math", "torch.utils.data.DataLoader": "1 without a generator",
}  # fmt: skip
# Programs -> the options of ``locate`` that they are shown with, and what is found.
PROGRAMS: dict[str, tuple[str, Located]] = {
    "roots.py": ("", replace(FOUND, roots=(ROOT, *(replace(ROOT, **{"site": _MINE} | changes) for changes in _ROOTS)), runs=3, compared=40, settings=SETTINGS)),
    "replayed.py": (
        "",
        replace(FOUND, thread_ops=3, processes=1, compiled=("train.py:3",), outside=2, outside_site=SITE, ended=_HOSTILE),
    ),
    "quiet.py": ("", replace(FOUND, roots=(), bound=False, left_out={}, sentinels=(SentinelSeen("aten::index_put", "cpu", 32, 8),))),
    "parting.py": (
        "--runs 2",
        replace(
            FOUND, roots=(replace(ROOT, site=_BAD, tensors=(_HOSTILE,)),), runs=2, compared=30, propagated=2,
            partings=(Parting(SITE, None, 1, 0, 2), Parting(_COMPILED, _BAD, 1, 5, 2), *[Parting(SITE, SITE, 1, 1, 2)] * 5),
        ),
    ),
    "records.py": ("", replace(FOUND, runs=2, compared=30, records=("a.ops (torch 2.11.0)", "b.ops (torch 2.12.0)"))),
    "apart.py": ("", replace(FOUND, roots=(), runs=2, records=("a.ops", "b.ops"))),
    "ranks.py": ("", replace(FOUND, torch="1.0", roots=(replace(ROOT, in_runs=(0, 3)),), ranks=4)),  # of a release that nobody has scanned
    "simulated.py": (
        "",
        replace(FOUND, simulated=True, device="sm_80", race_free=3, launches=2, sentinels=(SentinelSeen("aten::scatter_add", "cuda", 4, 4),)),
    ),
    "suspects.py": (
        "--suspects",
        replace(
            FOUND, torch="2.15.0+cu130", replays=0, roots=(), device="sm_80", ended="ValueError: no",
            called=tuple((OpSite(op, phase, LINE, None, "Net", None), 2) for op, phase in _SUSPECTS),
        ),
    ),
}  # fmt: skip
