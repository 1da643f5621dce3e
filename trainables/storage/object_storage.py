"""A storage in an object store, with a working copy on every machine, which may be deleted when nothing runs there.

A trial is sent whole when it ends, result.json last; a checkpoint counts with meta.json, and a folder that is made once
(model, data, direction, weights, export) with COMPLETE. Results are downloaded before a plan, a status and a report.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.fs import FileSelector, FileType

from trainables.common.errors import InputError, Unreachable
from trainables.storage.atomic_files import parse_object, publish, usable_folder
from trainables.storage.connect import connect, explain_failure, server
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CHECKPOINT, CONFIG, EVALUATIONS, LOST, META, PROGRESS, RESULT, RETRY, WEIGHTS
from trainables.storage.trial_files import never_ran

CACHE = Path("~/.cache/unlearning/storages")
COMPLETE = ".complete"
"""An empty object that is sent after all others of a folder."""
UNSENT = "unsent"
"""A file in the folder of a trial that began here and whose end the store does not have."""
LAST = (f"/{RESULT}", f"/{META}")
"""Names of the files that are sent after all others: with them the others count."""
LIGHT = (".json", ".txt")
"""The small files of a trial, which plans, status and reports read."""
WAITS = (0.0, 5.0, 20.0)
"""Seconds before each try to send a result."""
AT_ONCE = 16
"""Parallel requests."""
PIECE = 8 * 2**20
MINUTE = 60.0
OBJECT_STORES = ("s3", "gcs", "abfs")
"""pyarrow's names of file systems that have no folders."""


