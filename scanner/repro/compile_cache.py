"""The script that shows a backward phase out of the compile cache that differs with the flag on throughout."""

from __future__ import annotations

SCRIPT = '''"""Shows a backward out of the compile cache that differs run to run, with the flag on throughout and no error.

One process fills a cache folder: torch.use_deterministic_algorithms(True) in forward, False at the first backward.
A later one, with the flag on throughout, takes that backward from the cache: the cache's key holds the flag of forward
alone. Needs only torch and, on the CPU, a C++ compiler. Written by detmatrix repro.

Exit code 1: that one differs, and one with a fresh cache does not; 0: this was not seen; 3: nothing could be compiled or run.
"""

import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_PROC_BIND", "true")  # threads that share a core hardly ever race
EXECUTIONS = 50


def observe(flag_in_backward):
    """In a process of its own, compile, execute forward and backward again and again, and print what is seen."""
    import torch
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    table, ids = torch.randn(64, 32, requires_grad=True), torch.randint(64, (20000,))
    upstream = torch.randn(20000, 32)
    embedding = torch.compile(torch.nn.functional.embedding)
    gradients = []
    for _ in range(EXECUTIONS):
        torch.use_deterministic_algorithms(True)
        output = embedding(ids, table)
        torch.use_deterministic_algorithms(flag_in_backward)
        gradients += torch.autograd.grad(output, table, upstream)
    differing = sum(not torch.equal(one, gradients[0]) for one in gradients)
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {EXECUTIONS} executions in each process")
    print(f"{differing} of {EXECUTIONS} differ from the first, {hits} cache hits, no error")


def child(text, folder, flag_in_backward):
    """Have a process observe with a cache folder; print and return what it sees, where an error would end it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, flag_in_backward],
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        why = next((line for line in lines if "Error" in line or "compiler" in line), lines[-1])
        print(f"{text}: failed: {why.strip()[:200]}", file=sys.stderr)
        sys.exit(3)
    about, seen = done.stdout.splitlines()
    print(f"{text}: {seen}", flush=True)
    return about, int(seen.split()[0])


def main():
    """Run a process with a cache of its own, and two that share one."""
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as shared:
        about, control = child("flag on throughout, fresh cache", fresh, "on")
        child("flag on in forward, off in backward, fills a cache", shared, "off")
        _, differing = child("flag on throughout, with that cache", shared, "on")
    print(about)
    return int(differing > 0 and control == 0)


if __name__ == "__main__":
    if sys.argv[1:]:
        observe(sys.argv[1] == "on")
    else:
        sys.exit(main())
'''
