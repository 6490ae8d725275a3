"""Test cases as JUnit XML, as CI systems read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from reports.checks.model import CheckCase, State, Suite
from scanner.errors import one_line

_TAG: dict[State, str] = {"failed": "failure", "skipped": "skipped", "error": "error"}


def render(suites: Sequence[Suite]) -> Iterator[str]:
    """Yield the document, one test case a line."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{_counts(_cases(suites))}>\n'
    for suite in suites:
        yield f"<testsuite name={_quoted(suite.name)}{_counts(suite.cases)}>\n"
        for case in suite.cases:
            begin = f"<testcase classname={_quoted(case.group)} name={_quoted(case.name)}"
            if case.state != "passed":
                tag = _TAG[case.state]
                text = f"<{tag} message={_quoted(case.text)}/>"
                if case.state != "skipped":
                    text = f"<{tag} message={_quoted(case.text)}>{escape(one_line(case.text))}</{tag}>"
                yield f"{begin}>{text}</testcase>\n"
            elif case.doubt:
                yield f"{begin}><system-out>{escape(one_line(case.doubt))}</system-out></testcase>\n"
            else:
                yield f"{begin}/>\n"
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _cases(suites: Sequence[Suite]) -> list[CheckCase]:
    return [case for suite in suites for case in suite.cases]


def _counts(cases: Sequence[CheckCase]) -> str:
    """Return the attributes that say how many test cases there are of each state."""
    states = Counter(case.state for case in cases)
    return (
        f' tests="{len(cases)}" failures="{states["failed"]}" errors="{states["error"]}" '
        f'skipped="{states["skipped"]}"'
    )


def _quoted(text: str) -> str:
    """Return a value in quotes; XML allows no control character, however it is written, so they are spelled out."""
    return quoteattr(one_line(text))
