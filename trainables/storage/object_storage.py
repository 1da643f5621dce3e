"""A storage in an object store, with a working copy on every machine, which may be deleted when nothing runs there.

An object is there completely or not at all. A group of objects counts as there once its last one is: result.json of a
trial, meta.json of a checkpoint, `.whole`, which lists its files, of a folder that never changes (model, data,
direction, weights, export).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainables.storage.atomic_files import parse_object, usable_folder
from trainables.storage.connect import connect, server
from trainables.storage.names import (
    CHECKPOINT,
    CONFIG,
    EVALUATIONS,
    LOST,
    MAKING,
    META,
    PROGRESS,
    RESULT,
    RETRY,
    WEIGHTS,
)
from trainables.storage.object_files import ObjectFiles, warn_if_unreachable, was_sent
from trainables.storage.object_store import Entry, ObjectStore, is_same
from trainables.storage.trial_files import never_ran

CACHE = Path("~/.cache/unlearning/storages")
UNSENT = ".unsent"
"""Folder whose files name the trials that began here and whose end is not in the store: their files here are newer."""
LIGHT = (".json", ".txt")
"""The small files of a trial that plans, status and reports read; a start that runs trials downloads all files."""
WAITS = (0.0, 5.0, 20.0)
"""Seconds before each try to send a result."""


class ObjectStorage(ObjectFiles):
    """`writable`: whether results that could not be sent are sent when trials are downloaded."""

    def __init__(self, root: Path, store: ObjectStore, writable: bool) -> None:
        super().__init__(root, store)
        self.writable = writable

    def sync_trials(self, trial_ids: Iterable[str] = ()) -> None:
        self.scan()
        for folder in ("sweeps", "shared/evaluations", MAKING):
            found = self.listed.below(folder)
            chosen = {name: entry for name, entry in found.items() if name.endswith(".json")}
            self.mirror(self.root / folder, chosen, lambda path: path.suffix == ".json" and was_sent(path))
        self.download_trials(trial_ids)

    def sync_making(self) -> None:
        folder = self.root / MAKING
        written = {name for name, file in self.files_of(folder).items() if not was_sent(file)}
        found = self.list_below(folder)
        self.mirror(folder, {name: at for name, at in found.items() if name not in written}, was_sent)

    def download_trials(self, trial_ids: Iterable[str]) -> None:
        wanted = {}
        for trial_id in trial_ids:
            found = _directly_in(f"trials/{trial_id}", self.listed.below(f"trials/{trial_id}"))
            if self._unsent(trial_id).exists() and f"trials/{trial_id}/{RESULT}" not in found:
                if self.writable and self.has(trial_id):
                    self.push_trial(trial_id)
                continue
            wanted |= found if self.writable else {name: at for name, at in found.items() if name.endswith(LIGHT)}
            self._drop_outdated(self.trial(trial_id), found)
            self._unsent(trial_id).unlink(missing_ok=True)
        self.download(wanted)

    def finished_trials(self) -> list[str]:
        found = (name.split("/") for name in self.listed.below("trials"))
        return sorted(parts[1] for parts in found if parts[2:] == [RESULT])

    def fetch_trial(self, trial_id: str) -> None:
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        found = self.list_below(folder)
        if self._unsent(trial_id).exists() and f"{name}/{RESULT}" not in found and self.has(trial_id):
            self.push_trial(trial_id)
            return
        checkpoint, weights = f"{name}/{CHECKPOINT}/", f"{name}/{WEIGHTS}/"
        without = (weights,) if checkpoint + META in found else (weights, checkpoint)
        kept = {key: entry for key, entry in found.items() if not key.startswith(without)}
        self.mirror(folder, kept, lambda path: WEIGHTS not in path.relative_to(folder).parts)
        if f"{name}/{RESULT}" not in found:  # weights of an attempt that was set aside
            shutil.rmtree(folder / WEIGHTS, ignore_errors=True)
        self._unsent(trial_id).unlink(missing_ok=True)

    def start_trial(self, trial_id: str, config: dict[str, Any]) -> None:
        super().start_trial(trial_id, config)
        self._unsent(trial_id).touch()
        self.try_push(self.trial(trial_id) / CONFIG)

    def push_trial(self, trial_id: str) -> None:
        self._unsent(trial_id).touch()
        for wait in WAITS:
            time.sleep(wait)
            if warn_if_unreachable(lambda: self._push_trial(trial_id)):
                return

    def is_sent(self, trial_id: str) -> bool:
        return not self._unsent(trial_id).exists()

    def try_sync_trial(self, trial_id: str) -> bool:
        def sync() -> None:
            self.listed.update(self.list_below(self.trial(trial_id)))
            self.download_trials([trial_id])

        return warn_if_unreachable(sync)

    def finish_checkpoint(self, folder: Path, tag: str) -> None:
        evaluations, name = folder.parent / EVALUATIONS, self.name

        def finish() -> None:
            self.push_parts(evaluations)
            self.push(folder / META)
            kept = self.files_of(evaluations)
            gone = [old for old in self.list_below(evaluations) if old not in kept]
            current = (name(folder / META), f"{name(folder / tag)}/")  # other machines' shards, too
            gone += [old for old in self.list_below(folder) if not old.startswith(current)]
            self.store.delete(gone)

        warn_if_unreachable(finish)

    def _unsent(self, trial_id: str) -> Path:
        """Return the file that is there while a trial's end is not in the store."""
        return self.root / UNSENT / trial_id

    def _push_trial(self, trial_id: str) -> None:
        """Send result.json last, then delete what a trial that has ended does not keep; a lost one keeps everything.

        If this result says that the trial did not run, and the store has one of a trial that ran, that one stays.
        """
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        before = self.list_below(folder)
        result = self.result(trial_id) or {}
        if never_ran(result):
            ended = parse_object(self.store.read(f"{name}/{RESULT}") or b"") or {}
            if "status" in ended and not never_ran(ended):
                found = _directly_in(name, before)
                self._drop_outdated(folder, found)
                self.download(found)
                self._unsent(trial_id).unlink(missing_ok=True)
                return
        written = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
        files = {self.name(file): file for file in written if file.name not in (PROGRESS, RETRY)}
        self.send_changed({key: file for key, file in files.items() if file.name != RESULT}, before)
        if (folder / WEIGHTS).is_dir():
            self.push(folder / WEIGHTS)
        self.push(folder / RESULT)
        if result.get("status") != LOST:
            gone = [key for key in before if key not in files and not key.startswith(f"{name}/{WEIGHTS}/")]
            self.store.delete(gone)
        self._unsent(trial_id).unlink(missing_ok=True)

    def _drop_outdated(self, folder: Path, found: dict[str, Entry]) -> None:
        """Delete the copy of a trial that is no more in the store, and what is of an earlier attempt."""
        entry = found.get(self.name(folder / RESULT))
        if (folder / RESULT).is_file() and entry is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.is_dir():
            if entry is not None and not is_same(folder / RESULT, entry):
                shutil.rmtree(folder / WEIGHTS, ignore_errors=True)
            for file in (file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")):
                there = found.get(self.name(file))
                if there is None or (not file.name.endswith(LIGHT) and not is_same(file, there)):
                    file.unlink(missing_ok=True)


def open_copy(uri: str, *, writable: bool, check: bool) -> ObjectStorage:
    """Open the working copy of a storage. Raises InputError if its address, or the copy's folder, cannot be used."""
    store = ObjectStore(uri, *connect(uri))
    asked = (server() or "") if uri.startswith("s3:") else ""
    key = hashlib.sha256(f"{uri.rstrip('/')} {asked}".encode()).hexdigest()[:16]
    copy = Path(os.environ.get("UNLEARN_CACHE") or CACHE).expanduser().absolute() / key
    (usable_folder(copy, "UNLEARN_CACHE", writable=True) / UNSENT).mkdir(exist_ok=True)
    if check:
        store.check(writable)
    return ObjectStorage(copy, store, writable)


def _directly_in(folder: str, found: dict[str, Entry]) -> dict[str, Entry]:
    """Return those of the objects that lie in the folder itself."""
    return {name: entry for name, entry in found.items() if name.count("/") == folder.count("/") + 1}
