"""What a start is told and may do: its options, its GPU-hours, a full disk, failures that all have one cause."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platform.plan.spaces import STRATEGIES
from platform.state.lock import call_periodically_in_thread
from platform.state.trial_outcomes import count_trial_gpus, normalise_failure_cause
from trainables.common.errors import suggest_name
from trainables.config.trial import Trial
from trainables.storage.atomic_files import parse_json_object, read_json, write_json
from trainables.storage.file_names import FAILED_STATUSES
from trainables.storage.folder_storage import Storage

KEEP_WEIGHTS_CHOICES = ("all", "pareto", "best", "none")
"""`best`: the trial that the rule chooses, and one of the setting that means over seeds choose so far; `pareto` too."""
FIRST_TRIALS_WATCHED = 5
"""A sweep stops if this many trials end first and all of them fail for the same cause."""
PREPARATION_KEY = "preparation"
SPENT_GPU_NOTE_SECONDS = 10.0
"""Between two notes of what is spent: a driver that is killed forgets no more than these."""


@dataclass(frozen=True)
class StartOptions:
    """The options of a start, apart from what is planned."""

    gpu_hours: float | None = None
    address: str | None = None
    max_concurrent: int | None = None
    keep: str = "pareto"
    resume: bool = False
    new: bool = False
    retry_failed: bool = False
    reason: str | None = None
    minutes: float | None = None

    @property
    def retried_outcomes(self) -> tuple[str, ...]:
        """Return the outcomes whose trials run again, beside those that were lost."""
        return () if not self.retry_failed else (self.reason,) if self.reason else FAILED_STATUSES

    def find_problems(self, strategy: str, trials: int | None, cluster: str | None) -> Iterator[str]:
        """Yield what is wrong: values that are unknown, and options that exclude each other."""
        if cluster is not None and self.address is not None:
            yield "--cluster and --address exclude each other: the first starts the sweep on that head"
        if strategy not in STRATEGIES:
            yield f"--strategy: unknown strategy '{strategy}'; {suggest_name(strategy, STRATEGIES)}"
        elif trials is not None and strategy != "optuna":
            yield f"--trials {trials}: for --strategy optuna; --strategy {strategy} has its own order"
        if self.new and (self.resume or self.retry_failed):
            yield f"--{'resume' if self.resume else 'retry-failed'} and --new exclude each other"
        if self.reason is not None and not self.retry_failed:
            yield "--reason: says which failed trials --retry-failed runs again; add --retry-failed"
        if self.reason is not None and self.reason not in FAILED_STATUSES:
            yield f"--reason: unknown reason '{self.reason}'; {suggest_name(self.reason, FAILED_STATUSES)}"
        for option, limit in (("--gpu-hours", self.gpu_hours), ("--minutes", self.minutes)):
            if limit is not None and not 0 < limit < float("inf"):
                yield f"{option}: must be above 0, got {limit:g}"
        if self.keep not in KEEP_WEIGHTS_CHOICES:
            yield f"--keep: unknown choice '{self.keep}'; {suggest_name(self.keep, KEEP_WEIGHTS_CHOICES)}"


@dataclass
class SweepStopper:
    """Follows the trials of a start; `reason` says why no further one may begin."""

    gpu_hours: float | None = None
    """The limit of all starts of a sweep, the preparation included; None: none."""
    spent: float = 0.0
    """GPU-seconds of all that has ended, in earlier starts too."""
    running: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Trial id, or PREPARATION_KEY -> when it began (monotonic), and its GPUs."""
    first_results: list[dict[str, Any]] = field(default_factory=list)
    minutes: float | None = None
    """The limit of this start, from its first trial on."""
    begun: float | None = None
    unwritable: str | None = None
    """Why nothing can be written to the storage, not even that a trial failed."""

    def count_started_trial(self, trial: Trial) -> None:
        """Count a trial. One that starts again after its process died runs since its first start."""
        self.begun = time.monotonic() if self.begun is None else self.begun
        self.running.setdefault(trial.id(), (time.monotonic(), count_trial_gpus(trial.resources)))

    def count_ended_trial(self, trial_id: str, result: dict[str, Any]) -> None:
        self._stop_counting(trial_id)
        if len(self.first_results) < FIRST_TRIALS_WATCHED:
            self.first_results.append(result)

    @contextlib.contextmanager
    def count_gpu_time_of_preparation(self, size: float) -> Iterator[None]:
        """Count the block, which makes what trials share, as a trial on `size` GPUs."""
        self.running[PREPARATION_KEY] = (time.monotonic(), size)
        try:
            yield
        finally:
            self._stop_counting(PREPARATION_KEY)

    def _stop_counting(self, key: str) -> None:
        started, size = self.running.pop(key, (0.0, 0.0))
        self.spent += (time.monotonic() - started) * size

    @property
    def gpu_hours_spent(self) -> float:
        """GPU-hours so far, of running trials too."""
        now = time.monotonic()
        return (self.spent + sum((now - started) * size for started, size in list(self.running.values()))) / 3600

    @property
    def first_trials_failed_alike(self) -> bool:
        """Whether all trials that ended first failed, for one cause."""
        failed = [result for result in self.first_results if result["status"] in FAILED_STATUSES]
        causes = set(map(normalise_failure_cause, failed))
        return len(failed) == FIRST_TRIALS_WATCHED and len(causes) == 1

    @property
    def reason(self) -> str | None:
        """Why no further trial may begin; None: it may."""
        if self.unwritable:
            return f"the storage takes nothing more: {self.unwritable}"
        if self.first_trials_failed_alike:
            message = self.first_results[0]["error"]["message"]
            return f"the first {FIRST_TRIALS_WATCHED} trials that ended all failed for the same cause: {message}"
        if self.gpu_hours is not None and self.gpu_hours_spent >= self.gpu_hours:
            spent = f"{self.gpu_hours_spent:.3g} GPU-hours are spent (a rank without a GPU counts as one)"
            return f"--gpu-hours {self.gpu_hours:g}: {spent}"
        if self.minutes and self.begun is not None and time.monotonic() - self.begun >= 60 * self.minutes:
            return f"--minutes {self.minutes:g}: they are over"
        return None

    @property
    def advice(self) -> str:
        if self.unwritable:
            return "make room, then go on with --resume"
        again = "mend that, then go on with --resume --retry-failed"
        more = "a larger --gpu-hours and " if (self.reason or "").startswith("--gpu-hours") else ""
        return again if self.first_trials_failed_alike else f"go on with {more}--resume"


def load_spent_gpu_seconds(path: Path, store: Storage) -> float:
    """Return the GPU-seconds of all starts, of the notes here and in the store the larger."""
    notes = parse_json_object(store.read_current_bytes(path) or b""), read_json(path)
    return max((float(note["gpu_seconds"]) for note in notes if note is not None), default=0.0)


@contextlib.contextmanager
def record_spent_gpu_seconds(stopper: SweepStopper, path: Path, store: Storage) -> Iterator[None]:
    """Note the GPU-seconds while the block runs, and at its end."""

    def note() -> None:
        with contextlib.suppress(OSError):  # a full disk is found out by the trials' own files
            write_json(path, {"gpu_seconds": round(stopper.gpu_hours_spent * 3600, 3)}, durable=False)
            store.try_push(path)

    try:
        with call_periodically_in_thread(note, SPENT_GPU_NOTE_SECONDS):
            note()
            yield
    finally:
        note()
