"""A fixture for pytest: ``with detmatrix_locate(): train_step()`` fails a test whose block is not reproducible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from detmatrix.scanner.errors import one_line


@pytest.fixture
def detmatrix_locate() -> Callable[..., AbstractContextManager[Any]]:
    """Return ``detmatrix.scanner.locate.locate`` as a block that fails the test, or skips it where no difference could be seen."""
    from detmatrix.scanner.locate import locate  # noqa: PLC0415 - importing torch takes seconds, which not every test run needs

    @contextmanager
    def reproducible(**settings: Any) -> Iterator[Any]:
        with locate(**settings) as found:
            yield found
        if found.roots:
            pytest.fail(str(found), pytrace=False)
        if not found.could_see:
            pytest.skip(one_line(str(found)))

    return reproducible
