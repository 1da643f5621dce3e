"""Results on disk: written by rename, so that a reader never sees half a file. The storage is the truth."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.storage.files import read_json
from trainables.storage.sync_interface import Sharing

RESULT, CONFIG, STEPS, ROWS, ERROR = "result.json", "config.json", "steps.parquet", "evaluation.parquet", "error.txt"
PROGRESS, RETRY = "progress.json", "retry.json"
CHECKPOINT, EVALUATIONS, WEIGHTS = "checkpoint", "evaluations", "weights"
META = "meta.json"
"""Makes a checkpoint count; written last."""
UNFINISHED = (CHECKPOINT, EVALUATIONS, PROGRESS)
"""What a trial has only while it is under way."""
EVALUATED = ("finished", "collapsed")
"""Outcomes that come with metrics."""
LOST = "lost"
"""Outcome of a trial that its process, machine or disk gave up on: it goes on from its checkpoint when resumed."""
FAILURES = ("failed", "out_of_memory", LOST)
"""Outcomes that are accidents; every other one (`finished`, `diverged`, ...) is a result."""
OUTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS)
"""What a disk says that has no room, or is not there any more."""
NO_ROOM = 2**20
"""Bytes free."""


class Storage(Sharing):
    """A folder: trials/, sweeps/, shared/, reports/ and mlflow.db."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def trial(self, trial_id: str) -> Path:
        return _inside(self.root / "trials", trial_id)

    def sweep(self, name: str, digest: str) -> Path:
        return _inside(self.root / "sweeps", f"{name}-{digest}.json")

    def lock(self, name: str, digest: str) -> Path:
        """Where the driver of a sweep says that it runs."""
        return _inside(self.root / "sweeps", f"{name}-{digest}.lock")

    def spent(self, name: str, digest: str) -> Path:
        """What a sweep has spent in all its starts."""
        return _inside(self.root / "sweeps", f"{name}-{digest}.spent")

    def model(self, recipe_id: str) -> Path:
        return _inside(self.root / "shared" / "models", recipe_id)

    def data(self, key: str) -> Path:
        return _inside(self.root / "shared" / "data", key)

    def evaluation(self, key: str) -> Path:
        return _inside(self.root / "shared" / "evaluations", key)

    def has(self, trial_id: str) -> bool:
        """Whether a trial has a result, readable or not."""
        return (self.trial(trial_id) / RESULT).is_file()

    def under_way(self, trial_id: str) -> bool:
        """Whether a process that is at a trial, or was killed there, has left its checkpoint or its progress."""
        folder = self.trial(trial_id)
        return any(path.is_file() or self.there(path) for path in (folder / CHECKPOINT / META, folder / PROGRESS))

    def result(self, trial_id: str) -> dict[str, Any] | None:
        """A finished trial's result, None where there is none that can be read."""
        return read_json(self.trial(trial_id) / RESULT)


def _inside(folder: Path, name: str) -> Path:
    """What is called `name` in a folder. Raises InputError for a name that leads out of it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError(f"'{name}' names nothing in {folder}: it is a path, not a name")
    return folder / name


def is_outage(error: BaseException | None, store: Storage) -> bool:
    """Whether an error, or one that led to it, is the disk's: it says so, or there is no room (torch hides that)."""
    if store.free() < NO_ROOM:
        return True
    while error is not None:
        if isinstance(error, OSError) and error.errno in OUTAGES:
            return True
        error = error.__cause__ or error.__context__
    return False


def set_aside(paths: Iterable[Path], store: Storage) -> Path:
    """Move files or folders out of the way, under a dated folder, which is returned; nothing is deleted."""
    place = dated_place(store)
    for path in paths:
        store.move(path, place / path.name)
    return place


def dated_place(store: Storage) -> Path:
    """The folder for what is set aside just now."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    return store.root / "set_aside" / stamp
