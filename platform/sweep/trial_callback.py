"""What a person sees while a sweep runs, and the callback of Tune that tells limits and MLflow and deletes weights."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune import Callback
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from platform.plan.plan import Plan
from platform.schedule.ray_session import read_trial_error
from platform.state.limits import SweepStopper
from platform.state.trial_outcomes import read_target_utilities
from platform.sweep.chosen_trials import choose_trials_of_study
from platform.tracking.mirror import MlflowMirror
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common.cli import escape_controls
from trainables.common.redaction import redact
from trainables.common.wording import format_duration
from trainables.config.trial import Trial
from trainables.storage.file_names import EVALUATED_STATUSES, FAILED_STATUSES, LOST, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial import record
from trainables.trial.progress import describe_progress, format_progress_columns, read_progress

PLAIN_LINE_SECONDS, BAR_REFRESH_SECONDS = 30.0, 1.0
"""Between two plain lines of where a sweep stands, and between two looks at its running trials."""
MAX_TRIAL_BARS = 12


@dataclass
class SweepProgress:
    name: str
    total: int
    slots: int
    done: int = 0
    failed: int = 0
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Label and start (monotonic) of each trial that runs, by its id."""
    seconds: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)
    label: Callable[[Trial], str] = Trial.label

    @property
    def remaining(self) -> int:
        return self.total - self.done - self.failed - len(self.running)

    def count_ended_trial(self, result: Mapping[str, Any], seconds: float) -> None:
        self.seconds.append(seconds)
        self.failed += result["status"] in FAILED_STATUSES
        self.done += result["status"] not in FAILED_STATUSES
        if result["status"] in EVALUATED_STATUSES and "seconds" in result:  # a diverged one's 0 s would be too short
            self.evaluations.append(result["seconds"]["evaluation"])

    def __str__(self) -> str:
        """`done 3 | running 2 | failed 0 | left 10 | about 2 min left`"""
        parts = [f"done {self.done}", f"running {len(self.running)}", f"failed {self.failed}", f"left {self.remaining}"]
        if self.seconds:
            rounds = (self.remaining + len(self.running) / 2) / self.slots
            parts.append(f"about {format_duration(statistics.median(self.seconds) * rounds)} left")
        return " | ".join(parts)


