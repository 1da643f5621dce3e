"""The progress of a running trial, or of what trials share while it is made: progress.json in its folder."""

import contextlib
import math
import os
import time
from collections.abc import Container
from pathlib import Path
from typing import Any, Self

from trainables.common import process_identity, provenance
from trainables.common.wording import format_duration
from trainables.storage import atomic_files
from trainables.storage.file_names import LIVE_CURVE_COLUMNS, PROGRESS, SHARED_PROGRESS_FOLDER
from trainables.storage.folder_storage import Storage

PROGRESS_WRITE_SECONDS, PROGRESS_PUSH_SECONDS = 2.0, 30.0
"""Between two writes; between two copies for other machines."""
LOST_AFTER_SECONDS = 600.0
"""A process of another machine that has written nothing for so many seconds of this clock may have ended."""
CURVE_POINT_GROWTH = 1.1
"""By how much the step of a point of the curves is above that of the point before: 54 points in 1,000 steps."""
PROGRESS_STATUS_FIELDS = ("label", "phase", "step", "steps", "started", "seconds", "host", "pid", "work", "last_look")


def is_run_by_other_process_here(folder: Path) -> bool:
    process = find_other_process_of_trial(folder)
    return process is not None and process.get("place") == process_identity.machine_id()


def find_other_process_of_trial(folder: Path) -> dict[str, Any] | None:
    """Return the other process that runs this trial, if there is one: of another machine by when it last wrote."""
    progress = atomic_files.read_json(folder / PROGRESS)
    if progress is None or (progress.get("place"), progress.get("pid")) == (process_identity.machine_id(), os.getpid()):
        return None
    return progress if is_progress_writer_running(progress) else None


def is_progress_writer_running(progress: dict[str, Any]) -> bool | None:
    """Return whether the process runs that writes a progress; None of another machine's that is silent."""
    alive = process_identity.is_process_alive(progress)
    return True if alive is None and abs(time.time() - progress.get("beat", 0.0)) <= LOST_AFTER_SECONDS else alive


def read_progress(folder: Path, evaluation: float | None) -> dict[str, Any] | None:
    """Return how far the work in a folder is, and what is left; `evaluation`: the seconds that a trial's takes."""
    found = atomic_files.read_json(folder / PROGRESS)
    if found is None or "training_left" not in found:
        return None
    silent, left = time.time() - found["beat"], found["training_left"]
    if found["phase"] in ("evaluation", "calibration"):
        rest = left or 0.0  # of the training, where it is evaluated on its way
        left = None if evaluation is None else max(0.0, evaluation - found["phase_seconds"] - silent) + rest
    elif left is not None:
        left += evaluation or 0.0
    times = {"remaining_seconds": left, "silent_seconds": round(silent, 1), "alive": is_progress_writer_running(found)}
    return {name: found.get(name) for name in PROGRESS_STATUS_FIELDS} | times


