"""The stand-in for CUDA's runtime, called as compiled CUDA code calls it; the cache it is compiled into; its process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from detmatrix.scanner.errors import UntrustedScanError, UsageError
from detmatrix.scanner.gpu import build, process
from detmatrix.scanner.gpu.build import SharedLibrary, built
from detmatrix.scanner.gpu.device import device
from detmatrix.scanner.gpu.process import GpuProcess, StandIns
from detmatrix.scanner.gpu.standins import sources
from detmatrix.scanner.processes.process import WorkerSupervisor
from tests.gpu_machine import DATA

# What nvcc makes of a kernel, a variable and a launch, without nvcc; and calls of what is not simulated.
CALLER = DATA / "caller.c"
# Of each library how the functions begin that the caller calls.
LIBRARIES = {
    "libcudart.so.13": ("cuda",),
    "libcudnn.so.9": ("cudnn",),
    "libcublas.so.13": ("cublas",),
}
# The process of a worker, whose interpreter is a thread that writes down what it is asked; it holds each answer against the right one.
WORKER = """
import ctypes, json, os, socket, struct, sys, threading
from detmatrix.scanner.worker import simulated
folder, caller = sys.argv[1:]
ours, theirs = socket.socketpair()
memory = os.memfd_create("device")
os.ftruncate(memory, 16 << 30)
BASE = 0x7A0000000000
asked = []

def same(found, expected):
    assert found == expected, (found, expected)

def take(size):
    data = b""
    while len(data) < size:
        data += ours.recv(size - len(data)) or sys.exit()
    return data

def serve():
    while True:
        kind, size = struct.unpack("<II", take(8))
        data = take(size)
        asked.append((kind, data))
        status, reply = 0, b""
        if kind == 2:
            reply = struct.pack("<8iI4I", 40, 16, 0, 0, 256, 49136, 80, 80, 2, 0, 8, 8, 4)
        elif kind == 3:
            reply = struct.pack("<i", 5)
        elif kind == 4 and b"refused" in data:
            status, reply = 1, b"refused: bad address 0x10 at 0x40"
        elif kind == 5:
            reply = struct.pack("<QQ", BASE + (15 << 30), 4)
        elif kind == 7:
            told = {"launches": ["scale"], "blocks": [3], "names": {}, "conflicts": None, "approximates": True}
            reply = json.dumps({**told, "faults": [{"kind": "fault", "text": "bad"}]}).encode()
        ours.sendall(struct.pack("<II", status, len(reply)) + reply)

threading.Thread(target=serve, daemon=True).start()
simulated.load(folder, theirs.fileno(), memory)
cuda, code = simulated._libraries[0], ctypes.CDLL(caller)
cuda.cudaGetErrorString.restype = cuda.cudaGetErrorName.restype = ctypes.c_char_p
simulated.begin("canonical", 0, 3, 1e9)

def malloc(size, status=0):
    at = ctypes.c_void_p()
    same(cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(size)), status)
    return at.value

def free(at):
    return cuda.cudaFree(ctypes.c_void_p(at))

def memcpy(to, at, size, kind):
    return cuda.cudaMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(at), ctypes.c_size_t(size), kind)

def bytes_at(at, size):
    out = ctypes.create_string_buffer(size)
    same(memcpy(ctypes.addressof(out), at, size, 2), 0)
    return out.raw

# Allocations are aligned and apart, filled with NaN, lie in shared memory, and are limited; copies stay within.
first, second = malloc(100), malloc(1000)
same([first - BASE, second - BASE], [0, 1024])
same(bytes_at(first, 8), b"\\xfa\\x7f" * 4)
same(os.pread(memory, 4, 0), b"\\xfa\\x7f" * 2)
host = ctypes.create_string_buffer(bytes(range(100)))
same([memcpy(first, ctypes.addressof(host), size, 1) for size in (100, 101)], [0, 1])
same(bytes_at(first, 100), bytes(range(100)))
same((cuda.cudaMemset(ctypes.c_void_p(first), 7, ctypes.c_size_t(2)), bytes_at(first, 3)), (0, b"\\7\\7\\2"))
same([free(first), free(first), free(second + 8), malloc(50) == first], [0, 1, 1, True])
same((malloc(9 << 30, 2), cuda.cudaGetErrorName(2)), (None, b"cudaErrorMemoryAllocation"))
cuda.cudaGetLastError()

