"""A storage in an object store, with a working copy on every machine: files are read and written there as in a folder.

What others are to see is pushed, what others made is fetched. The store is the truth: the copy may be deleted at any
time when nothing runs here. Objects appear whole, and what is made of several appears with its last one:
- a trial with result.json, a checkpoint with meta.json;
- a folder that never changes (model, data, direction, weights, export) with `.whole`, which lists its files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from trainables.common.errors import InputError
from trainables.storage import files as storage_files
from trainables.storage import results as results_
from trainables.storage import uri as storage_uri
from trainables.storage.base import (
    CHECKPOINT,
    CONFIG,
    EVALUATIONS,
    LOST,
    META,
    PROGRESS,
    RESULT,
    RETRY,
    WEIGHTS,
    Storage,
)
from trainables.storage.complete import is_whole
from trainables.storage.object_store import Entry, Remote, is_inside, same
from trainables.storage.transfer import Exchange, was_sent

CACHE = Path("~/.cache/unlearning/storages")
UNSENT = ".unsent"
"""Names the trials that began here and whose end is not in the store: what lies here is newer than what lies there."""
LIGHT = (".json", ".txt")
"""Of a trial's files: what plans, status and reports read. A real start brings all that lie in its folder itself."""
WAITS = (0.0, 5.0, 20.0)
"""Seconds before each try to send a result."""
V = TypeVar("V")


