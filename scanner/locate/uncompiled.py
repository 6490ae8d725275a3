"""Keep the compiler out of what looks at a program, without loading it: that takes seconds."""

from __future__ import annotations

from typing import Any

import torch

eval_frame = torch._C._dynamo.eval_frame  # noqa: SLF001 - has no public name


def not_compiled(function: Any) -> None:
    """Keep the compiler out of a function; how, depends on the release."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP  # noqa: SLF001 - has no public name
        eval_frame.set_code_exec_strategy(
            function.__code__,
            eval_frame._FrameExecStrategy(skip, skip),  # noqa: SLF001
        )
    elif hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(function.__code__)