# A launch sends the fat binary once, asks for the kernel once, and then all that the interpreter needs.
scale, refused, variable = (ctypes.addressof(ctypes.c_char.in_dll(code, n)) for n in ("scale", "refused", "variable"))
code.launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_uint]
asked.clear()
same((code.launch(scale, second, 2.5, 32), code.launch(scale, second, 2.5, 64)), (0, 0))
same([kind for kind, _ in asked], [1, 2, 4, 4])
image, function, launch, _ = (data for _, data in asked)
same(image[8:], struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 8) + b"cubins!\\0")
same(function, image[:8] + b"scale")
head = struct.pack("<6IQII5s", 3, 2, 1, 32, 1, 1, 64, 0, 5, b"scale")
parameters = struct.pack("<IQf", 12, second, 2.5)
same(launch[8:], head + parameters + struct.pack("<I4Q", 2, first, 52, second, 1000))

# What a kernel did wrong is the text of CUDA's error, once; what is not simulated says so by its name.
for kernel, threads, status in ((scale, 512, 701), (variable + 999, 32, 98)):
    same((code.launch(kernel, second, 2.5, threads), cuda.cudaGetLastError()), (status, status))
same(code.launch(refused, second, 2.5, 32), 719)
same([cuda.cudaPeekAtLastError(), cuda.cudaGetLastError(), cuda.cudaGetLastError()], [719, 719, 0])
same(cuda.cudaGetErrorString(719), b"refused: bad address 0x10 at 0x40")
missing = "cudaGraphLaunch: the simulated GPU does not have this function"
same((code.graph(), cuda.cudaGetErrorString(801).decode()), (801, missing))
blocks, driver = ctypes.c_int(), ctypes.c_void_p()
same([(cuda.cudaDeviceGetAttribute(ctypes.byref(blocks), n, 0), blocks.value) for n in (16, 75)], [(0, 108), (0, 8)])
same(cuda.cudaDeviceGetAttribute(ctypes.byref(blocks), 9999, 0), 801)
same(cuda.cudaGetDriverEntryPoint(b"cuNoSuchThing", ctypes.byref(driver), ctypes.c_ulonglong(0), None), 0)
same((ctypes.CFUNCTYPE(ctypes.c_int)(driver.value)(), code.recurrent()), (801, 0))

# Occupancy and the places of variables come from the interpreter, and copies stay within a variable.
occupancy = cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor
same((occupancy(ctypes.byref(blocks), ctypes.c_void_p(scale), 64, ctypes.c_size_t(0)), blocks.value), (0, 5))
value = ctypes.c_uint(0x12345678)
for at, status in ((0, 0), (2, 1)):
    to = (ctypes.c_void_p(variable), ctypes.byref(value), ctypes.c_size_t(4), ctypes.c_size_t(at), 1)
    same(cuda.cudaMemcpyToSymbol(*to), status)
same(os.pread(memory, 4, 15 << 30), bytes(value))

# A cubin is a module whose kernels are launched as PyTorch's own are; PTX, which the driver would compile, is refused.
lib = ctypes.CDLL("libcuda.so.1")
cubin = struct.pack("<5s27xQQ6xHHHH2x", b"\\x7fELF\\2", 64, 64, 56, 0, 64, 1) + struct.pack("<II16xQQ24x", 0, 1, 128, 3) + b"abc"
module, function, place, size, count = (ctypes.c_void_p() for _ in range(5))
by = [ctypes.byref(one) for one in (module, function, place, size, count)]
asked.clear()
same((lib.cuInit(0), lib.cuDeviceGetCount(by[4])), (0, 0))
same([lib.cuModuleLoadData(by[0], data) for data in (b".version 8.0", cubin + b"beyond")], [209, 0])
same((lib.cuModuleGetFunction(by[1], module, b"scale"), lib.cuModuleGetGlobal_v2(by[2], by[3], module, b"v")), (0, 0))
same((place.value - BASE, size.value), (15 << 30, 4))
config = struct.pack("<7I4xQQI4x", 3, 2, 1, 32, 1, 1, 64, 0, 0, 0)
data, scaled = ctypes.c_void_p(second), ctypes.c_float(2.5)
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(scaled))
same((lib.cuLaunchKernelEx(config, function, arguments, None), lib.cuLaunchKernel(function, 3, 2, 1, 32, 1, 1, 64, None, arguments, None)), (0, 0))
same([kind for kind, _ in asked], [1, 2, 5, 4, 4])
image = asked[0][1]
same((image[8:][:5], len(image[8:]), image[-3:]), (b"\\x7fELF\\2", 131, b"abc"))
same([data for _, data in asked[1:]], [image[:8] + one for one in (b"scale", b"v", launch[8:], launch[8:])])
same([(lib.cuFuncGetAttribute(ctypes.byref(blocks), n, function), blocks.value) for n in (0, 1, 4)], [(0, 256), (0, 16), (0, 40)])
host = ctypes.create_string_buffer(8)
same((lib.cuPointerGetAttribute(by[2], 3, data), place.value), (0, second))
same(lib.cuPointerGetAttribute(by[2], 3, host), 1)
same(lib.cuGetProcAddress_v2(b"cuInit", by[1], 13000, ctypes.c_ulonglong(0), None), 801)

