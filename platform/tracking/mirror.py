"""The thread that logs trials to MLflow while a sweep runs: a slow or absent server holds no trial up."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from platform.tracking.runs import SweepMlflowRuns, open_mlflow_runs
from trainables.common.deadlines import START_TIMEOUT, call_within
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile

CURVE_LOG_SECONDS = 30.0
"""Between two looks at the curves of trials that run."""
MlflowAction = Callable[[SweepMlflowRuns], Any]


class MlflowMirror:
    """Logs what it is told of, and the curves of the trials in `running` until `log_trial_result` tells their end.

    `problem`: what went wrong, which `sync` mends later; MLflow's client tries again.
    """

    def __init__(self, connect: Callable[[], SweepMlflowRuns]) -> None:
        self.connect = connect
        self.runs: SweepMlflowRuns | None = None
        self.problem: Exception | None = None
        self.running: dict[str, Trial] = {}
        self.actions: queue.Queue[MlflowAction | None] = queue.Queue()
        self.logged = 0
        self.thread = threading.Thread(target=self._work, name="mlflow", daemon=True)

    def log_trial_result(self, trial_id: str, result: dict[str, Any] | None = None) -> None:
        """Log the result of a trial, which is read if it is not given."""
        self.running.pop(trial_id, None)
        self.actions.put(lambda runs: runs.log_result(trial_id, result))

    def close(self, patience: float = START_TIMEOUT) -> None:
        """Log what is left and the sweep's counts, unless the server gets on with nothing for `patience` seconds."""
        self.actions.put(lambda runs: self.problem or runs.finish())
        self.actions.put(None)
        logged = -1
        while self.thread.is_alive() and logged != self.logged:
            logged = self.logged
            self._wait(self.thread.join, patience)

    def log_report(self) -> None:
        """Log the sweep's report, after `close` and unless something failed."""
        if self.problem is None:
            self._wait(lambda: self._try(lambda runs: runs.log_report()))

    def _wait(self, action: Callable[[], object], seconds: float = START_TIMEOUT) -> None:
        """Wait for an action with a word and a deadline, which is the problem where it passes and nothing is logged."""
        logged = self.logged
        try:
            call_within(seconds, "the tracking server", action)
        except TimeoutError as problem:
            if logged == self.logged:
                self.problem = problem

    def _work(self) -> None:
        due = time.monotonic() + CURVE_LOG_SECONDS
        while True:
            with contextlib.suppress(queue.Empty):
                action = self.actions.get(timeout=max(0.0, due - time.monotonic()))
                if action is None:
                    return
                self._try(action)
            if time.monotonic() >= due:
                for trial in list(self.running.values()):
                    self._try(lambda runs, one=trial: runs.log_curves(one))
                due = time.monotonic() + CURVE_LOG_SECONDS

    def _try(self, action: MlflowAction) -> None:
        """Connect if that is left to do, then act, or keep the problem."""
        try:
            self.runs = self.runs or self.connect()
            action(self.runs)
            self.logged += 1
        except Exception as problem:
            self.problem = problem


def start_mlflow_mirror(sweep: SweepFile, store: Storage) -> MlflowMirror:
    """Start the thread, and queue every result so far."""
    mirror = MlflowMirror(lambda: open_mlflow_runs(sweep, store))
    mirror.thread.start()
    for trial_id in filter(store.has_result, sweep.trials):
        mirror.log_trial_result(trial_id)
    return mirror