class ObjectStorage(Storage):
    """A storage below `base` in a file system of pyarrow.

    `writable`: whether a trial's end that could not be sent is sent when trials are downloaded. `listed`: bytes and
    time of each object at the last download, and of what was sent since; look-ups there ask no network.
    """

    is_remote = True

    def __init__(self, root: Path, uri: str, files: Any, base: str, writable: bool) -> None:
        super().__init__(root)
        self.address = uri
        self.files = files
        self.base = base
        self.writable = writable
        self.listed: dict[str, tuple[int, Any]] = {}
        self.downloaded: dict[str, tuple[int, Any]] = {}

    @property
    def location(self) -> str:
        return self.address

    def uri(self, path: Path) -> str:
        return f"{self.address.split('?')[0].rstrip('/')}/{self._name(path)}"

    def local_path(self, place: str) -> str:
        """Return where a path of another machine's copy lies in this one: their folders have the same name."""
        _, copy, name = place.partition(f"/{self.root.name}/")
        if not (copy and place.startswith("/")):
            return place
        if not _is_inside(name):
            raise InputError(f"'{place}' leads out of the storage's copy in {self.root}")
        self.fetch(self.root / name)
        return str(self.root / name)

    def check(self) -> None:
        """Raise InputError if there is no such bucket, it does not answer, or it should be writable and is not."""
        bucket = self.base.split("/")[0]
        with self._errors():
            found = self.files.get_file_info(bucket)
        if self.files.type_name in OBJECT_STORES and found.type == FileType.NotFound:
            raise InputError(f"--storage: there is no bucket '{bucket}' for '{self.address}'; make it, or name another")
        if self.writable:
            probe = f".probe-{uuid.uuid4().hex}"
            self._write(probe, b"x")
            self._delete([probe])

    # Trials

    def sync_trials(self, trial_ids: Iterable[str] = ()) -> None:
        self.listed = self._list()
        of_trial: dict[str, list[str]] = defaultdict(list)
        for name in self.listed:
            place, *rest = name.split("/")
            if place == "trials" and len(rest) == 2:
                of_trial[rest[0]].append(name)
        for file in (self.root / "sweeps").glob("*.json"):
            if self._name(file) not in self.listed and time.time() - file.stat().st_mtime > MINUTE:
                file.unlink(missing_ok=True)
        shared = [name for name in self.listed if name.startswith(("sweeps/", "shared/evaluations/"))]
        _for_each(self._get_small, shared)
        _for_each(lambda key: self._sync_trial(key, of_trial[key]), trial_ids)

    def try_sync_trial(self, trial_id: str) -> bool:
        def sync() -> None:
            found = self._list(f"trials/{trial_id}")
            self.listed |= found
            self._sync_trial(trial_id, [name for name in found if name.count("/") == 2])

        return warn_if_unreachable(sync)

    def _sync_trial(self, trial_id: str, found: list[str]) -> None:
        """Download a trial's small files; what is here of another run of it, or was set aside elsewhere, goes."""
        folder, result = self.trial(trial_id), f"trials/{trial_id}/{RESULT}"
        if (folder / UNSENT).exists() and result not in found:
            if self.writable and self.has(trial_id):
                self.push_trial(trial_id)
            return
        if self.has(trial_id) and (result not in found or self._is_other(result)):
            shutil.rmtree(folder, ignore_errors=True)
        for name in found:
            self._get_small(name)
        (folder / UNSENT).unlink(missing_ok=True)

    def finished_trials(self) -> list[str]:
        names = (name.split("/") for name in self.listed)
        return sorted(parts[1] for parts in names if parts[0] == "trials" and parts[2:] == [RESULT])

    def fetch_trial(self, trial_id: str) -> None:
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        found = self._list(name)
        if f"{name}/{RESULT}" not in found and (folder / UNSENT).exists() and self.has(trial_id):
            self.push_trial(trial_id)
            return
        shutil.rmtree(folder, ignore_errors=True)
        without = [f"{name}/{WEIGHTS}/"]
        without += [] if f"{name}/{CHECKPOINT}/{META}" in found else [f"{name}/{CHECKPOINT}/"]
        _for_each(self._get, [each for each in found if not each.startswith(tuple(without))])

    def start_trial(self, trial_id: str, config: dict[str, Any]) -> None:
        super().start_trial(trial_id, config)
        (self.trial(trial_id) / UNSENT).touch()
        self.try_push(self.trial(trial_id) / CONFIG)

    def push_trial(self, trial_id: str) -> None:
        self.trial(trial_id).mkdir(parents=True, exist_ok=True)
        (self.trial(trial_id) / UNSENT).touch()
        for wait in WAITS:
            time.sleep(wait)
            if warn_if_unreachable(lambda: self._push_trial(trial_id)):
                return

    def _push_trial(self, trial_id: str) -> None:
        """Send a trial, then delete what one that has ended does not keep; a lost one keeps everything.

        If this result says that the trial did not run, and the store has one of a trial that ran, that one stays.
        """
        folder, name = self.trial(trial_id), f"trials/{trial_id}"
        result, before = self.result(trial_id) or {}, self._list(name)
        ended = parse_object(self._read(f"{name}/{RESULT}") or b"") if never_ran(result) else None
        if ended and not never_ran(ended):
            self._sync_trial(trial_id, [each for each in before if each.count("/") == 2])
            return
        written = (file for file in folder.iterdir() if file.is_file() and file.name not in (PROGRESS, RETRY, UNSENT))
        files = {self._name(file): file for file in written}
        if (folder / WEIGHTS).is_dir():
            self.push(folder / WEIGHTS)
        self._put_all(files)
        if result.get("status") != LOST:
            kept = (*files, f"{name}/{WEIGHTS}/")
            self._delete([each for each in before if not each.startswith(kept)])
        (folder / UNSENT).unlink(missing_ok=True)

    def is_sent(self, trial_id: str) -> bool:
        return not (self.trial(trial_id) / UNSENT).exists()

    def finish_checkpoint(self, folder: Path, tag: str) -> None:
        evaluations = folder.parent / EVALUATIONS

        def finish() -> None:
            self._put_all(self._files_of(evaluations) | {self._name(folder / META): folder / META})
            old = [name for name in self._list(self._name(evaluations)) if not (self.root / name).exists()]
            current = (self._name(folder / META), f"{self._name(folder / tag)}/")  # other machines' shards, too
            old += [name for name in self._list(self._name(folder)) if not name.startswith(current)]
            self._delete(old)

        warn_if_unreachable(finish)

    # Files and folders

    def fetch(self, path: Path) -> None:
        name = self._name(path)
        if path.exists():
            return
        if self._is_object(name):
            self._get(name)
        elif f"{name}/{COMPLETE}" in (found := self._list(name)):
            staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
            try:
                _for_each(lambda each: self._get(each, staging / each.removeprefix(f"{name}/")), found)
                (staging / COMPLETE).unlink()
                publish(staging, path)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def push(self, path: Path) -> None:
        mark = f"{self._name(path)}/{COMPLETE}"
        if path.is_dir() and not self._is_object(mark):
            self._put_all(self._files_of(path))
            self._write(mark, b"")
        elif path.is_file():
            self._put_all({self._name(path): path})
        self.listed |= {mark: (0, None)} if path.is_dir() else {}

    def push_parts(self, folder: Path) -> None:
        self._put_all(self._files_of(folder))

    def try_push(self, path: Path) -> bool:
        return warn_if_unreachable(lambda: self.push_parts(path) if path.is_dir() else self.push(path))

    def read_newest(self, path: Path) -> bytes | None:
        return self._read(self._name(path))

    def exists(self, path: Path) -> bool:
        return not {self._name(path), f"{self._name(path)}/{COMPLETE}"}.isdisjoint(self.listed)

    def move(self, source: Path, target: Path) -> bool:
        """Copy the objects, then delete the old ones, first the one with which the others count."""
        name, to = self._name(source), self._name(target)
        found = sorted(self._below(name), key=lambda each: not each.endswith(LAST))

        def copy(each: str) -> None:
            with self._errors():
                self._make_folder(to + each.removeprefix(name))
                self.files.copy_file(self._path(each), self._path(to + each.removeprefix(name)))

        _for_each(copy, found)
        self._delete(found[:1])
        self._delete(found[1:])
        return super().move(source, target) or bool(found)

    def remove(self, path: Path) -> None:
        """Delete a file or a folder for everybody, in the store first the mark that it is complete."""
        super().remove(path)
        name = self._name(path)

        def remove() -> None:
            self._delete([f"{name}/{COMPLETE}"])
            self._delete([name, *self._list(name)])

        warn_if_unreachable(remove)

    def size(self, path: Path) -> int:
        if path == self.root:  # of what machines have sent by now
            warn_if_unreachable(lambda: self.listed.update(self._list()))
        return sum(self.listed[name][0] for name in self._below("" if path == self.root else self._name(path)))

    # The store

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _path(self, name: str) -> str:
        return f"{self.base}/{name}".rstrip("/")

    def _below(self, name: str) -> list[str]:
        """Return the listed object of this name, or those in the folder; of "" all."""
        return [each for each in self.listed if not name or f"{each}/".startswith(f"{name}/")]

    def _files_of(self, folder: Path) -> dict[str, Path]:
        """Return every file of a folder by its name in the store, without the hidden ones, which are being written."""
        files = (path for path in folder.rglob("*") if path.is_file())
        shown = (file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))
        return {self._name(file): file for file in shown}

    def _list(self, below: str = "") -> dict[str, tuple[int, Any]]:
        """Return bytes and time of every object below a folder, without names that would lead out of it."""
        with self._errors():
            try:
                found = self.files.get_file_info(FileSelector(self._path(below), allow_not_found=True, recursive=True))
            except NotADirectoryError:
                return {}
        objects = (info for info in found if info.type == FileType.File)
        named = {info.path[len(self.base) + 1 :]: (info.size, info.mtime) for info in objects}
        return {name: entry for name, entry in named.items() if _is_inside(name)}

    def _is_object(self, name: str) -> bool:
        with self._errors():
            return self.files.get_file_info(self._path(name)).type == FileType.File

    def _read(self, name: str) -> bytes | None:
        """Return an object's content, None if there is no such object."""
        try:
            with self._errors(), self.files.open_input_file(self._path(name)) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes) -> None:
        with self._errors():
            self._make_folder(name)
            with self.files.open_output_stream(self._path(name)) as stream:
                stream.write(content)

    def _make_folder(self, name: str) -> None:
        if self.files.type_name not in OBJECT_STORES:
            self.files.create_dir(self._path(name).rpartition("/")[0], recursive=True)

    def _is_other(self, name: str) -> bool:
        """Return whether an object is another one than the file here."""
        return not self._is_downloaded(name) and self._read(name) != (self.root / name).read_bytes()

    def _is_downloaded(self, name: str) -> bool:
        """Return whether this process has downloaded an object as it is listed."""
        return name in self.downloaded and self.downloaded[name] == self.listed.get(name)

    def _get_small(self, name: str) -> None:
        """Download a small file that has changed; of large ones only those are downloaded that are asked for."""
        if name.endswith(LIGHT) and not (self._is_downloaded(name) and (self.root / name).exists()):
            self._get(name)
            self.downloaded[name] = self.listed.get(name, (0, None))

    def _get(self, name: str, target: Path | None = None) -> None:
        """Download an object, by rename; nothing if it is gone."""
        target = target or self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            with self._errors(), self.files.open_input_file(self._path(name)) as stream, staging.open("wb") as written:
                shutil.copyfileobj(stream, written, PIECE)
            os.replace(staging, target)
        except FileNotFoundError:
            pass
        finally:
            staging.unlink(missing_ok=True)

    def _put_all(self, files: Mapping[str, Path]) -> None:
        """Send files, those last with which the others count."""

        def put(name: str) -> None:
            with self._errors(), files[name].open("rb") as stream:
                self._make_folder(name)
                with self.files.open_output_stream(self._path(name)) as written:
                    shutil.copyfileobj(stream, written, PIECE)
            self.listed[name] = (files[name].stat().st_size, None)

        _for_each(put, [name for name in files if not name.endswith(LAST)])
        _for_each(put, [name for name in files if name.endswith(LAST)])

    def _delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that does not exist is no error."""

        def delete(name: str) -> None:
            self.listed.pop(name, None)
            with self._errors(), contextlib.suppress(FileNotFoundError):
                self.files.delete_file(self._path(name))

        _for_each(delete, names)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise Unreachable, which names --storage, for an error of the store."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            raise Unreachable(explain_failure(self.address, error)) from error


def open_copy(uri: str, *, writable: bool, check: bool) -> ObjectStorage:
    """Open the working copy of a storage. Raises InputError if its address, or the copy's folder, cannot be used."""
    files, base = connect(uri)
    asked = (server() or "") if uri.startswith("s3:") else ""
    key = hashlib.sha256(f"{uri.rstrip('/')} {asked}".encode()).hexdigest()[:16]
    copy = Path(os.environ.get("UNLEARN_CACHE") or CACHE).expanduser().absolute() / key
    store = ObjectStorage(usable_folder(copy, "UNLEARN_CACHE", writable=True), uri, files, base, writable)
    if check:
        store.check()
    return store


def warn_if_unreachable(action: Callable[[], object]) -> bool:
    """Run `action`, and return whether the store answered. If not, warn: what runs here goes on without it."""
    try:
        action()
    except Unreachable as error:
        print(f"warning: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _for_each(action: Callable[[str], object], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(action, names))


def _is_inside(name: str) -> bool:
    """Whether a relative name stays in its folder, whatever machine writes it there."""
    return not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and "\0" not in name