# The CPU multiplies what PyTorch hands to cuBLAS, and rounds once: to the nearest, of two to the even one.
exact = (2 * (10 + 2**-13 + 3 * 2**-24) + 2, 2 * (40 + 5 * 2**-14 + 2**-25) - 0.5)
for kind, form in ((0, "f"), (2, "e")):
    c = ctypes.create_string_buffer(struct.pack(f"<2{form}", 4, -1))
    a, b = struct.pack(f"<6{form}", 1, 2, 3, 4, 5, 0.5), struct.pack(f"<3{form}", 10, 2**-14, 2**-24)
    same((code.product(kind, a, b, c), c.raw[:-1]), (0, struct.pack(f"<2{form}", *exact)))

# What was met since is told.
launches, faults, libraries, products, *others = simulated.report()
same(others, [None, [3], {}, False, True, (0, 0), (False, False), "", 0])
same((launches, faults[:2]), (["scale"], [("fault", "bad"), ("unknown", missing)]))
same([text.split(":")[0] for _, text in faults[2:]], [
    "cudaDeviceGetAttribute of attribute 9999",
    "cuNoSuchThing",
    "a library has a CUDA runtime of its own in it; link it with the shared one (nvcc -cudart shared)",
])
same(libraries, ["cudnnRNNForward", "cuModuleLoadData of PTX, which the driver compiles"])
same(products, ["cublasGemmEx"])

# In the class of memory an allocation is filled with other values in each execution, the same for the same number.
fills = []
for number in (0, 1, 2, 0):
    simulated.begin("memory", number, 3, 1e9)
    at = malloc(64)
    fills.append(bytes_at(at, 64))
    free(at)
same(fills[1:], [bytes(64), b"\\xff\\x7b" * 32, fills[0]])
same(len({fills[0][i : i + 8] for i in range(0, 64, 8)}), 8)

# Where nothing is executed memory is as large as that of the device, holds zeros, and takes none of the machine; products are written
# down alone.
simulated.begin("canonical", 0, 3, 1e9, skip=True)
at = malloc(9 << 30)
same([bytes_at(at, 64), bytes_at(at + (9 << 30) - 64, 64)], [bytes(64)] * 2)
c = ctypes.create_string_buffer(8)
same((code.product(0, bytes(24), bytes(12), c), simulated.report()[3]), (0, products))
free(at)

# A child has no GPU, and a worker ends with its interpreter.
child = os.fork()
if not child:
    os._exit(code.launch(scale, second, 2.5, 32) == 719)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ours.shutdown(socket.SHUT_RDWR)
