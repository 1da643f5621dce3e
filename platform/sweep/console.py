"""What a person sees while a sweep runs: counts and times.

On a terminal a table is redrawn below the lines that stay; in files and pipes a line of counts comes now and then.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from platform.state.trial_outcomes import SweepState
from trainables.common.cli import escape_controls
from trainables.common.redaction import redact
from trainables.common.wording import format_duration
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED, FAILURES
from trainables.trial.progress import format_progress, read_progress

PLAIN_SECONDS, TABLE_SECONDS = 30.0, 1.0
"""Between two plain lines of where a sweep stands, and between two tables of it."""
SHOWN = 12
"""The most running trials that are shown; `platform.status --json` lists all."""


@dataclass
class Counts:
    """Counts and times of a sweep under way."""

    name: str
    total: int
    slots: int
    done: int = 0
    failed: int = 0
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Label and start (monotonic) of each trial that runs, by its id."""
    seconds: list[float] = field(default_factory=list)
    """The seconds of trials that ended."""
    evaluations: list[float] = field(default_factory=list)
    """Seconds of their evaluations."""
    label: Callable[[Trial], str] = Trial.label

    @classmethod
    def from_state(cls, state: SweepState, total: int, slots: int) -> Counts:
        """Return the counts of a start that runs `total` trials: what earlier starts did counts."""
        done, failed = len(state.done), len(state.failed)
        return cls(state.plan.name, total + done, slots, done - failed, failed, label=state.plan.label)

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed - len(self.running)

    def start_trial(self, trial: Trial) -> None:
        self.running[trial.id()] = (self.label(trial), time.monotonic())

    def seconds_of(self, trial_id: str) -> float:
        """Return how long a trial has been running."""
        now = time.monotonic()
        return now - self.running.get(trial_id, ("", now))[1]

    def end_trial(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self.seconds.append(self.seconds_of(trial_id))
        self.running.pop(trial_id, None)
        self.failed += result["status"] in FAILURES
        self.done += result["status"] not in FAILURES
        if result["status"] in EVALUATED and "seconds" in result:  # a diverged one's 0 s would be too short
            self.evaluations.append(result["seconds"]["evaluation"])

    def __str__(self) -> str:
        """`done 3 | running 2 | failed 0 | left 10 | about 2 min left`"""
        parts = [f"done {self.done}", f"running {len(self.running)}", f"failed {self.failed}", f"left {self.left}"]
        if self.seconds:
            rounds = (self.left + len(self.running) / 2) / self.slots
            parts.append(f"about {format_duration(statistics.median(self.seconds) * rounds)} left")
        return " | ".join(parts)

    def describe_running(self, store: Storage) -> list[tuple[str, ...]]:
        """Return label, phase, step, elapsed and remaining time of each running trial."""
        evaluation, rows = statistics.median(self.evaluations) if self.evaluations else None, []
        for key, (label, _) in self.running.items():
            progress = read_progress(store.trial(key), evaluation)
            starting = ("starting", "", format_duration(self.seconds_of(key)), "")
            rows.append((label, *(starting if progress is None else format_progress(progress))))
        return rows


def print_line(text: str) -> None:
    """Print a line without secrets and terminal escapes."""
    print(escape_controls(redact(text)), flush=True)


class Screen:
    """A table below the lines that stay on a terminal; in files and pipes, a line of counts now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self.shown = time.monotonic()
        if self.live:
            self.live.start()

    def print_line(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(escape_controls(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def show(self, counts: Counts, store: Storage, *, last: bool = False) -> None:
        """Show where the sweep stands, if it is time to."""
        if not last and time.monotonic() - self.shown < (TABLE_SECONDS if self.live else PLAIN_SECONDS):
            return
        self.shown = time.monotonic()
        if self.live:
            self.live.update(draw_counts(counts, counts.describe_running(store)))
        else:
            self.print_line(str(counts))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.live:
            self.live.stop()


def draw_counts(counts: Counts, rows: Sequence[Sequence[str]]) -> Group:
    """Return the table of a sweep under way; `rows`: its running trials."""
    head, ended = Table.grid(padding=(0, 2)), counts.done + counts.failed
    head.add_row(Text(counts.name, style="bold"), ProgressBar(total=max(1, counts.total), completed=ended, width=30))
    parts: list[Table | Text] = [head, Text(str(counts))]
    if rows:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("running", "phase", "step", "for", "left"):  # the first two give way on a narrow terminal
            table.add_column(name, no_wrap=name in ("step", "for", "left"))
        for row in rows[:SHOWN]:
            table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
        parts.append(table)
    if len(rows) > SHOWN:
        parts.append(Text(f"and {len(rows) - SHOWN} more"))
    return Group(*parts)