class ProgressScreen:
    """Bars of the sweep and its running trials on a terminal; else lines of counts, and how far the only trial is."""

    def __init__(self, console: Console) -> None:
        name = TextColumn("{task.description}", table_column=Column(no_wrap=True))
        said = TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True))
        self.bars = Progress(name, BarColumn(20), said, console=console, transient=True)
        self.shown = time.monotonic()
        if console.is_terminal:
            self.bars.start()

    def print_line(self, text: str) -> None:
        shown = escape_controls(redact(text))
        self.bars.console.print(shown, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def show(self, counts: SweepProgress, store: Storage, *, last: bool = False) -> None:
        """Show where the sweep stands, if it is time to."""
        terminal = self.bars.console.is_terminal
        if not last and time.monotonic() - self.shown < (BAR_REFRESH_SECONDS if terminal else PLAIN_LINE_SECONDS):
            return
        self.shown, said = time.monotonic(), str(counts)
        if counts.remaining > 0 and not counts.running:
            said += " | starting a worker (`ray status` tells what is free)"
        evaluation = statistics.median(counts.evaluations) if counts.evaluations else None
        running = list(counts.running.items())[:MAX_TRIAL_BARS] if terminal or len(counts.running) == 1 else []
        trials = [(label, read_progress(store.trial(key), evaluation)) for key, (label, _) in running]
        if not terminal:
            alone = trials[0][1] if trials else None
            self.print_line(f"{said} | this one: {describe_progress(alone)}" if alone and alone["alive"] else said)
            return
        for bar in self.bars.task_ids:
            self.bars.remove_task(bar)
        ended = counts.done + counts.failed
        self.bars.add_task(counts.name, total=max(1, counts.total), completed=ended, said=said)
        for label, found in trials:
            told = "starting" if found is None else " | ".join(filter(None, format_progress_columns(found)))
            step, steps = (0, None) if found is None else (found["step"], found["steps"])
            self.bars.add_task(escape(label), total=steps, completed=step, said=told)


class WeightDeleter:
    """Deletes weights that `--keep` does not keep as soon as a trial's end shows it, of earlier starts at once."""

    def __init__(self, plan: Plan, store: Storage, choice: str) -> None:
        self.plan, self.store, self.choice = plan, store, choice
        self.trials = {trial.id(): trial for trial in plan.trials}
        self.utilities = read_target_utilities(plan, store)
        for study in plan.group_trials_by_study():
            self.delete_weights_in_study(study)

    def delete_weights_after_trial(self, trial: Trial) -> None:
        """Delete the weights that are not kept any more, of a trial's study and of the trial that it goes on from."""
        self.trials[trial.id()] = trial
        self.delete_weights_in_study(trial.study())
        if trial.earlier_trial_id:
            self.delete_weights_in_study(self.trials[trial.earlier_trial_id].study())

    def delete_weights_in_study(self, study: str) -> None:
        """Delete the weights of a study's measured trials that `choice` does not keep: see KEEP_WEIGHTS_CHOICES."""
        trials = [trial for trial in self.trials.values() if trial.study() == study]
        found = {key for key in (trial.id() for trial in trials) if self.store.has_weights(key)}
        if self.choice == "all" or not found:
            return
        benchmark, rule = self.plan.sweep.benchmark.name, self.plan.sweep.selection
        results = {key: self.store.result(key) or {} for key in (trial.id() for trial in trials)}
        gains = {key: benchmarks.orient_goal_values(benchmark, one.get("metrics", {})) for key, one in results.items()}
        points = {key: values for key, values in gains.items() if values is not None}
        keep = set(selection.find_pareto_front_ids(points)) if self.choice == "pareto" else set()
        if self.choice != "none":
            utility = self.utilities.get(trials[0].benchmark.split)
            best = selection.pick_best_candidate(selection.list_candidates(results, benchmark, rule), utility, rule)
            shown = choose_trials_of_study(trials, results, utility, rule)
            keep |= {*([best.key] if best else []), *[one.id() for one in shown if one.id() in found][:1]}
        keep |= {  # those that did not end with a model, lost or failed ones, may run again
            trial.earlier_trial_id
            for key, trial in self.trials.items()
            if trial.earlier_trial_id and (self.store.result(key) or {}).get("status") not in EVALUATED_STATUSES
        }
        for key in found & points.keys() - keep:
            self.store.remove(self.store.trial(key) / WEIGHTS)


@dataclass(eq=False)
class SweepCallback(Callback):
    """Reads the result of each trial that ends, once; where there is none, writes that the trial was lost."""

    counts: SweepProgress
    store: Storage
    mirror: MlflowMirror
    stopper: SweepStopper
    keeper: WeightDeleter
    screen: ProgressScreen
    take_result: Callable[[str, Mapping[str, Any] | None], None]
    """Is told of each result, None of a lost one, by Tune's id of the trial: what runs next may depend on it."""

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing for Tune to save: the state is never read again."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        started = parse_tune_trial(trial)
        self.stopper.count_started_trial(started)
        self.counts.running[started.id()] = (self.counts.label(started), time.monotonic())
        self.mirror.running[started.id()] = started

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.screen.show(self.counts, self.store)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        label = self.counts.label(parse_tune_trial(trial))
        self.screen.print_line(f"{label}: its process or node went away; it goes on from its last checkpoint")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, "it ended without a result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial, read_trial_error(trial).strip())

    def _end(self, tune_trial: Any, cause: str) -> None:
        trial = parse_tune_trial(tune_trial)
        key, now = trial.id(), time.monotonic()
        seconds = now - self.counts.running.pop(key, ("", now))[1]
        synced = self.store.try_download_trial(key)
        written = self.store.result(key)
        if written is None and synced:
            try:
                written = record.write_failed_trial(trial, self.store, cause, LOST, seconds)
            except OSError as error:  # the disk is full
                self.stopper.unwritable = f"{error.strerror} ({self.store.root})"
        why = "takes nothing more" if self.stopper.unwritable else "does not answer"
        message = f"not recorded, because the storage {why}; --resume looks again: {cause}"
        result = written or {"status": LOST, "error": {"kind": LOST, "message": message}}
        self.counts.count_ended_trial(result, seconds)
        name = f"{self.counts.label(trial)} ({key})"
        self.screen.print_line(f"{name}: {describe_trial_outcome(result)}, {format_duration(seconds)}")
        self.stopper.count_ended_trial(key, result)
        self.keeper.delete_weights_after_trial(trial)
        self.take_result(tune_trial.trial_id, written)
        self.mirror.log_trial_result(key, written)
        self.screen.show(self.counts, self.store, last=self.counts.remaining == 0 and not self.counts.running)


def parse_tune_trial(tune_trial: Any) -> Trial:
    return Trial.model_validate_json(tune_trial.config["trial"])


def describe_trial_outcome(result: Mapping[str, Any]) -> str:
    parts = []
    if result["status"] in EVALUATED_STATUSES:
        parts.append(benchmarks.format_goal_values(result["config"]["benchmark"]["name"], result["metrics"]))
    if ended := result.get("training", {}).get("ended"):
        parts.append(ended)
    if result["status"] != "finished":
        parts.append(f"{result['status']}: {result['error']['message']}")
    return "; ".join(parts)