code.launch(scale, second, 2.5, 32)
"""


def test_what_compiled_code_is_answered(tmp_path: Path) -> None:
    """By stand-ins that are made for a library that wants them as a build of torch does."""
    try:
        command = [*build.compiler(), "-shared", "-fPIC"]
    except UsageError as error:
        pytest.skip(str(error))
    declared = re.findall(r"^\w.*?\**(cu\w+|__cuda\w+)\(.*[;,]$", CALLER.read_text(), re.MULTILINE)
    for library, begins in LIBRARIES.items():
        # Empty, to be linked with alone: with the names and the version that NVIDIA's have.
        functions = [f"void {name}(void) {{}}\n" for name in declared if name.lstrip("_").startswith(begins)]
        assert functions
        (tmp_path / f"{library}.c").write_text("".join(functions))
        (tmp_path / f"{library}.map").write_text(f"{library} {{ global: *; }};\n")
        how = (f"-Wl,--version-script,{library}.map", f"-Wl,-soname,{library}")
        subprocess.run([*command, "-o", library, f"{library}.c", *how], cwd=tmp_path, check=True)
    wheel = tmp_path / "lib"
    wheel.mkdir()
    caller = wheel / "caller.so"
    subprocess.run([*command, "-o", caller, CALLER, *LIBRARIES], cwd=tmp_path, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        files, libraries = sources(wheel, device(80), {"RUNTIME": 13020, "CUDNN": 92600, "NCCL": 23007})
        stand_ins = built("test", files, libraries)
    done = subprocess.run(
        [sys.executable, "-c", WORKER, stand_ins, caller], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (process.LOST, "the process of the simulated GPU has ended\n")


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a small library that was compiled into an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        return _built()
    except UsageError as error:
        pytest.skip(str(error))


def _built() -> Path:
    return built(
        "seven", {"seven.c": "int seven(void) { return 7; }"}, [SharedLibrary("seven.so", ("seven.c",))]
    )


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("seven.so", lambda good: good[:-1] + bytes([good[-1] ^ 1]), id="another bit"),
        pytest.param("seven.so", lambda good: good[:100], id="cut"),
        pytest.param("seven.so", None, id="gone"),
        pytest.param("manifest.json", lambda _: b"[]", id="another manifest"),
        pytest.param("manifest.json", None, id="no manifest"),
    ],
)
def test_a_damaged_cache_is_made_anew(
    cached: Path, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    """A cache that is not as it was built is replaced, and what was in its way is gone."""
    file, library = cached / name, cached / "seven.so"
    good = library.read_bytes()
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))

    assert (_built(), library.read_bytes()) == (cached, good)
    assert [path.name for path in cached.parent.iterdir()] == [cached.name]


def test_a_cache_is_used_again_and_shared(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is whole is not compiled again; scans at once that find none have the same one in the end."""
    before = (cached / "seven.so").stat().st_mtime_ns
    assert (_built(), (cached / "seven.so").stat().st_mtime_ns) == (cached, before)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cached.parents[2] / "other"))
    with ThreadPoolExecutor() as threads:
        folders = {future.result() for future in [threads.submit(_built) for _ in range(3)]}

    (folder,) = folders
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler one line says what to install; one that fails is named with its first error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    for compiler, said in (
        ("no-such-compiler", r"^[^\n]*pip install ziglang[^\n]*$"),
        ("false", r"false cannot compile seven.so: exit code 1"),
    ):
        monkeypatch.setenv("CC", compiler)
        with pytest.raises(UsageError, match=said):
            _built()
    assert not list((tmp_path / "detmatrix" / "gpu").iterdir())


@pytest.mark.parametrize(
    ("child", "ending"),
    [
        ("import os; os.read({socket}, 1)", "exit code 0"),
        ("print('no such kernel'); raise SystemExit(3)", "exit code 3; last printed: no such kernel"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL (out of memory?)"),
        ("while True: pass", None),
    ],
)
def test_the_process(child: str, ending: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter ends when the worker's end of the socket does, or when it is stopped, and says how it ended."""
    text = child.format(socket="int(sys.argv[sys.argv.index('--socket') + 1])")
    monkeypatch.setattr(process, "_CHILD", f"import sys; {text}" if ending else child)
    gpu = GpuProcess(StandIns(device(80), Path("/nowhere")))
    for descriptor in gpu.descriptors:
        os.close(descriptor)
    assert ending is None or gpu.ending() == ending
    gpu.stop()
    assert gpu._process.returncode is not None


def test_a_worker_without_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker whose interpreter has ended, the end of the interpreter is told."""
    monkeypatch.setattr(process, "_CHILD", "raise SystemExit('no table')")
    worker = tmp_path / "python"
    worker.write_text(f"#!/bin/sh\nexit {process.LOST}\n")
    worker.chmod(0o700)
    told = r"the simulated GPU ended: exit code 1; last printed: no table"
    with pytest.raises(UntrustedScanError, match=told):
        WorkerSupervisor(str(worker), tmp_path, (), "cuda", StandIns(device(80), tmp_path)).start("off")