class WorkingCopy(Storage):
    """`writable`: whether results that could not be sent are sent when the store is looked at."""

    copied = True

    def __init__(self, root: Path, remote: Remote, writable: bool) -> None:
        super().__init__(root)
        self.exchange = Exchange(root, remote)
        self.writable = writable

    @property
    def location(self) -> str:
        return self.exchange.remote.uri

    def uri(self, path: Path) -> str:
        return f"{self.location.split('?')[0].rstrip('/')}/{self.exchange.name(path)}"

    def refresh(self) -> None:
        self.exchange.look()
        for folder in ("sweeps", "shared/evaluations"):
            found = self.exchange.listed.below(folder)
            chosen = {name: entry for name, entry in found.items() if name.endswith(".json")}
            self.exchange.mirror(self.root / folder, chosen, lambda path: path.suffix == ".json" and was_sent(path))

    def look_again(self) -> None:
        self.exchange.softly(self.exchange.look)

    def bring(self, trial_ids: Iterable[str]) -> None:
        unsent, wanted = self._unsent(), {}
        for trial_id in trial_ids:
            found = self.exchange.listed.inside(f"trials/{trial_id}")
            if trial_id in unsent and f"trials/{trial_id}/{RESULT}" not in found:
                if self.writable and self.has(trial_id):
                    self.push_trial(trial_id)
                continue
            wanted |= found if self.writable else {name: at for name, at in found.items() if name.endswith(LIGHT)}
            self._drop_others(self.trial(trial_id), found)
            if trial_id in unsent:
                self._unsent_file(trial_id).unlink(missing_ok=True)
        self.exchange.bring(wanted)

    def fetch_trial(self, trial_id: str) -> None:
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        found = self.exchange.list(folder)
        if trial_id in self._unsent() and f"{name}/{RESULT}" not in found and self.has(trial_id):
            self.push_trial(trial_id)
            return
        checkpoint, weights = f"{name}/{CHECKPOINT}/", f"{name}/{WEIGHTS}/"
        whole = checkpoint + META in found
        without = (weights,) if whole else (weights, checkpoint)
        kept = {key: entry for key, entry in found.items() if not key.startswith(without)}
        self.exchange.mirror(folder, kept, lambda path: WEIGHTS not in path.relative_to(folder).parts)
        if f"{name}/{RESULT}" not in found:  # weights of an attempt that was set aside
            shutil.rmtree(folder / WEIGHTS, ignore_errors=True)
        self._unsent_file(trial_id).unlink(missing_ok=True)

    def look_at_trial(self, trial_id: str) -> bool:
        def look() -> None:
            for name, entry in self.exchange.list(self.trial(trial_id)).items():
                self.exchange.listed.add(name, entry)
            self.bring([trial_id])

        return self.exchange.softly(look)

    def began(self, trial_id: str) -> None:
        self._mark_unsent(trial_id)
        self.tell(self.trial(trial_id) / CONFIG)

    def push_trial(self, trial_id: str) -> None:
        self._mark_unsent(trial_id)
        for wait in WAITS:
            time.sleep(wait)
            if self.exchange.softly(lambda: self._push_trial(trial_id)):
                return

    def sent(self, trial_id: str) -> bool:
        return trial_id not in self._unsent()

    def push_checkpoint(self, folder: Path, tag: str) -> bool:
        return self.exchange.softly(lambda: self.push_parts(folder / tag))

    def finish_checkpoint(self, folder: Path, tag: str) -> None:
        evaluations = folder.parent / EVALUATIONS

        def finish() -> None:
            self.push_parts(evaluations)
            self.push(folder / META)
            kept, counts = self.exchange.named(evaluations), self.exchange.name(folder / META)
            gone = [name for name in self.exchange.list(evaluations) if name not in kept]
            before = self.exchange.list(folder)
            shards = f"{self.exchange.name(folder / tag)}/"  # other machines' too
            gone += [name for name in before if name != counts and not name.startswith(shards)]
            self.exchange.remote.delete(gone)

        self.exchange.softly(finish)

    def fetch(self, path: Path) -> None:
        if path.is_dir() and not is_whole(path):
            shutil.rmtree(path)
        if not path.exists():
            self.exchange.fetch(path)

    def update(self, folder: Path, starts: tuple[str, ...] = ("",)) -> None:
        found = self.exchange.list(folder)
        self.exchange.bring({name: entry for name, entry in found.items() if Path(name).name.startswith(starts)})

    def push(self, path: Path) -> None:
        self.exchange.push(path)

    def push_parts(self, folder: Path, starts: tuple[str, ...] = ("",)) -> None:
        files = {name: file for name, file in self.exchange.named(folder).items() if file.name.startswith(starts)}
        self.exchange.send_changed(files, self.exchange.list(folder))

    def tell(self, path: Path) -> bool:
        return self.exchange.softly(lambda: self.push(path))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.exchange.softly(lambda: self.exchange.remove(path))

    def ended(self) -> list[str]:
        found = (name.split("/") for name in self.exchange.listed.below("trials"))
        return sorted(parts[1] for parts in found if parts[2:] == [RESULT])

    def there(self, path: Path) -> bool:
        return self.exchange.listed.has(self.exchange.name(path))

    def move(self, source: Path, target: Path) -> bool:
        there = self.exchange.move(source, target)
        return super().move(source, target) or there

    def size(self, path: Path) -> int:
        name = "" if path == self.root else self.exchange.name(path)
        return sum(entry.size for entry in self.exchange.listed.below(name).values())

    def here(self, value: V) -> V:
        found: Any = value
        if isinstance(value, BaseModel):
            found = type(value).model_validate(self.here(super().here(value).model_dump()))
        elif isinstance(value, dict):
            found = {key: self.here(item) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            found = type(value)(self.here(item) for item in value)
        elif isinstance(value, str) and value.startswith("/") and f"/{self.root.name}/" in value:
            name = value.split(f"/{self.root.name}/", 1)[1]
            if not is_inside(name):
                raise InputError(f"'{value}' leads out of the storage's copy in {self.root}")
            self.fetch(self.root / name)
            found = str(self.root / name)
        return found

    def _push_trial(self, trial_id: str) -> None:
        """result.json last; then what a trial that has ended does not keep goes from the store.

        Of a lost one everything stays: it goes on from there.
        That a trial did not run is no news where the store has its result: that one stays, and is brought here.
        """
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        before = self.exchange.list(folder)
        if results_.is_refusal(self.result(trial_id)) and self._is_known(f"{name}/{RESULT}", before):
            found = {key: entry for key, entry in before.items() if key.count("/") == 2}
            self._drop_others(folder, found)
            self.exchange.bring(found)
            self._unsent_file(trial_id).unlink(missing_ok=True)
            return
        files = {self.exchange.name(file): file for file in folder.iterdir() if file.is_file() and _is_kept(file)}
        result = {f"{name}/{RESULT}": files.pop(f"{name}/{RESULT}")}
        self.exchange.send_changed(files, before)
        weights = folder / WEIGHTS
        if weights.is_dir():
            self.push(weights)
        self.exchange.send(result)
        kept, lost = {**files, **result}, (self.result(trial_id) or {}).get("status") == LOST
        self.exchange.remote.delete(
            key for key in before if not lost and key not in kept and not key.startswith(f"{name}/{WEIGHTS}/")
        )
        self._unsent_file(trial_id).unlink(missing_ok=True)

    def _is_known(self, name: str, there: dict[str, Entry]) -> bool:
        """Whether the store holds a result that can be read and tells of a trial that ran."""
        content = self.exchange.remote.read(name) if name in there else None
        found = storage_files.as_object(content) if content else None
        return found is not None and "status" in found and not results_.is_refusal(found)

    def _drop_others(self, folder: Path, found: dict[str, Entry]) -> None:
        """The copy of a trial that is no more in the store goes, and so does what is of an earlier attempt."""
        entry = found.get(self.exchange.name(folder / RESULT))
        if (folder / RESULT).is_file() and entry is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.is_dir():
            if entry is not None and not same(folder / RESULT, entry):
                shutil.rmtree(folder / WEIGHTS, ignore_errors=True)
            for file in folder.iterdir():
                if file.is_file() and not file.name.startswith(".") and self.exchange.name(file) not in found:
                    file.unlink(missing_ok=True)

    def _unsent_file(self, trial_id: str) -> Path:
        return self.root / UNSENT / trial_id

    def _mark_unsent(self, trial_id: str) -> None:
        mark = self._unsent_file(trial_id)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def _unsent(self) -> set[str]:
        folder = self.root / UNSENT
        return set(os.listdir(folder)) if folder.is_dir() else set()


def open_copy(uri: str, *, writable: bool, check: bool) -> WorkingCopy:
    """The working copy of a storage. Raises InputError where its address, or the place of the copy, cannot be used."""
    remote = Remote(uri, *storage_uri.connect(uri))
    root = storage_files.usable_folder(place_of(uri), "UNLEARN_CACHE", writable=True)
    if check:
        remote.check()
    if check and writable:
        remote.check_writable()
    return WorkingCopy(root, remote, writable)


def place_of(uri: str) -> Path:
    """Where the working copy lies: named by the address and the server that it stands for."""
    asked = (storage_uri.server() or "") if uri.startswith("s3:") else ""
    key = hashlib.sha256(f"{uri.rstrip('/')} {asked}".encode()).hexdigest()[:16]
    return Path(os.environ.get("UNLEARN_CACHE") or CACHE).expanduser().absolute() / key


def _is_kept(file: Path) -> bool:
    """Whether a trial that has ended keeps the file."""
    return file.name not in (PROGRESS, RETRY) and not file.name.startswith(".")
