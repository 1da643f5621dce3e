"""The progress of a running trial: progress.json in its folder, until there is a result."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.common import process_identity, provenance
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import PROGRESS

WRITE_SECONDS, HEARTBEAT_SECONDS, PUSH_SECONDS = 2.0, 10.0, 30.0
"""Between two writes of something new; between two without anything new; between two copies for other machines."""
MAKING = "shared/making"
"""Where the progress of what trials share lies in a storage."""
LOST_SECONDS = 60.0
"""A process of another machine whose last heartbeat is so many seconds from this clock may have ended."""


def runs_here(folder: Path) -> bool:
    """Return whether another process of this machine runs this trial."""
    process = find_other_process(folder)
    return process is not None and process.get("place") == process_identity.machine_id()


def find_other_process(folder: Path) -> process_identity.Identity | None:
    """Return the other process that runs this trial, if there is one: of another machine by its heartbeat."""
    progress = atomic_files.read_json(folder / PROGRESS)
    if progress is None or (progress.get("place"), progress.get("pid")) == (process_identity.machine_id(), os.getpid()):
        return None
    return progress if is_running(progress) else None


def is_running(progress: dict[str, Any]) -> bool | None:
    """Return whether the process runs that writes a progress; None of another machine's that is silent."""
    alive = process_identity.is_alive(progress)
    return True if alive is None and abs(time.time() - progress.get("beat", 0.0)) <= LOST_SECONDS else alive


@contextlib.contextmanager
def note_making(label: str, key: str, store: Storage) -> Iterator[Progress]:
    """Tell in STORAGE/shared/making/KEY how far a model or an evaluation is that trials share."""
    folder = store.root / MAKING / key
    progress = Progress(folder, store, None)
    progress.identity["label"] = label
    try:
        with progress:
            yield progress
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


class Progress:
    """A trial's progress file; a thread writes it, so that neither a slow disk nor a long phase delays anything."""

    def __init__(self, folder: Path, store: Storage, attempt: str | None) -> None:
        self.path = folder / PROGRESS
        self.store = store
        self.attempt = attempt
        self.state: dict[str, Any] = {"phase": "loading", "step": 0, "steps": None, "training_left": None}
        self.identity: dict[str, Any] = {}
        self.work: dict[str, Any] | None = None
        """How far an evaluation is."""
        self.started = self.phase_started = self.written = self.pushed = 0.0
        self.first: tuple[int, float] | None = None
        """The first step of training here, and when it was done."""
        self.changed = True
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._write_on, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self.identity |= {**process_identity.describe_self(), "started": provenance.now(), "attempt": self.attempt}
        self.started = self.phase_started = time.monotonic()
        self._write()
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        self.path.unlink(missing_ok=True)
        if self.pushed:
            self.store.remove(self.path)

    def note(self, event: dict[str, Any]) -> None:
        """Keep phase and step of an event, and estimate how long training still takes."""
        now, step = time.monotonic(), event.get("step", self.state["step"])
        if event["phase"] != self.state["phase"]:
            self.phase_started, self.work = now, None
        steps = event.get("steps", self.state["steps"])
        left = self.state["training_left"] if steps and step < steps else None
        if event["phase"] == "training":
            self.first = self.first or (step, now)
            done = step - self.first[0]
            left = (now - self.first[1]) / done * (event["steps"] - step) if done > 0 else None
        self.state = {"phase": event["phase"], "step": step, "steps": steps, "training_left": left}
        self.changed = True

    def count(self, what: str, done: int, total: int) -> None:
        """Keep how many of the answers or generations of an evaluation are done; '' counts nothing."""
        self.work = {"what": what, "done": done, "total": total} if what else None
        self.changed = True

    def _write_on(self) -> None:
        while not self.over.wait(WRITE_SECONDS):
            if self.changed or time.monotonic() - self.written >= HEARTBEAT_SECONDS:
                self._write()
            if time.monotonic() - max(self.pushed, self.started) >= PUSH_SECONDS and self.store.try_push(self.path):
                self.pushed = time.monotonic()

    def _write(self) -> None:
        self.changed, now = False, time.monotonic()
        times = {"seconds": now - self.started, "phase_seconds": now - self.phase_started, "beat": time.time()}
        with contextlib.suppress(OSError):  # the trial's own files report a full disk
            atomic_files.write_json(self.path, self.state | self.identity | times | {"work": self.work}, durable=False)
            self.written = now
