"""The thread that tells MLflow of results while a sweep runs."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from platform.tracking import tracker, views
from platform.tracking.tracker import Tracker
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile
from trainables.storage.trial_files import remove_leftovers

SEND_SECONDS = 5.0
"""Between two looks at what is pending, or two tries to reach a server that was away."""

CURVE_SECONDS, CURVE_GROWTH = 10.0, 1.5
"""How long a trial has run when its curves are first shown, and by how much longer at each next time: 15 times in an
hour, which take 0.07 to 0.13 s of a processor, and 0.3 to 0.4 s for a driver's first trial."""

logger = logging.getLogger(__name__)


@dataclass
class RunningTrial:
    """A trial that runs, and the seconds after its start at which its curves are shown next."""

    trial: Trial
    started: float = field(default_factory=time.monotonic)
    due: float = CURVE_SECONDS

    def is_due(self) -> bool:
        """Return whether the curves are to be shown now, and set the next time."""
        ran = time.monotonic() - self.started
        if ran < self.due:
            return False
        self.due = ran * CURVE_GROWTH
        return True


class Mirror:
    """Feeds a tracker from a thread: a slow or absent server never holds a trial up, and gets all when it is back."""

    def __init__(self, connect: Callable[[], Tracker]) -> None:
        self.connect = connect
        self.tracker: Tracker | None = None
        self.problem: Exception | None = None
        self.pending: dict[str, None] = {}
        self.running: dict[str, RunningTrial] = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)

    def start_trial(self, trial: Trial) -> None:
        """Show the curves of a trial until `add_trial` says that it has ended."""
        self.running[trial.id()] = RunningTrial(trial)

    def add_trial(self, trial_id: str) -> None:
        self.running.pop(trial_id, None)
        self.pending[trial_id] = None

    def close(self, counts: dict[str, int], seconds: float = 120) -> Exception | None:
        """Wait for what is pending; return the problem, for `sync` to mend later.

        `seconds`: how long to wait without progress before the server is given up.
        """
        self.over.set()
        left = -1
        while self.thread.is_alive() and left != len(self.pending):  # as long as it gets on
            left = len(self.pending)
            self.thread.join(seconds)
        if self.thread.is_alive():
            self.problem = TimeoutError(f"the tracking server has not answered in {seconds:.0f} s")
        elif self.problem is None:
            self.problem = self._try(lambda tracker: tracker.finish(counts))
        return self.problem

    @property
    def page(self) -> str:
        """Return the part of an address that opens MLflow at the sweep's view, empty if MLflow has not been reached."""
        told = self.tracker
        return views.LINK.format(experiment=told.experiment, sweep=told.sweep.label) if told else ""

    def log_report(self) -> None:
        """Show the sweep's report at its parent run; after `close`, and not where something failed."""
        if self.problem is None:
            self.problem = self._try(lambda tracker: tracker.log_report())

    def _work(self) -> None:
        """Mirror what is pending every few seconds, and a last time when `close` is called."""
        while not self.over.wait(SEND_SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        """Connect and mirror what is pending, then curves; after two failures the server is taken to be away."""
        failures = list(filter(None, [self._try(lambda tracker: None)]))
        for trial_id in list(self.pending) if self.tracker else ():
            del self.pending[trial_id]
            failure = self._try(lambda tracker, key=trial_id: tracker.log_trial(key))
            if failure is not None:
                self.pending[trial_id] = None
                failures.append(failure)
            if len(failures) == 2:
                break
        self.problem = failures[0] if failures else None
        for one in list(self.running.values()) if self.tracker and len(failures) < 2 else ():
            if self.over.is_set() or (one.is_due() and self._try(lambda told, trial=one.trial: told.log_curves(trial))):
                break  # no problem of the sweep's: its results hold all curves

    def _try(self, action: Callable[[Tracker], None]) -> Exception | None:
        """Connect where that is left to do, then act; return what went wrong."""
        try:
            self.tracker = self.tracker or self.connect()
            action(self.tracker)
        except Exception as problem:
            logger.debug("mirroring failed", exc_info=True)
            return problem
        return None


def start_mirror(sweep: SweepFile, store: Storage) -> Mirror:
    """Start the thread that tells MLflow, queue every result so far, and remove leftovers of killed starts."""
    mirror = Mirror(lambda: tracker.open_tracker(sweep, store))
    mirror.thread.start()
    for old in (store.root / "ray").glob(f"{sweep.label}-*"):  # Tune's state
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in sweep.trials:
        if store.has(trial_id):
            remove_leftovers(store.trial(trial_id))
            mirror.add_trial(trial_id)
    return mirror
