"""The algorithms of cuDNN's older API: what its headers and its guide say of each, and the engines that have a note of the same words."""

from __future__ import annotations

from typing import NamedTuple

from scanner.cudnn.problems import Operation, cudnn_operation
from scanner.cudnn.record import EngineTable

# "Odds and Ends", section "Reproducibility (Determinism)": what it says of the calls that it lists.
GUIDE = "https://docs.nvidia.com/deeplearning/cudnn/latest/developer/misc.html"
GUIDE_SAYS = (
    "the following routines do not guarantee reproducibility across runs, even on the same architecture, because they use "
    "atomic operations in a way that introduces truly random floating point rounding errors"
)
# What NVIDIA answered to the question which engine an algorithm became, in 2022, and where else was looked.
ANSWER = "https://github.com/NVIDIA/cudnn-frontend/issues/20"
ANSWER_SAYS = (
    "The legacy algorithms consisted of one or more engines which would be run depending on the convolution problem. The engines "
    "comprising the algorithms are not disjoined sets and hence cannot be directly mapped to an algorithm. That being said one "
    "could query the `cudnnBackendNumericalNote_t ` to determine if the engine is `CUDNN_NUMERICAL_NOTE_WINOGRAD` / "
    "`CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC`, etc."
)
SEARCHED = (
    "Nothing more was found in the headers of 9.26.0, in the guide, by searches of the release notes and API references, nor in "
    "cudnn-frontend (its errata and fallback lists name engines alone), TensorFlow and XLA (an AlgorithmDesc has the number of an "
    "algorithm or of an engine, and says of which) and MXNet (its variables name engines and notes)."
)

_OPERATIONS: dict[str, Operation] = {
    "FWD": "forward",
    "BWD_DATA": "data gradient",
    "BWD_FILTER": "weight gradient",
}
# What a comment says -> the numerical note whose comment in cudnn_graph_v9.h says so of engines: "Engine uses FFT-based
# computation", "Engine uses Winograd transform", "Engine may produce non-deterministic results across runs".
_NOTES = {"FFT": "FFT", "Winograd": "WINOGRAD", "Non-deterministic": "NONDETERMINISTIC"}
_UNKNOWN, _NOT_LISTED = "unknown", "not listed"
_LISTED_FILTER = "cudnnConvolutionBackwardFilter when CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 or CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 is used"


class _Algorithm(NamedTuple):
    operation: str
    name: str
    said: str  # by the comment in cudnn_ops_v9.h of 9.26.0; those of headers up to 9.20 are shorter
    listed: str = _NOT_LISTED  # the line of the guide's list


_ALGORITHMS = (
    _Algorithm(
        "FWD",
        "IMPLICIT_GEMM",
        "Implicit GEMM: matrix product without forming input matrix. No extra workspace.",
    ),
    _Algorithm(
        "FWD",
        "IMPLICIT_PRECOMP_GEMM",
        "Implicit GEMM with precomputed indices. Needs workspace for index precomputation.",
    ),
    _Algorithm(
        "FWD", "GEMM", "Explicit GEMM: forms input matrix explicitly. Requires significant workspace."
    ),
    _Algorithm("FWD", "DIRECT", "Direct convolution without matrix multiplication."),
    _Algorithm("FWD", "FFT", "FFT-based convolution. Requires significant workspace."),
    _Algorithm(
        "FWD",
        "FFT_TILING",
        "FFT with tiled inputs. Significant workspace but less than FFT for large inputs.",
    ),
    _Algorithm("FWD", "WINOGRAD", "Winograd transform. Moderate workspace. Not supported on Hopper+."),
    _Algorithm("FWD", "WINOGRAD_NONFUSED", "Winograd non-fused variant. May require significant workspace."),
    _Algorithm(
        "BWD_DATA",
        "0",
        "Sum of matrix products with atomic adds. Non-deterministic.",
        "cudnnConvolutionBackwardData when CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 is used",
    ),
    _Algorithm("BWD_DATA", "1", "Implicit GEMM without forming input matrix. Deterministic."),
    _Algorithm("BWD_DATA", "FFT", "FFT-based. Significant workspace. Deterministic."),
    _Algorithm("BWD_DATA", "FFT_TILING", "FFT with tiling. Significant workspace. Deterministic."),
    _Algorithm(
        "BWD_DATA", "WINOGRAD", "Winograd transform. Moderate workspace. Deterministic. Not on Hopper+."
    ),
    _Algorithm("BWD_DATA", "WINOGRAD_NONFUSED", "Winograd non-fused. Significant workspace. Deterministic."),
    _Algorithm(
        "BWD_FILTER",
        "0",
        "Sum of matrix products with atomic adds. Non-deterministic.",
        _LISTED_FILTER,
    ),
    _Algorithm("BWD_FILTER", "1", "Implicit GEMM without forming input matrix. Deterministic."),
    _Algorithm("BWD_FILTER", "FFT", "FFT-based. Significant workspace. Deterministic."),
    _Algorithm(
        "BWD_FILTER",
        "3",
        "Like ALGO_0 with precomputed indices. Non-deterministic.",
        _LISTED_FILTER,
    ),
    _Algorithm("BWD_FILTER", "WINOGRAD", "Winograd transform (not implemented)."),
    _Algorithm(
        "BWD_FILTER", "WINOGRAD_NONFUSED", "Winograd non-fused. Significant workspace. Deterministic."
    ),
    _Algorithm("BWD_FILTER", "FFT_TILING", "FFT with tiling. Significant workspace. Deterministic."),
)
_CTC = (
    [
        "CUDNN_CTC_LOSS_ALGO_DETERMINISTIC",
        "none: no convolution",
        "none",
        "Deterministic CTC loss.",
        _NOT_LISTED,
    ],
    [
        "CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC",
        "none: no convolution",
        "none",
        "Non-deterministic CTC loss.",
        "cudnnCTCLoss and cudnnCTCLoss_v8 when CUDNN_CTC_LOSS_ALGO_NON_DETERMINSTIC is used",
    ],
)


def algorithm_lines(table: EngineTable) -> list[list[str]]:
    """Return of each algorithm its name, its engine, the note that its words mean and the engines that have it, and the words.

    No source leads from an algorithm to an engine. An engine with the note need not be one of the algorithm's.
    """
    lines = []
    for one in _ALGORITHMS:
        note = next((note for word, note in _NOTES.items() if word in one.said), None)
        with_note = _UNKNOWN if note is None else f"{note}: {_with_note(table, one.operation, note)}"
        name = f"CUDNN_CONVOLUTION_{one.operation}_ALGO_{one.name}"
        lines.append([name, _UNKNOWN, with_note, one.said, one.listed])
    return [*lines, *_CTC]


def _with_note(table: EngineTable, operation: str, note: str) -> str:
    """Return the engines of an operation that have a note in any cell."""
    numbers = {
        engine.number
        for cell in table.cells
        if cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed)
        == _OPERATIONS[operation]
        for engine in cell.engines
        if note in engine.notes
    }
    return f"engine {', '.join(map(str, sorted(numbers)))}" if numbers else "no engine accepted"
