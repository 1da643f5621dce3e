"""Feeds MLflow beside a sweep: a slow or absent tracking server never holds a trial up."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from platform.tracking.tracker import Tracker

RETRY_SECONDS = 15.0
"""Between tries to reach a tracking server that was away."""

logger = logging.getLogger(__name__)


class Mirror:
    """Feeds a tracker from a thread: a slow or absent server never holds a trial up, and is caught up with later."""

    def __init__(self, make: Callable[[], Tracker]) -> None:
        self.make = make
        self.queue: queue.Queue[str | None] = queue.Queue()
        self.problem: Exception | None = None
        self.tracker: Tracker | None = None
        self.sent = 0
        self.thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def trial(self, trial_id: str) -> None:
        self.queue.put(trial_id)

    def close(self, counts: dict[str, int], seconds: float = 120) -> Exception | None:
        """Wait for what is queued, and try what failed once more; returns the problem, for `sync` to mend later.

        `seconds`: without any trial mirrored, after which the server is given up.
        """
        self.queue.put(None)
        sent = -1
        while self.thread.is_alive() and sent != self.sent:  # as long as it gets on
            sent = self.sent
            self.thread.join(seconds)
        if self.thread.is_alive():
            self.problem = TimeoutError(f"the tracking server has not answered in {seconds:.0f} s")
        elif self.tracker is not None and self.problem is None:
            self._guard(lambda: self.tracker.finish(counts) if self.tracker else None)
        return self.problem

    def report(self) -> None:
        """Show the sweep's report at its parent run; after `close`, and not where the server was given up."""
        if self.tracker is not None and self.problem is None and not self.thread.is_alive():
            self._guard(self.tracker.report)

    def _work(self) -> None:
        pending: list[str] = []
        closing = False
        while not closing:
            closing = self._take(pending)
            self._send(pending)

    def _take(self, pending: list[str]) -> bool:
        """Wait for more to mirror, no longer than until the next try where something is left; whether it is the end."""
        waits = self.tracker is not None and not pending
        try:
            taken = [self.queue.get(timeout=None if waits else RETRY_SECONDS)]
        except queue.Empty:
            return False
        while not self.queue.empty():
            taken.append(self.queue.get())
        pending += [trial_id for trial_id in taken if trial_id is not None]
        return None in taken

    def _send(self, pending: list[str]) -> None:
        """Mirror what is pending; after two failures in one round the server is taken to be away."""
        self.problem, failures = None, 0
        if self.tracker is None:
            self._guard(self._connect)
        for trial_id in list(pending) if self.tracker else ():
            known = self.problem
            self.problem = None
            self._guard(lambda key=trial_id: self.tracker.trial(key) if self.tracker else None)
            if self.problem is None:
                pending.remove(trial_id)
                self.sent += 1
                self.problem = known
            elif (failures := failures + 1) == 2:
                return

    def _connect(self) -> None:
        self.tracker = self.make()

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as problem:
            self.problem = self.problem or problem
            logger.debug("mirroring failed", exc_info=True)
