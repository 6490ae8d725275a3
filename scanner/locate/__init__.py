"""What runs inside a stranger's program and finds the ops that are not reproducible; needs torch and nothing else.

In a notebook or a test::

    from detmatrix.scanner.locate import locate

    with locate() as found:
        train_step()
    print(found)  # found.roots: one for each call site that differs

    with record("run.ops.gz"):  # detmatrix locate --diff run.ops.gz other.ops.gz
        train()
    trainer = Trainer(..., callbacks=[recording(TrainerCallback, "run.ops.gz")])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detmatrix.scanner.locate.session import locate, record, recording
    from detmatrix.scanner.located import Located

__all__ = ["Located", "locate", "record", "recording"]


def __getattr__(name: str) -> Any:
    """Load torch only when it is needed: the fixture lies here too, and every test run that finds it imports it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from detmatrix.scanner.locate import session  # noqa: PLC0415 - as said

    return getattr(session, name)
