"""What a running sweep tells: a line for each trial that ends, and one for where the sweep stands."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune import Callback

from platform.driver.console import Row, Screen, View
from platform.schedule import node_loss
from platform.state import disk
from platform.state.limits import Stopper
from platform.state.status import describe_phase, read_progress
from platform.state.sweep_state import SweepState
from platform.tracking.mirror import Mirror
from trainables import benchmarks
from trainables.common.cli import format_duration
from trainables.config.trial import Trial
from trainables.storage.base import EVALUATED, FAILURES, LOST, Storage

PATIENCE = 10.0
"""Seconds without a trial that begins, although more could run at a time, after which it is said why."""


@dataclass
class Standing:
    """Counts and times of a sweep under way."""

    name: str
    total: int
    slots: int
    done: int = 0
    failed: int = 0
    running: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, state: SweepState, total: int, slots: int) -> Standing:
        """At a start that runs `total` trials: what earlier ones did counts."""
        done, failed = len(state.done), len(state.failed)
        return cls(name=state.plan.name, total=total + done, slots=slots, done=done - failed, failed=failed)

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed - len(self.running)

    def line(self) -> str:
        """`done 3 | running 2 | failed 0 | left 10 | about 2 min left`"""
        parts = [f"done {self.done}", f"running {len(self.running)}", f"failed {self.failed}", f"left {self.left}"]
        if self.seconds:
            rounds = (self.left + len(self.running) / 2) / self.slots
            parts.append(f"about {format_duration(statistics.median(self.seconds) * rounds)} left")
        return " | ".join(parts)


class Waiting:
    """Why no further trial begins: what one needs, and what of it is free.

    `needed` and `free`: amounts by Ray's names of resources, `free` of all nodes together; `coming`: the nodes that may
    still start.
    """

    def __init__(
        self,
        needed: Mapping[str, float],
        free: Callable[[], Mapping[str, float]],
        coming: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.needed = needed
        self.free = free
        self.coming = coming
        self.since: float | None = None

    def why(self, standing: Standing) -> str | None:
        """None: nothing waits, or not for long yet."""
        if len(standing.running) >= standing.slots or standing.left <= 0:
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
        more = self.coming()
        told = "; ".join(short) if short else f"its process{' or a node' if more else ''} is starting"
        return f"a trial waits: {told}" + (f"; {more}" if more else "")


class Reporter(Callback):
    """Shows a running sweep and feeds the mirror, the disk monitor and the stopper."""

    def __init__(
        self,
        standing: Standing,
        store: Storage,
        mirror: Mirror,
        monitor: disk.DiskMonitor,
        stopper: Stopper,
        screen: Screen,
        waiting: Waiting,
    ) -> None:
        self.standing = standing
        self.store = store
        self.mirror = mirror
        self.monitor = monitor
        self.stopper = stopper
        self.screen = screen
        self.waiting = waiting
        self.begun: dict[str, float] = {}
        self.unseen: list[Trial] = []
        """Trials that have ended and whose result the storage did not show then."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes its callbacks beside its own state, which is never read again: the storage is the truth."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config = Trial.model_validate_json(trial.config["trial"])
        self.standing.running[config.id()] = config.label()
        self.begun[config.id()] = time.monotonic()
        self.stopper.trial_started(config)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.stopper.disk = self.monitor.poll()
        self.screen.show(self.view)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended(trial, "it ended without a result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended(trial, node_loss.noted(trial))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for config in self.unseen:
            self.store.try_sync_trial(config.id())
            self.monitor.trial_ended(config.study(), config.id())
            self.mirror.add_trial(config.id())

    def view(self) -> View:
        """Where the sweep stands."""
        standing = self.standing
        typical = {"evaluation": statistics.median(standing.evaluations) if standing.evaluations else None}
        rows = [self._row(key, label, typical) for key, label in standing.running.items()]
        done, why = standing.done + standing.failed, self.waiting.why(standing)
        return View(standing.name, done, standing.total, standing.line(), rows, why)

    def _row(self, key: str, label: str, typical: dict[str, float | None]) -> Row:
        found = read_progress(key, self.store, typical)
        if found is None:
            return Row(label, "starting", 0, None, time.monotonic() - self.begun.get(key, time.monotonic()), None)
        known = (found[name] for name in ("step", "steps", "seconds", "remaining_seconds"))
        return Row(label, describe_phase(found), *known)

    def _ended(self, trial: Any, cause: str) -> None:
        config = Trial.model_validate_json(trial.config["trial"])
        key = config.id()
        label = self.standing.running.pop(key, config.label())
        seconds = time.monotonic() - self.begun.pop(key, time.monotonic())
        looked = self.store.try_sync_trial(key)
        result = (
            self.store.result(key) or _told(config, trial.last_result) or self._died(config, cause, seconds, looked)
        )
        if not self.store.has(key):
            self.unseen.append(config)
        self.standing.seconds.append(seconds)
        if result["status"] in FAILURES:
            self.standing.failed += 1
        else:
            self.standing.done += 1
        if result["status"] in EVALUATED and "seconds" in result:  # a diverged one's 0 s would be too short
            self.standing.evaluations.append(result["seconds"]["evaluation"])
        self.screen.say(f"{label}: {outcome(result)} ({format_duration(seconds)})")
        self.stopper.trial_ended(key, result)
        self.stopper.disk = self.monitor.trial_ended(config.study(), key)
        self.mirror.add_trial(key)
        _forget_statistics(trial)
        self.screen.show(self.view, last=self.standing.left == 0 and not self.standing.running)

    def _died(self, config: Trial, cause: str, seconds: float, looked: bool) -> dict[str, Any]:
        """The result of a trial whose process died before it could write one.

        None is left where the disk is full, nor where nobody could look whether there is one.
        """
        from trainables.trial import record

        if not looked:
            message = f"not recorded, because the storage does not answer; --resume looks again: {cause.strip()}"
            return {"status": LOST, "error": {"kind": LOST, "message": message}}
        try:
            return record.write_refusal(config, self.store, cause, LOST, seconds)
        except OSError as error:
            self.stopper.unwritable = f"{error.strerror} ({self.store.root})"
            message = f"not recorded, because the storage takes nothing more: {error.strerror}"
            return {"status": LOST, "error": {"kind": LOST, "message": message}}


def _told(config: Trial, last: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a trial that has ended told Tune of its result, which the storage does not show; None: it has not ended."""
    if not last.get("done") or "status" not in last:
        return None
    error = {"kind": last["status"], "message": "its result is written, and the storage does not show it"}
    told = {"status": last["status"], "config": config.model_dump(mode="json"), "metrics": last}
    return told | {"error": None if last["status"] == "finished" else error}


def _forget_statistics(trial: Any) -> None:
    """Tune keeps running means of every number that a trial reported, 15 KB each, which nobody reads."""
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


def outcome(result: dict[str, Any]) -> str:
    """A result in one phrase."""
    told = []
    if result["status"] in EVALUATED:
        told.append(benchmarks.outcome(result["config"]["benchmark"]["name"], result["metrics"]))
    if result["status"] != "finished":
        told.append(f"{result['status']}: {result['error']['message']}")
    return "; ".join(told)
