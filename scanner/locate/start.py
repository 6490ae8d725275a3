"""What the interpreter of the program is started with: ``python start.py REQUEST``, the request being JSON.

Our modules are loaded from where they lie, whatever the program's path holds, and are taken out of the table of modules
before the program runs, so that it imports the detmatrix of its own path, or none.
"""

import sys

# Python puts the folder of this file first; its modules are none of the program's.
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

import json
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

# The exit code of an interpreter that cannot import it.
NO_TORCH = 86


def _run(request: dict[str, Any]) -> int:
    package = Path(__file__).absolute().parents[2]
    spec = spec_from_file_location(
        "detmatrix", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if find_spec("torch") is None:
        return NO_TORCH
    assert spec is not None
    assert spec.loader is not None
    sys.modules["detmatrix"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if request["gpu"]:
        from detmatrix.scanner.worker.simulated import load  # noqa: PLC0415 - ahead of torch

        load(*request["gpu"])
    from detmatrix.scanner.locate.program import run  # noqa: PLC0415 - found from here on

    for name in [name for name in sys.modules if name.partition(".")[0] == "detmatrix"]:
        del sys.modules[name]
    return run(request)


if __name__ == "__main__":
    sys.exit(_run(json.loads(sys.argv[1])))
