"""What a running sweep tells: a line for each trial that ends, and one for where the sweep stands."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from ray.tune import Callback

import platform.disk as disk
from platform.gate import Gate
from platform.keep import Keeper
from platform.mirror import Mirror
from trainables import benchmarks, storage
from trainables.commands import duration
from trainables.config import Trial
from trainables.storage import Storage

EVERY_SECONDS = 15.0


@dataclass
class Standing:
    """Counts and times of a sweep under way."""

    total: int
    slots: int
    done: int = 0
    failed: int = 0
    running: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def line(self) -> str:
        """`done 3 | running 2 | failed 0 | left 10 | about 2 min left`"""
        left = self.total - self.done - self.failed - len(self.running)
        parts = [f"done {self.done}", f"running {len(self.running)}", f"failed {self.failed}", f"left {left}"]
        if self.seconds:
            rounds = (left + len(self.running) / 2) / self.slots
            parts.append(f"about {duration(statistics.median(self.seconds) * rounds)} left")
        return " | ".join(parts)


class Reporter(Callback):
    """Prints plain lines (a terminal gets the standing on one line that is written over) and feeds the mirror."""

    def __init__(self, standing: Standing, store: Storage, mirror: Mirror, keeper: Keeper, gate: Gate) -> None:
        self.standing = standing
        self.store = store
        self.mirror = mirror
        self.keeper = keeper
        self.gate = gate
        self.shown = time.monotonic()
        self.begun: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes its callbacks beside its own state, which is never read again: the storage is the truth."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config = Trial.model_validate_json(trial.config["trial"])
        self.standing.running[trial.trial_id] = config.label()
        self.begun[trial.trial_id] = time.monotonic()
        self.gate.began(config)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self.shown > EVERY_SECONDS:
            self.show()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended(trial, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended(trial, trial.get_pickled_error() or "its process died")

    def show(self) -> None:
        """Print where the sweep stands."""
        self.shown = time.monotonic()
        end = "\r" if sys.stdout.isatty() else "\n"
        print(self.standing.line(), end=end, flush=True)

    def _ended(self, trial: Any, cause: Any) -> None:
        config = Trial.model_validate_json(trial.config["trial"])
        label = self.standing.running.pop(trial.trial_id, config.label())
        seconds = time.monotonic() - self.begun.pop(trial.trial_id, time.monotonic())
        result = self.store.result(config.id()) or _died(config, self.store, cause, seconds)
        self.standing.seconds.append(seconds)
        if result["status"] in storage.FAILURES:
            self.standing.failed += 1
        else:
            self.standing.done += 1
        print(f"{label}: {outcome(result)} ({duration(seconds)})", flush=True)
        self.gate.ended(config.id(), result)
        self.keeper.prune(config.study(), config.id())
        self.gate.disk = disk.hold(self.keeper, self.gate.limits.disk_bytes)
        self.mirror.trial(config.id())
        _forget_statistics(trial)
        self.show()


def _forget_statistics(trial: Any) -> None:
    """Tune keeps running means of every number that a trial reported, 15 KB each, which nobody reads."""
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


def outcome(result: dict[str, Any]) -> str:
    """A result in one phrase."""
    told = []
    if result["status"] in storage.EVALUATED:
        told.append(benchmarks.outcome(result["config"]["benchmark"]["name"], result["metrics"]))
    if result["status"] != "finished":
        told.append(f"{result['status']}: {result['error']['message']}")
    return "; ".join(told)


def _died(config: Trial, store: Storage, cause: Any, seconds: float) -> dict[str, Any]:
    """The result of a trial whose process died before it could write one."""
    from trainables import records

    return records.refused(config, store, str(cause), seconds=seconds)