def format_progress_columns(progress: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return phase (`evaluation, 310 of 717 answers` where its work is counted), step, elapsed and remaining time."""
    phase, work, left = progress["phase"], progress["work"], progress["remaining_seconds"]
    if phase == "evaluation" and progress["steps"] and progress["step"] == progress["steps"]:
        phase = "last evaluation"
    phase = f"{phase}, {work['done']} of {work['total']} {work['what']}" if work else phase
    step = "" if progress["steps"] is None else f"{progress['step']}/{progress['steps']}"
    return phase, step, format_duration(progress["seconds"]), "" if left is None else format_duration(left)


def describe_progress(progress: dict[str, Any]) -> str:
    """Return `training, step 5/20, for 20 s, about 45 s left; step 4: said 0.900, utility 1.000`."""
    phase, step, elapsed, left = format_progress_columns(progress)
    parts = (phase, step and f"step {step}", f"for {elapsed}", left and f"about {left} left")
    return "; ".join(filter(None, (", ".join(filter(None, parts)), progress["last_look"])))


def describe_shared_progress(store: Storage, keys: Container[str] | None = None) -> list[str]:
    """Return how far each model and evaluation is that is being made for trials, in words; `keys`: of these alone."""
    lines = []
    for folder in sorted((store.root / SHARED_PROGRESS_FOLDER).glob("*")):
        found = read_progress(folder, None) if keys is None or folder.name in keys else None
        if found and found["alive"]:
            since_start = found["seconds"] + found["silent_seconds"]  # a batch may take minutes
            lines.append(f"{found['label']}: {describe_progress(found | {'seconds': since_start})}")
    return lines


def make_shared_progress_file(label: str, key: str, store: Storage) -> "ProgressFile":
    """Return the file in STORAGE/shared/making/KEY that tells how far a model or an evaluation is that trials share."""
    return ProgressFile(store.root / SHARED_PROGRESS_FOLDER / key, store, label=label)


class ProgressFile:
    """A progress file. `identity`: who writes it, and what else it tells, such as the attempt."""

    def __init__(self, folder: Path, store: Storage, **more: Any) -> None:
        self.path = folder / PROGRESS
        self.store = store
        self.identity = {**process_identity.identify_self(), "started": provenance.utc_now(), **more}
        self.state: dict[str, Any] = {"phase": "loading", "step": 0, "steps": None, "training_left": None}
        self.work: dict[str, Any] | None = None
        self.points: list[dict[str, float]] = []
        self.started = self.phase_started = self.pushed = time.monotonic()
        self.written = 0.0
        self.first: tuple[int, float] | None = None
        """The first step of training here, and when it was done."""

    def __enter__(self) -> Self:
        self.write()
        return self

    def __exit__(self, *error: object) -> None:
        self.path.unlink(missing_ok=True)
        if self.pushed > self.started:
            self.store.remove(self.path)
        with contextlib.suppress(OSError):  # a trial's folder has other files
            self.path.parent.rmdir()

    def note_event(self, event: dict[str, Any]) -> None:
        """Keep phase, step and curves of an event, and estimate how long training still takes."""
        now, step, phase = time.monotonic(), event.get("step", self.state["step"]), event["phase"]
        if phase != self.state["phase"]:
            self.phase_started, self.work, self.written = now, None, -math.inf
        steps = event.get("steps", self.state["steps"])
        left = self.state["training_left"] if steps and step < steps else None
        if phase == "training":
            self.first = self.first or (step, now)
            done = step - self.first[0]
            left = (now - self.first[1]) / done * (steps - step) if done > 0 else None
        if phase == "loading":  # another attempt in this process begins
            self.points = []
        elif "entry" in event and (not self.points or step >= CURVE_POINT_GROWTH * self.points[-1]["step"]):
            values = {name: event["entry"].get(name, math.nan) for name in LIVE_CURVE_COLUMNS}
            self.points.append({"step": step} | {name: value for name, value in values.items() if math.isfinite(value)})
        look = "" if phase == "loading" else event.get("last_look", self.state.get("last_look"))
        self.state = {"phase": phase, "step": step, "steps": steps, "training_left": left, "last_look": look}
        self._write_if_due()

    def note_count(self, what: str, done: int, total: int) -> None:
        self.work = {"what": what, "done": done, "total": total}
        self._write_if_due()

    def _write_if_due(self) -> None:
        if time.monotonic() - self.written >= PROGRESS_WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the file, and now and then send it; a disk or a store that does not take it ends no trial."""
        now = time.monotonic()
        times = {"seconds": now - self.started, "phase_seconds": now - self.phase_started, "beat": time.time()}
        more = {"work": self.work, "points": self.points}
        with contextlib.suppress(OSError):  # the trial's own files report a full disk
            atomic_files.write_json(self.path, self.state | self.identity | times | more, durable=False)
            self.written = now
            if now - self.pushed >= PROGRESS_PUSH_SECONDS and self.store.try_push(self.path):
                self.pushed = now
