"""The progress of a running trial: progress.json in its folder, until there is a result."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from trainables.common import processes, provenance
from trainables.storage import files
from trainables.storage.base import PROGRESS, Storage

EVERY, BEAT, SHOWN, SILENT = 2.0, 10.0, 30.0, 60.0
"""Seconds: between two writes of news; between two signs of life without news (lm-eval reports none); between two
copies for other machines; and after which a process of another machine without a sign of life counts as ended."""


def runs_here(folder: Path) -> bool:
    """Say whether another process of this machine runs this trial."""
    progress = files.read_json(folder / PROGRESS)
    return progress is not None and progress.get("pid") != os.getpid() and processes.is_alive(progress) is True


def find_other_process(folder: Path) -> processes.Identity | None:
    """Return the other process that runs this trial, if there is one: of another machine by its signs of life."""
    progress = files.read_json(folder / PROGRESS)
    if progress is None or (progress.get("place"), progress.get("pid")) == (processes.machine_id(), os.getpid()):
        return None
    alive = processes.is_alive(progress)
    recent = abs(time.time() - progress.get("beat", 0.0)) <= SILENT
    return progress if alive or (alive is None and recent) else None


class Progress:
    """A trial's progress file; a thread writes it, so that neither a slow disk nor a long phase delays anything."""

    def __init__(self, folder: Path, store: Storage, attempt: str | None) -> None:
        self.path = folder / PROGRESS
        self.store = store
        self.attempt = attempt
        self.shown = 0.0
        self.state: dict[str, Any] = {"phase": "loading", "step": 0, "steps": None, "training_left": None}
        self.identity: dict[str, Any] = {}
        self.work: dict[str, Any] | None = None
        self.counted: dict[str, Any] | None = None
        """How far an evaluation is; `work` is what was written of it."""
        self.begun = self.entered = self.written = 0.0
        self.first: tuple[int, float] | None = None
        """The first step of training here, and when it was done."""
        self.news = True
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self.identity = {**processes.describe_self(), "started": provenance.now(), "attempt": self.attempt}
        self.begun = self.entered = time.monotonic()
        self._write()
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        self.path.unlink(missing_ok=True)
        if self.shown:
            self.store.remove(self.path)

    def note(self, event: dict[str, Any]) -> None:
        """Take over phase and step of an event, and estimate how long training still takes."""
        now, step = time.monotonic(), event.get("step", self.state["step"])
        if event["phase"] != self.state["phase"]:
            self.entered = now
            self.counted = None
        steps = event.get("steps", self.state["steps"])
        left = self.state["training_left"] if steps and step < steps else None
        if event["phase"] == "training":
            self.first = self.first or (step, now)
            done = step - self.first[0]
            left = (now - self.first[1]) / done * (event["steps"] - step) if done > 0 else None
        self.state = {"phase": event["phase"], "step": step, "steps": steps, "training_left": left}
        self.news = True

    def count(self, what: str, done: int, total: int) -> None:
        """Take over how many of the answers or generations of an evaluation are done; nothing is counted of ''."""
        self.counted = {"what": what, "done": done, "total": total} if what else None

    def _work(self) -> None:
        while not self.over.wait(EVERY):
            if self.news or self.work != self.counted or time.monotonic() - self.written >= BEAT:
                self._write()
            if time.monotonic() - max(self.shown, self.begun) >= SHOWN and self.store.try_push(self.path):
                self.shown = time.monotonic()

    def _write(self) -> None:
        self.news, now = False, time.monotonic()
        self.work = self.counted
        times = {
            "work": self.work,
            "seconds": now - self.begun,
            "phase_seconds": now - self.entered,
            "beat": time.time(),
        }
        with contextlib.suppress(OSError):  # the trial's own files report a full disk
            files.write_json(self.path, self.state | self.identity | times, durable=False)
            self.written = now
