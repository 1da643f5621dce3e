"""Where a running trial is: progress.json in its folder, for readers of the storage; gone once there is a result."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.common import processes, provenance
from trainables.inference import work_counter
from trainables.storage import files
from trainables.storage.base import PROGRESS, Storage

EVERY, BEAT, SHOWN, SILENT = 2.0, 10.0, 30.0, 60.0
"""Seconds between two writings of news, between two signs of life without news (lm-eval tells nothing), and
between two showings to other machines, and without any after which a process of another machine counts as ended."""


def elsewhere(folder: Path) -> bool:
    """Whether another process, which lives on this machine, is at this trial."""
    told = files.read_json(folder / PROGRESS)
    return told is not None and told.get("pid") != os.getpid() and processes.alive(told) is True


def owner(folder: Path) -> processes.Identity | None:
    """The other process that is at this trial, None where there is none: of another machine by its signs of life."""
    told = files.read_json(folder / PROGRESS)
    if told is None or (told.get("place"), told.get("pid")) == (processes.place(), os.getpid()):
        return None
    alive = processes.alive(told)
    recent = abs(time.time() - told.get("beat", 0.0)) <= SILENT
    return told if alive or (alive is None and recent) else None


class Progress:
    """What is told of a trial; a thread writes it, so that neither a slow disk nor a long phase holds anything up."""

    def __init__(self, folder: Path, store: Storage, attempt: str | None) -> None:
        self.path = folder / PROGRESS
        self.store = store
        self.attempt = attempt
        self.shown = 0.0
        self.told: dict[str, Any] = {"phase": "loading", "step": 0, "steps": None, "training_left": None}
        self.fixed: dict[str, Any] = {}
        self.work: dict[str, Any] | None = None
        self.begun = self.entered = self.written = 0.0
        self.first: tuple[int, float] | None = None
        self.news = True
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self.fixed = {**processes.myself(), "started": provenance.now(), "attempt": self.attempt}
        self.begun = self.entered = time.monotonic()
        work_counter.NOW.begin("", 0)
        self._write()
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        self.path.unlink(missing_ok=True)
        if self.shown:
            self.store.remove(self.path)

    def follow(self, events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same events, each taken note of."""
        for event in events:
            self._note(event)
            yield event

    def _note(self, event: dict[str, Any]) -> None:
        now, step = time.monotonic(), event.get("step", self.told["step"])
        if event["phase"] != self.told["phase"]:
            self.entered = now
            work_counter.NOW.begin("", 0)
        steps = event.get("steps", self.told["steps"])
        left = self.told["training_left"] if steps and step < steps else None
        if event["phase"] == "training":
            self.first = self.first or (step, now)
            done = step - self.first[0]
            left = (now - self.first[1]) / done * (event["steps"] - step) if done > 0 else None
        self.told = {"phase": event["phase"], "step": step, "steps": steps, "training_left": left}
        self.news = True

    def _work(self) -> None:
        while not self.over.wait(EVERY):
            if self.news or self.work != work_counter.NOW.told() or time.monotonic() - self.written >= BEAT:
                self._write()
            if time.monotonic() - max(self.shown, self.begun) >= SHOWN and self.store.try_push(self.path):
                self.shown = time.monotonic()

    def _write(self) -> None:
        """A full disk is told where it hurts, by the trial's own files."""
        self.news, now = False, time.monotonic()
        self.work = work_counter.NOW.told()
        times = {
            "work": self.work,
            "seconds": now - self.begun,
            "phase_seconds": now - self.entered,
            "beat": time.time(),
        }
        with contextlib.suppress(OSError):
            files.write_json(self.path, self.told | self.fixed | times, durable=False)
            self.written = now
