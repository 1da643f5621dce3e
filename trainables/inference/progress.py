"""Progress of an evaluation, reported to a callback that is set around it: benchmarks need not hand it on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressCallback = Callable[[str, int, int], None]
"""Called with what is counted (`answers`, then `generations`), how many are done on this rank, and of how many."""
_REPORT: ContextVar[tuple[ProgressCallback, dict[str, int]] | None] = ContextVar("_REPORT", default=None)
"""The callback, and how many were counted of each kind so far: a later part of an evaluation goes on from there."""


@contextmanager
def report_progress_to(report: ProgressCallback | None) -> Iterator[None]:
    token = _REPORT.set((report, {}) if report else None)
    try:
        yield
    finally:
        _REPORT.reset(token)


class ProgressCounter:
    """Counts what is done on this rank."""

    def __init__(self, what: str, total: int) -> None:
        self.report, self.counted = _REPORT.get() or (lambda *_: None, {})
        self.what, self.total = what, self.counted.get(what, 0) + total
        self.add(0)

    def add(self, count: int) -> None:
        self.counted[self.what] = self.counted.get(self.what, 0) + count
        self.report(self.what, self.counted[self.what], self.total)
