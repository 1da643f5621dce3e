"""The thread that logs trials to MLflow while a sweep runs: a slow or absent server holds no trial up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from platform.tracking.runs import Runs, open_runs
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile

SEND_SECONDS, CURVE_SECONDS = 5.0, 30.0
"""Between two looks at which trials have ended, and between two looks at the curves of those that run."""
CLOSE_SECONDS, INTERRUPT_SECONDS = 120.0, 5.0
"""How long a server may be silent at a sweep's end, and after Ctrl-C, before it is given up."""

logger = logging.getLogger(__name__)


class Mirror:
    """Logs what it is told of. `problem`: what went wrong last, for `sync` to mend later."""

    def __init__(self, connect: Callable[[], Runs]) -> None:
        self.connect = connect
        self.runs: Runs | None = None
        self.problem: Exception | None = None
        self.pending: dict[str, dict[str, Any] | None] = {}
        self.running: dict[str, Trial] = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work, name="mlflow", daemon=True)

    def start_trial(self, trial: Trial) -> None:
        """Log the curves of a trial until `add_trial` says that it has ended."""
        self.running[trial.id()] = trial

    def add_trial(self, trial_id: str, result: dict[str, Any] | None = None) -> None:
        """Log the result of a trial, which is read if it is not given."""
        self.running.pop(trial_id, None)
        self.pending[trial_id] = result

    def close(self, counts: Mapping[str, int]) -> None:
        """Log what is pending and the sweep's counts, as long as the server gets on with it."""
        self.over.set()
        left = -1
        while self.thread.is_alive() and left != len(self.pending):
            left = len(self.pending)
            self.thread.join(CLOSE_SECONDS)
        if self.thread.is_alive():
            self.problem = TimeoutError(f"the tracking server has not answered in {CLOSE_SECONDS:.0f} s")
        elif self.problem is None:
            self._try(lambda runs: runs.finish(counts))

    def interrupt(self) -> None:
        """Mark the runs of interrupted trials as killed, if the server answers soon; else the next start does."""
        self.running.clear()
        self.over.set()
        self.thread.join(INTERRUPT_SECONDS)
        if self.runs and not self.thread.is_alive() and self.problem is None:
            self._try(lambda runs: runs.end_running())

    def log_report(self) -> None:
        """Log the sweep's report, after `close` and unless something failed."""
        if self.problem is None:
            self._try(lambda runs: runs.log_report())

    @property
    def page(self) -> str:
        """Return the part of an address that opens the sweep in MLflow, empty if MLflow has not been reached."""
        return f"#/experiments/{self.runs.experiment}" if self.runs else ""

    def _work(self) -> None:
        curves = time.monotonic() + CURVE_SECONDS
        while not self.over.wait(SEND_SECONDS):
            self._send()
            if time.monotonic() >= curves and self.problem is None:
                for trial in list(self.running.values()):
                    self._try(lambda runs, one=trial: runs.log_curves(one))
                curves = time.monotonic() + CURVE_SECONDS
        self._send()

    def _send(self) -> None:
        """Log the trials that have ended; what fails is tried again. After two failures the server is away."""
        failures = int(not self._try(lambda runs: None))
        for trial_id in list(self.pending) if self.runs else ():
            result = self.pending.pop(trial_id)
            if not self._try(lambda runs, key=trial_id, one=result: runs.log_result(key, one)):
                self.pending[trial_id] = result
                failures += 1
            if failures == 2:
                break
        if not failures:
            self.problem = None

    def _try(self, action: Callable[[Any], None]) -> bool:
        """Connect if that is left to do, then act; return whether it worked, else keep the problem."""
        try:
            self.runs = self.runs or self.connect()
            action(self.runs)
        except Exception as problem:
            logger.debug("logging to MLflow failed", exc_info=True)
            self.problem = problem
            return False
        return True


def start_mirror(sweep: SweepFile, store: Storage) -> Mirror:
    """Start the thread, and queue every result so far."""
    mirror = Mirror(lambda: open_runs(sweep, store))
    mirror.thread.start()
    for trial_id in filter(store.has, sweep.trials):
        mirror.add_trial(trial_id)
    return mirror
