"""How far the evaluation of this process is, counted where it works, read by trainables.trial.progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any


@dataclass
class Tally:
    """One thing at a time is counted: the answers that are scored, then the rows that are answered; of a rank its own.

    Passes of several threads may end at once.
    """

    what: str = ""
    done: int = 0
    total: int = 0
    _one: Lock = field(default_factory=Lock, repr=False)

    def begin(self, what: str, total: int) -> None:
        self.what, self.done, self.total = what, 0, total

    def add(self, count: int) -> None:
        with self._one:
            self.done += count

    def told(self) -> dict[str, Any] | None:
        """As JSON; None: nothing was begun."""
        return {"what": self.what, "done": self.done, "total": self.total} if self.what else None


NOW = Tally()
"""Of this process, which runs one trial at a time."""
