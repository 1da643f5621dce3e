"""A callback of Tune that hands trials to counts, screen, limits, kept weights and MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from platform.schedule.ray_failures import StatelessCallback, read_failure_cause
from platform.state.disk import WeightKeeper
from platform.state.limits import SweepStopper
from platform.sweep.console import ProgressScreen, TrialCounts
from platform.tracking.mirror import MlflowMirror
from trainables import benchmarks
from trainables.common.wording import format_duration
from trainables.config.trial import Trial
from trainables.storage.file_names import EVALUATED, LOST
from trainables.storage.folder_storage import Storage
from trainables.trial import record


@dataclass(eq=False)
class TrialCallback(StatelessCallback):
    """Reads the result of each trial that ends, once; where there is none, writes that the trial was lost."""

    counts: TrialCounts
    store: Storage
    mirror: MlflowMirror
    stopper: SweepStopper
    keeper: WeightKeeper
    screen: ProgressScreen

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        started = read_trial_config(trial)
        self.stopper.trial_started(started)
        self.counts.start_trial(started)
        self.mirror.running[started.id()] = started

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.screen.show(self.counts, self.store)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        label = self.counts.label(read_trial_config(trial))
        self.screen.print_line(f"{label}: its process or node went away; it goes on from its last checkpoint")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, "it ended without a result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, read_failure_cause(trial).strip())

    def _end(self, tune_trial: Any, cause: str) -> None:
        trial = read_trial_config(tune_trial)
        key, seconds = trial.id(), self.counts.seconds_of(trial.id())
        synced = self.store.try_download_trial(key)
        written = self.store.result(key)
        if written is None and synced:
            try:
                written = record.write_failure(trial, self.store, cause, LOST, seconds)
            except OSError as error:  # the disk is full
                self.stopper.unwritable = f"{error.strerror} ({self.store.root})"
        why = "takes nothing more" if self.stopper.unwritable else "does not answer"
        message = f"not recorded, because the storage {why}; --resume looks again: {cause}"
        result = written or {"status": LOST, "error": {"kind": LOST, "message": message}}
        self.counts.end_trial(key, result)
        name = f"{self.counts.label(trial)} ({key})"
        self.screen.print_line(f"{name}: {describe_outcome(result)}, {format_duration(seconds)}")
        self.stopper.trial_ended(key, result)
        self.keeper.prune_after_trial(trial)
        self.mirror.log_trial_result(key, written)
        tune_trial.run_metadata.metric_analysis.clear()  # running means of every number that a trial reported,
        tune_trial.run_metadata.metric_n_steps.clear()  # 15 KB each, which nobody reads
        self.screen.show(self.counts, self.store, last=self.counts.remaining == 0 and not self.counts.running)


def read_trial_config(tune_trial: Any) -> Trial:
    """Return the configuration that a trial of Tune was started with."""
    return Trial.model_validate_json(tune_trial.config["trial"])


def describe_outcome(result: Mapping[str, Any]) -> str:
    """Return a result in one phrase."""
    parts = []
    if result["status"] in EVALUATED:
        parts.append(benchmarks.describe_goals(result["config"]["benchmark"]["name"], result["metrics"]))
    if result["status"] != "finished":
        parts.append(f"{result['status']}: {result['error']['message']}")
    return "; ".join(parts)
