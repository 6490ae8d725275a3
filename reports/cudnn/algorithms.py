"""The algorithms of cuDNN's older API, and what its headers and its documentation say of each."""

from __future__ import annotations

_HEADER = "cudnn_ops_v9.h: non-deterministic"
_GUIDE = "Odds and Ends, Reproducibility: no guarantee across runs (atomic operations)"
_GUIDE_LINK = "https://docs.nvidia.com/deeplearning/cudnn/latest/developer/misc.html"
_SAID = {
    "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0": f"{_HEADER}; {_GUIDE}",
    "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3": f"{_HEADER}; {_GUIDE}",
    "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD": "cudnn_ops_v9.h: not implemented",
    "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0": f"{_HEADER}; {_GUIDE}",
    "CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC": _GUIDE,
}
_NAMES = (
    *(f"CUDNN_CONVOLUTION_FWD_ALGO_{name}" for name in (
        *("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT"),
        *("FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    )),
    *(f"CUDNN_CONVOLUTION_BWD_DATA_ALGO_{name}" for name in (
        *("0", "1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    )),
    *(f"CUDNN_CONVOLUTION_BWD_FILTER_ALGO_{name}" for name in (
        *("0", "1", "FFT", "3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"),
    )),
    *(f"CUDNN_CTC_LOSS_ALGO_{name}" for name in ("DETERMINISTIC", "NON_DETERMINISTIC")),
)  # fmt: skip

# Neither headers nor documentation say which engine an algorithm became.
ALGORITHMS = [
    {
        "name": name,
        "engine": "unknown",
        "note": _SAID.get(name, "unknown"),
        "link": _GUIDE_LINK if _GUIDE in _SAID.get(name, "") else None,
    }
    for name in _NAMES
]
