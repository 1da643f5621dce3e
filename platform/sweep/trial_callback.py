"""A callback of Tune that hands trials to counts, screen, limits, kept weights and MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from platform.schedule.ray_failures import StatelessCallback, read_cause
from platform.state.kept_weights import Keeper
from platform.state.limits import Stopper
from platform.sweep.console import Counts, Screen, Waiting
from platform.tracking.mirror import Mirror
from trainables import benchmarks
from trainables.common.wording import format_duration
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED, LOST
from trainables.trial import record


@dataclass(eq=False)
class TrialCallback(StatelessCallback):
    """Finds the result of each trial that ends, once, and hands it to counts, screen, limits, weights and MLflow.

    It is the storage's, else what the trial reported to Tune, else that it died: this is written as its result, unless
    the disk is full or it is not known whether there is one.
    """

    counts: Counts
    store: Storage
    mirror: Mirror
    stopper: Stopper
    keeper: Keeper
    screen: Screen
    waiting: Waiting
    unconfirmed: list[Trial] = field(default_factory=list)
    """Trials that have ended and whose result the storage did not show then."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        started = read_trial(trial)
        self.stopper.trial_started(started)
        self.counts.start_trial(started)
        self.mirror.start_trial(started)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.screen.show(self.counts, self.waiting, self.store)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, "it ended without a result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, read_cause(trial))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for trial in self.unconfirmed:
            self.store.try_sync_trial(trial.id())
            self._hand_over(trial, self.store.result(trial.id()))

    def _end(self, tune_trial: Any, cause: str) -> None:
        trial, last = read_trial(tune_trial), tune_trial.last_result
        seconds = self.counts.seconds_of(trial.id())
        synced = self.store.try_sync_trial(trial.id())
        written = self.store.result(trial.id())
        result = written or _reported_result(trial, last)
        if result is None and not synced:
            result = _lost(f"not recorded, because the storage does not answer; --resume looks again: {cause.strip()}")
        elif result is None:
            result, written = self._record_loss(trial, cause, seconds)
        if written is None:
            self.unconfirmed.append(trial)
        self.counts.end_trial(trial.id(), result)
        self.screen.print_line(f"{self.counts.label(trial)}: {describe_outcome(result)} ({format_duration(seconds)})")
        self.stopper.trial_ended(trial.id(), result)
        self._hand_over(trial, written)
        tune_trial.run_metadata.metric_analysis.clear()  # running means of every number that a trial reported,
        tune_trial.run_metadata.metric_n_steps.clear()  # 15 KB each, which nobody reads
        over = self.counts.left == 0 and not self.counts.running
        self.screen.show(self.counts, self.waiting, self.store, last=over)

    def _hand_over(self, trial: Trial, result: dict[str, Any] | None) -> None:
        """Hand what the storage holds of a trial that ended, None if nothing, to kept weights and MLflow."""
        self.keeper.trial_ended(trial, result)
        self.mirror.add_trial(trial.id(), result)

    def _record_loss(self, trial: Trial, cause: str, seconds: float) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Write that a trial died; return that as a result, and what the storage holds of it: nothing if it is full."""
        try:
            written = record.write_failure(trial, self.store, cause, LOST, seconds)
        except OSError as error:
            self.stopper.unwritable = f"{error.strerror} ({self.store.root})"
            return _lost(f"not recorded, because the storage takes nothing more: {error.strerror}"), None
        return written, written


def read_trial(tune_trial: Any) -> Trial:
    """Return the configuration that a trial of Tune was started with."""
    return Trial.model_validate_json(tune_trial.config["trial"])


def _lost(message: str) -> dict[str, Any]:
    return {"status": LOST, "error": {"kind": LOST, "message": message}}


def _reported_result(trial: Trial, last: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a trial reported to Tune of its result, which the storage does not show; None: it has not ended."""
    if not last.get("done") or "status" not in last:
        return None
    error = {"kind": last["status"], "message": "its result is written, and the storage does not show it"}
    result = {"status": last["status"], "config": trial.model_dump(mode="json"), "metrics": last}
    return result | {"error": None if last["status"] == "finished" else error}


def describe_outcome(result: Mapping[str, Any]) -> str:
    """Return a result in one phrase."""
    parts = []
    if result["status"] in EVALUATED:
        parts.append(benchmarks.describe_goals(result["config"]["benchmark"]["name"], result["metrics"]))
    if result["status"] != "finished":
        parts.append(f"{result['status']}: {result['error']['message']}")
    return "; ".join(parts)
