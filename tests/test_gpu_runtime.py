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
LIBRARIES = {"libcudart.so.13": ("cuda",), "libcudnn.so.9": ("cudnn",), "libcublas.so.13": ("cublas",)}
# The process of a worker, whose interpreter is a thread that writes down what it is asked; it holds each answer against the right one.
WORKER = (DATA / "worker.py.txt").read_text(encoding="utf-8")


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
