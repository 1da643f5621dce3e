"""Counts and times of a running sweep's trials, and the reason why no further trial begins."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platform.state.trial_outcomes import SweepState
from trainables.common.wording import format_duration
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED, FAILURES
from trainables.trial.progress import format_progress, read_progress

PATIENCE = 10.0
"""Seconds without a trial that begins, although more could run at a time, after which the reason is shown."""


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


@dataclass
class Waiting:
    """Finds out why no further trial begins."""

    needed: Mapping[str, float]
    """What a trial needs, by Ray's names of resources."""
    free: Callable[[], Mapping[str, float]]
    """Returns what is free on all nodes together."""
    describe_coming: Callable[[], str | None]
    """Returns the nodes that may still start."""
    since: float | None = None

    def reason(self, counts: Counts) -> str | None:
        """Return why a trial waits, None if none does or not for long yet."""
        if len(counts.running) >= counts.slots or counts.left <= 0:
            self.since = None
            return None
        self.since = self.since or time.monotonic()
        if time.monotonic() - self.since < PATIENCE:
            return None
        free = self.free()
        short = [
            f"needs {amount:g} {name}{'s' if amount != 1 else ''}, {free.get(name, 0.0):g} free"
            for name, amount in self.needed.items()
            if amount > free.get(name, 0.0) + 1e-6
        ]
        coming = self.describe_coming()
        reason = "; ".join(short) if short else f"its process{' or a node' if coming else ''} is starting"
        return f"a trial waits: {reason}" + (f"; {coming}" if coming else "")
