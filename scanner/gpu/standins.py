"""Sources of stand-ins for the NVIDIA libraries that a build of PyTorch needs, from the symbol tables of the build.

The runtime and what host code reads of other libraries are written by hand (``runtime/*.c``). Of every other function
there is a stub: one that computes is written down by its name, one that makes a handle or tells a size does so.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from detmatrix.scanner.elf import MAGIC, Section, sections, text
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.gpu.build import SharedLibrary
from detmatrix.scanner.gpu.device import GpuTable, as_header

_HERE = Path(__file__).with_name("runtime")
_RUNTIME = "libcudart.so.13"
_MANAGEMENT = "libnvidia-ml.so.1"
# Libraries whose symbols come without a version, which would name the library; the first that matches.
_NAMED_ALIKE = (
    *("cusparseLt", "nccl", "cupti", "cublasLt", "cublas", "cudnn", "cusparse", "cufft", "cusolver", "nvrtc"),
)
_PREFIXES = {one: f"lib{one}" for one in _NAMED_ALIKE}
_PREFIXES |= {"cuFile": "libcufile", "nvshmem": "libnvshmem_host", "__cuda": "libcudart", "cuda": "libcudart"}
_NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so")
_DRIVER = re.compile(r"cu[A-Z]")
# Functions that compute nothing: they make, set, tell or free.
_QUIET = re.compile(
    r"Create(?!Identity)|_create|Destroy|_destroy|Restore|[SG]et(?!Matrix|Vector)|Version|[Bb]uffer_?[Ss]ize"
    r"|Workspace|workEst|Heuristic|Init|Check|Finalize|MakePlan|PlanInit|Free|egister|Group|Comm|NameExpr"
    r"|^cupti|^nvshmem(x|id)?_(init|info|ptr|mc_ptr|team|selected|hostlib|set|get_unique|cumodule|malloc|free)"
)
# Arguments by which a function returns something, counted among those in integer registers: h a handle, 8 and 4 a zero
# of so many bytes.
_RESULTS = {
    r"cudnnDropoutGetStatesSize": "81",
    r"cudnnGetBatchNormalizationBackwardExWorkspaceSize": "810",
    r"cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize|cudnnGetCTCLossWorkspaceSize": "88",
    r"cudnnGetBatchNormalizationTrainingExReserveSpaceSize|cudnnGetCTCLossWorkspaceSize_v8": "85",
    r"cudnnGetConvolution\w+WorkspaceSize|cusparseX(coo|csr)sort_bufferSizeExt": "86",
    r"cudnnGetRNNTempSpaceSizes": "84 85",
    r"(cudnnGetStream|cublasGetMathMode|cublasGetPointerMode_v2)": "41",
    r"cublasLtMatmulAlgoConfigGetAttribute": "84",
    r"cublasLtMatmulAlgoInit": "h8",
    r"cufftXtMakePlanMany": "812",
    r"cusolverDn[SDCZ](geqrf|getrf|potrf)_bufferSize": "45",
    r"cusolverDn[SDCZ]gesvd_bufferSize": "43",
    r"cusolverDn[SDCZ]sytrf_bufferSize": "44",
    r"cusolverDn[SDCZ](sy|he)evd_bufferSize|cusolverDn[SDCZ](sy|he)evjBatched_bufferSize": "47",
    r"cusolverDn[SDCZ](or|un)gqr_bufferSize": "47",
    r"cusolverDn[SDCZ]((or|un)mqr|gesvdjBatched)_bufferSize": "411",
    r"cusolverDn[SDCZ]gesvdj_bufferSize": "412",
    r"cusolverDn[SDCZ]gesvdaStridedBatched_bufferSize": "416",
    r"cusolverDnXgeev_bufferSize": "817 818",
    r"cusolverDnXgeqrf_bufferSize": "810 811",
    r"cusolverDnXpotrf_bufferSize": "88 89",
    r"cusolverDnX(syevd|syevBatched|sytrs)_bufferSize": "811 812",
    r"cusparse[SDCZ]bsrsm2_bufferSize": "413",
    r"cusparse[SDCZ]bsrsv2_bufferSize": "411",
    r"cusparse[SDCZ]csrgeam2_bufferSizeExt": "819",
    r"cusparse(SDDMM|SpMM|SpSM)_bufferSize": "810",
    r"cusparseSp(MV|SV)_bufferSize": "89",
    r"cusparseSpGEMM_(compute|workEstimation)": "811",
    r"cusparseSpMatGetSize": "81 82 83",
    r"cusparseLtMatmulGetWorkspace": "82",
    r"cusparseLtSpMMACompressedSize2": "82 83",
    r"cuda\w+|cusparseLt\w+": "",
    r"(cu|nv|nccl)\w*Create(?!Identity)\w*|ncclCommInit\w+|cusparse\w+_createDescr": "h0",
}
_TEXT = re.compile(r"Get(ErrorString|LastError(String)?|StatusString|ResultString|ErrorName)$")
# What is written by hand takes the place of a stub, which is weak.
_HEAD = """int gpu_unknown(const char *name);
int gpu_unsupported(const char *name);
long gpu_standin(const char *name, const char *results, int computes, long *a);
#define A(n) long a##n
#define WEAK __attribute__((weak))
#define STUB(name, results, computes) WEAK long name(A(0), A(1), A(2), A(3), A(4), A(5), A(6), A(7), A(8), A(9), A(10), A(11), \\
    A(12), A(13), A(14), A(15), A(16), A(17), A(18), A(19)) { \\
    long a[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19}; \\
    return gpu_standin(#name, results, computes, a); }
"""


def sources(
    folder: Path, of: GpuTable, versions: dict[str, int]
) -> tuple[dict[str, str], list[SharedLibrary]]:
    """Return files and libraries of the stand-ins of a build, made for *versions* of libraries, in the order they are to be loaded in.

    Raises:
        UsageError: It is no build for CUDA 13.
    """
    wanted, versioned = _wanted(folder)
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(_HERE.glob("*.[ch]"))}
    files["device.h"] = as_header(of) + "".join(
        f"#define {name}_VERSION {number}\n" for name, number in versions.items()
    )
    order = sorted(wanted, key=lambda name: name != _RUNTIME)
    libraries = []
    for name in order:
        stem, version = name.partition(".")[0].removeprefix("lib"), versioned.get(name, "")
        stubs = [_stub(name, symbol) for symbol in sorted(wanted[name])]
        files[f"{stem}-stubs.c"] = _HEAD + "\n".join(stubs) + "\n"
        files[f"{stem}.map"] = f"{version} {{ global: *; }};\n"
        own = (f"{stem}.c",) if f"{stem}.c" in files else ()
        linked = ("-ldl",) if name == _RUNTIME else (_RUNTIME, "-lm")
        script = (f"-Wl,--version-script,{stem}.map",) if version else ()
        flags = ("-O1", f"-Wl,-soname,{name}", *script, *linked)
        libraries.append(SharedLibrary(name, (f"{stem}-stubs.c", *own), flags))
    files["order.txt"] = "".join(f"{name}\n" for name in order)
    return files, libraries


def _stub(library: str, symbol: str) -> str:
    if library.startswith(("libcudart.", "libcuda.", _MANAGEMENT)):
        function = "gpu_unsupported" if library == _RUNTIME else "gpu_unknown"
        return f'WEAK int {symbol}(void) {{ return {function}("{symbol}"); }}'
    if _TEXT.search(symbol):
        return f'WEAK const char *{symbol}(void) {{ return "an error of a library that is not simulated"; }}'
    results = next((of for pattern, of in _RESULTS.items() if re.fullmatch(pattern, symbol)), "")
    return f'STUB({symbol}, "{results}", {int(not _QUIET.search(symbol))})'


def _wanted(folder: Path) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Return which functions the libraries of a folder want of each NVIDIA library, and the version of its symbols, if they have one."""
    wanted: dict[str, set[str]] = defaultdict(set)
    versions: dict[str, str] = {}
    unversioned: set[str] = set()
    for path in sorted(folder.glob("*.so*")):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[: len(MAGIC)] != MAGIC:
                continue
            for name in filter(_NVIDIA.match, _needed(data)):
                wanted[name] = wanted[name]  # perhaps it wants no function of it
            for symbol, version, library in _undefined(data):
                if _NVIDIA.match(library):
                    wanted[library].add(symbol)
                    versions[library] = version
                elif not library:
                    unversioned.add(symbol)
    if _RUNTIME not in wanted:
        raise UsageError(
            f"{folder}: is no build of torch for CUDA 13, the only one whose GPU can be simulated"
        )
    # Both are looked for by name while torch runs; those of a real driver would tell of real GPUs.
    wanted["libcuda.so.1"] = wanted["libcuda.so.1"]
    management = folder / "libc10_cuda.so"
    named = re.findall(rb"\0(nvml[A-Z]\w+)(?=\0)", management.read_bytes() if management.exists() else b"")
    wanted[_MANAGEMENT] |= {name.decode() for name in named}
    for symbol in unversioned:
        stem = next((lib for prefix, lib in _PREFIXES.items() if symbol.startswith(prefix)), "")
        name = next((one for one in sorted(wanted) if one.startswith(f"{stem}.so")), "")
        if name or _DRIVER.match(symbol):
            wanted[name or "libcuda.so.1"].add(symbol)
    return wanted, versions


def _of_type(known: list[Section], kind: int) -> Section | None:
    return next((one for one in known if one.type == kind), None)


def _needed(data: mmap.mmap) -> Iterator[str]:
    """Yield the names of the libraries that an ELF file asks for (DT_NEEDED in the dynamic section)."""
    known = sections(data)
    if dynamic := _of_type(known, 6):
        for at in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
            tag, value = struct.unpack_from("<QQ", data, at)
            if tag == 1:
                yield text(data, known[dynamic.link].offset + value)


def _undefined(data: mmap.mmap) -> Iterator[tuple[str, str, str]]:
    """Yield symbol, version and library of what an ELF file wants of others; the latter two may be empty."""
    known = sections(data)
    symbols, versym, needed = (_of_type(known, kind) for kind in (11, 0x6FFFFFFF, 0x6FFFFFFE))
    if symbols is None:
        return
    strings, versions = known[symbols.link].offset, {}
    at = needed.offset if needed else 0
    for _ in range(needed.info if needed else 0):
        _, count, library, step, following = struct.unpack_from("<HHIII", data, at)
        one = at + step
        for _ in range(count):
            _, _, number, name, further = struct.unpack_from("<IHHII", data, one)
            versions[number] = (text(data, strings + name), text(data, strings + library))
            one += further
        at += following
    table = struct.iter_unpack("<IBBHQQ", data[symbols.offset : symbols.offset + symbols.size])
    for place, (name, _, _, section, _, _) in enumerate(table):
        if name and not section:
            (number,) = struct.unpack_from("<H", data, versym.offset + 2 * place) if versym else (1,)
            yield (text(data, strings + name), *versions.get(number & 0x7FFF, ("", "")))
