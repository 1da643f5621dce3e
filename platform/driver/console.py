"""What a person who watches a sweep sees: a table drawn anew on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainables.common.cli import format_duration
from trainables.common.redaction import redact

PLAIN_SECONDS, TABLE_SECONDS = 30.0, 1.0
"""Between two plain lines of where a sweep stands, and between two tables of it."""
SHOWN = 12
"""So many running trials are shown; --json of platform.status lists all."""


def say(text: str) -> None:
    """Print a line without secrets."""
    print(redact(text), flush=True)


@dataclass(frozen=True)
class Row:
    """A trial that runs."""

    label: str
    phase: str
    step: int
    steps: int | None
    seconds: float
    left: float | None
    """Seconds; None: not known yet."""


@dataclass(frozen=True)
class View:
    """A sweep under way."""

    title: str
    done: int
    total: int
    counts: str
    rows: Sequence[Row] = ()
    waiting: str | None = None


class Screen(Protocol):
    """Where a sweep under way is shown."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def show(self, make_view: Callable[[], View], *, last: bool = False) -> None:
        """Show where the sweep stands; `make_view` is called only when it is time to show it."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Lines:
    """For files, pipes and notebooks: a line for each trial that ends, and now and then where the sweep stands."""

    def __init__(self) -> None:
        self.shown = time.monotonic()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, make_view: Callable[[], View], *, last: bool = False) -> None:
        if last or time.monotonic() - self.shown > PLAIN_SECONDS:
            self.shown = time.monotonic()
            view = make_view()
            self.say(view.counts + (f" | {view.waiting}" if view.waiting else ""))

    def close(self) -> None:
        """Do nothing: nothing was drawn."""


class Terminal:
    """A table at the foot of the terminal; lines that stay scroll above it."""

    def __init__(self, console: Console) -> None:
        self.live = Live(console=console, refresh_per_second=4, transient=True)
        self.live.start()
        self.shown = 0.0

    def say(self, text: str) -> None:
        self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, make_view: Callable[[], View], *, last: bool = False) -> None:
        if last or time.monotonic() - self.shown > TABLE_SECONDS:
            self.shown = time.monotonic()
            self.live.update(draw(make_view()))

    def close(self) -> None:
        self.live.stop()


def open_screen() -> Screen:
    """Return a terminal if standard output is one, else plain lines."""
    return Terminal(Console()) if sys.stdout.isatty() else Lines()


def draw(view: View) -> Group:
    """Return the table of a sweep under way."""
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(view.title, style="bold"), ProgressBar(total=max(1, view.total), completed=view.done, width=30))
    parts: list[Table | Text] = [head, Text(view.counts)]
    if view.waiting:
        parts.append(Text(view.waiting, style="yellow"))
    if view.rows:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("running", "phase", "step", "for", "left"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in view.rows[:SHOWN]:
            step = "" if row.steps is None else f"{row.step}/{row.steps}"
            left = "" if row.left is None else format_duration(row.left)
            table.add_row(row.label, row.phase, step, format_duration(row.seconds), left)
        parts.append(table)
    if len(view.rows) > SHOWN:
        parts.append(Text(f"and {len(view.rows) - SHOWN} more"))
    return Group(*parts)
