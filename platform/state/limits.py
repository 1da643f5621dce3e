"""Whether a sweep may begin another trial: its GPU-hours, its disk, and failures that all have one cause."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.storage import results as results_
from trainables.storage.base import FAILURES
from trainables.storage.results import gpus

FIRST = 5
"""So many trials that end first and all fail for the same cause stop the sweep."""
PREPARATION = "preparation"
CPU_AS_GPU = "a rank without a GPU counts as one"


@dataclass(frozen=True)
class Limits:
    """What a sweep may take; None: as much as it needs. `gpu_hours` is a total over all its starts.

    It counts what was killed, set aside or retried, too, and the preparation as if it were one trial.
    """

    gpu_hours: float | None = None
    disk_bytes: int | None = None

    def check(self) -> None:
        if self.gpu_hours is not None and not 0 < self.gpu_hours < float("inf"):
            raise InputError(f"--gpu-hours: must be above 0, got {self.gpu_hours:g}")


@dataclass
class Gate:
    """Told of every trial that begins and ends; `closed` says why no further one may begin."""

    limits: Limits
    spent: float = 0.0
    """GPU-seconds of all that has ended, in earlier starts too."""
    running: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Trial id, or PREPARATION -> when it began (monotonic), and its GPUs."""
    causes: list[str | None] = field(default_factory=list)
    """Of the first trials that ended in this start; None: it did not fail."""
    shown: str = ""
    """The message of the first of them."""
    disk: str | None = None
    """Why the disk's budget closes the gate."""
    unwritable: str | None = None
    """Why the storage takes nothing more, not even that a trial failed."""

    def began(self, trial: Trial) -> None:
        """Begun again after its process died, it has run since its first beginning."""
        self.running.setdefault(trial.id(), (time.monotonic(), gpus(trial.model_dump(include={"resources"}))))

    def ended(self, trial_id: str, result: Mapping[str, Any]) -> None:
        begun, size = self.running.pop(trial_id, (time.monotonic(), 0.0))
        self.spent += (time.monotonic() - begun) * size
        if len(self.causes) < FIRST:
            failed = result["status"] in FAILURES
            self.causes.append(results_.cause(dict(result)) if failed else None)
            self.shown = self.shown or (result["error"]["message"] if failed else "")

    @contextlib.contextmanager
    def preparing(self, size: float) -> Iterator[None]:
        """What trials share is made meanwhile: it counts as `size` GPUs, a trial's."""
        begun = time.monotonic()
        self.running[PREPARATION] = (begun, size)
        try:
            yield
        finally:
            del self.running[PREPARATION]
            self.spent += (time.monotonic() - begun) * size

    @property
    def hours(self) -> float:
        """GPU-hours so far, of running trials too."""
        now = time.monotonic()
        return (self.spent + sum((now - begun) * size for begun, size in list(self.running.values()))) / 3600

    @property
    def broken(self) -> bool:
        """Whether all trials that ended first failed, for one cause."""
        return len(self.causes) == FIRST and len(set(self.causes)) == 1 and self.causes[0] is not None

    @property
    def advice(self) -> str:
        """What to do about a closed gate."""
        if self.unwritable:
            return "make room, then go on with --resume"
        if self.broken:
            return "mend that, then go on with --resume --retry-failed"
        return f"go on with a larger {'--disk-budget' if self.disk else '--gpu-hours'} and --resume"

    @property
    def closed(self) -> str | None:
        """Why no further trial may begin; None: it may."""
        if self.unwritable:
            return f"the storage takes nothing more: {self.unwritable}"
        if self.broken:
            return f"the first {FIRST} trials that ended all failed for the same cause: {self.shown}"
        limit = self.limits.gpu_hours
        if limit is not None and self.hours >= limit:
            return f"--gpu-hours {limit:g}: {self.hours:.3g} GPU-hours are spent ({CPU_AS_GPU})"
        return self.disk
