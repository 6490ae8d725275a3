"""The algorithms of cuDNN's older API, and what its headers and its documentation say of each."""

from __future__ import annotations

# What is said of them, by ``cudnn_ops_v9.h`` of 9.28 in its comments. Headers up to 9.20 say it of those that are
# non-deterministic alone.
_SAID = {
    "FWD": dict.fromkeys(
        (
            *("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT"),
            *("FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
        ),
        "unknown",
    ),
    "BWD_DATA": {
        "0": "non-deterministic",
        **dict.fromkeys(("1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"), "deterministic"),
    },
    "BWD_FILTER": {
        "0": "non-deterministic",
        "1": "deterministic",
        "FFT": "deterministic",
        "3": "non-deterministic",
        "WINOGRAD": "not implemented",
        "WINOGRAD_NONFUSED": "deterministic",
        "FFT_TILING": "deterministic",
    },
}
# "Odds and Ends", section "Reproducibility (Determinism)", names these as not reproducible.
GUIDE = "https://docs.nvidia.com/deeplearning/cudnn/latest/developer/misc.html"
_NAMED = {"BWD_FILTER_ALGO_0", "BWD_FILTER_ALGO_3", "BWD_DATA_ALGO_0"}

# Name, engine, what the headers say, what the guide says. Neither says which engine an algorithm became.
ALGORITHMS = [
    (
        f"CUDNN_CONVOLUTION_{operation}_ALGO_{name}",
        "unknown",
        said,
        "not reproducible" if f"{operation}_ALGO_{name}" in _NAMED else "unknown",
    )
    for operation, names in _SAID.items()
    for name, said in names.items()
] + [
    ("CUDNN_CTC_LOSS_ALGO_DETERMINISTIC", "none: no convolution", "deterministic", "unknown"),
    (
        "CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC",
        "none: no convolution",
        "non-deterministic",
        "not reproducible",
    ),
]
