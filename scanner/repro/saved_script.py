"""The script that executes an op on inputs that ``detmatrix locate --save`` has kept."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = '''"""Executes an op again and again on the inputs that it had in a program: needs only torch.

Written by detmatrix repro. Exit code 1: it gave other bits; 0: it did not; 2: nothing was compared, which a line explains.
"""

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys

# Threads that share a core hardly ever race.
os.environ.setdefault("OMP_PROC_BIND", "true")

SAVED = $PATH
EXECUTIONS = 100
SECONDS = 600


def line(text):
    """Return the first line of a text, without what a terminal would obey."""
    return "".join(one if one.isprintable() else "?" for one in str(text).strip().partition("\\n")[0][:1000])


def refuse(text):
    """End in one line."""
    print(line(text), file=sys.stderr)
    sys.exit(2)


def watched():
    """Call main in a process of its own: an op that is given what it was never meant to be may take the process with it."""
    try:
        code = subprocess.run([sys.executable, __file__, "--here"], timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        refuse(f"{SAVED}: the op did not end in {SECONDS} seconds")
    if code < 0:
        refuse(f"{SAVED}: the op ended its process with {signal.Signals(-code).name}")
    return code


if __name__ == "__main__" and sys.argv[1:] != ["--here"]:
    sys.exit(watched())

import torch


def argument(value):
    """Return an argument as the op was given it."""
    if isinstance(value, dict):
        kind = value["torch"]
        known = {str(one): one for one in vars(torch).values() if isinstance(one, (torch.dtype, torch.layout, torch.memory_format))}
        return known[kind] if kind in known else torch.device(kind)
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [argument(one) for one in value] if isinstance(value, (list, tuple)) else value


def tensors(value):
    """Return the tensors in what an op was given or returned."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for item in value for one in tensors(item)] if isinstance(value, (list, tuple)) else []


def bits(tensor):
    """Return the bytes of a tensor."""
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())


def execute(op, saved):
    """Execute the op on fresh copies; return the bytes of what it returned and of what it was given."""
    torch.manual_seed(0)
    args = [argument(one) for one in saved["args"]]
    kwargs = {name: argument(one) for name, one in saved["kwargs"].items()}
    result = op(*args, **kwargs)
    return [bits(one) for one in tensors([result, args, list(kwargs.values())])]


def operator(saved):
    """Return the op that the file names: one of the dispatcher's that is given a tensor, and nothing else."""
    name = saved["op"]
    if not re.fullmatch(r"\\w+::\\w+([.]\\w+)?", name) or not tensors([saved["args"], list(saved["kwargs"].values())]):
        refuse(f"{SAVED}: holds no inputs of an op")
    if not torch._C._dispatch_has_kernel(name):
        refuse(f"{name}: this torch has no such op; import what defines it at the top of this script")
    namespace, _, name = name.partition("::")
    name, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def main():
    """Print how often the op differed, with the flag off and on."""
    try:
        saved = torch.load(SAVED, weights_only=True)
        op, version = operator(saved), line(saved["torch"])
    except Exception as error:
        refuse(f"{SAVED}: is no file that detmatrix locate --save wrote ({type(error).__name__})")
    print(f"{saved['op']}, recorded with torch {version}, executed {EXECUTIONS} times with torch {torch.__version__}")
    differing = {}
    for flag in (False, True):
        torch.use_deterministic_algorithms(flag)
        try:
            first = execute(op, saved)
            differing[flag] = sum(execute(op, saved) != first for _ in range(EXECUTIONS - 1))
            text = f"{differing[flag]} of {EXECUTIONS - 1} differed from the first"
        except Exception as error:
            text = f"raised {type(error).__name__}: {line(error)}"
        print(f"flag {'on' if flag else 'off'}: {text}")
    return int(bool(differing[False])) if False in differing else 2


if __name__ == "__main__":
    if not torch.cuda.is_available():
        # What the machine has, and no more.
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    sys.exit(main())
'''


def saved_script(path: Path) -> str:
    """Return the script for a file of inputs; nothing that the file says is in it."""
    return _SCRIPT.replace("$PATH", repr(str(path.resolve())))
