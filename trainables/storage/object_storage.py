"""A storage in a bucket, with a working copy on every machine, which may be deleted when nothing runs there.

A trial is sent whole when it ends; results are downloaded before a plan, a status and a report.
"""

import contextlib
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow
from pyarrow.fs import FileSelector, FileSystem, FileType, SubTreeFileSystem

from trainables.common import cli
from trainables.common.deadlines import ANSWER_TIMEOUT, call_within, check_server_responds
from trainables.common.errors import InputError, StoreUnreachable
from trainables.common.redaction import has_credentials
from trainables.storage.atomic_files import ensure_folder, replace_file, write_folder
from trainables.storage.file_names import CONFIG, ERROR, EVALUATIONS, LOST, META_FILE, PROGRESS, RESULT, RETRY, WEIGHTS
from trainables.storage.folder_storage import Storage

WORKING_COPIES_FOLDER = Path("~/.cache/unlearning/storages")
COMPLETE_FOLDER_MARK = ".complete"
"""An empty object that is sent after all others of a folder, and in the copies of it."""
NAMES_SENT_LAST = (RESULT, META_FILE, COMPLETE_FOLDER_MARK)
"""Names of the objects that are sent after all others and deleted first: with them the others count."""
STORES_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")
SENT_RESULT_MARK = ".sent"
"""An empty file beside a result in this machine's copy: the store has had the result."""
LOGIN_ADVICE = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), AWS_DEFAULT_REGION, and "
LOGIN_ADVICE += "AWS_ENDPOINT_URL for a store other than AWS; of other schemes than s3: what its package reads"
PUSH_RETRY_WAITS_SECONDS = (0.0, 5.0, 30.0)
PYARROW_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes that pyarrow knows; the others are fsspec's."""
PARALLEL_TRANSFERS = 16
COPY_CHUNK_BYTES = 8 * 2**20


class ObjectStorage(Storage):
    """A storage in `files`: a folder of a file system of pyarrow, as a SubTreeFileSystem.

    `listed`: bytes and time of each object at the last download, or sent since. `downloaded`: by this process.
    """

    is_remote = True

    def __init__(self, root: Path, uri: str, files: Any) -> None:
        super().__init__(root)
        self.location = uri
        self.files = files
        self.listed: dict[str, tuple[int, Any]] = {}
        self.downloaded: dict[str, tuple[int, Any]] = {}

    def uri(self, path: Path) -> str:
        return f"{self.location.split('?')[0].rstrip('/')}/{self._name(path)}"

    def fetch_local_path(self, place: str) -> str:
        """Return where a path of another machine's copy lies in this one: their folders have the same name."""
        _, copy, name = place.partition(f"/{self.root.name}/")
        if not (copy and place.startswith("/")):
            return place
        if not _is_inside(name):
            raise InputError(f"'{place}' leads out of the storage's copy in {self.root}")
        self.fetch(self.root / name)
        return str(self.root / name)

    def check_access(self, writable: bool) -> None:
        """Raise InputError if there is no such bucket, it does not answer, or it should be writable and is not."""
        bucket, place = self.files.base_path.split("/")[0], self.location
        if (server := _read_server(place)) and self.files.base_fs.type_name == "s3":
            # first: pyarrow lets no process end, by Ctrl-C neither, that waits for an answer to it
            check_server_responds(server, f"--storage {place}: the store", LOGIN_ADVICE)
        with self._errors():
            ask = partial(self.files.base_fs.get_file_info, bucket)
            found = call_within(ANSWER_TIMEOUT, f"the store at {place}", ask)
        if self.files.base_fs.type_name in STORES_WITHOUT_FOLDERS and found.type == FileType.NotFound:
            raise InputError(f"--storage: there is no bucket '{bucket}' for '{place}'; make it, or name another")
        if writable:
            probe = f"sweeps/.probe-{uuid.uuid4().hex}"
            with self._errors():
                self._make_folder(probe)
                self.files.open_output_stream(probe).close()
            self._delete([probe])

    # Trials

    def download_sweeps_and_results(self, trial_ids: Iterable[str] = ()) -> None:
        self._list()
        shared = [name for name in self.listed if name.startswith(("sweeps/", "shared/evaluations/"))]
        _for_each(self._refresh, [name for name in shared if name.endswith(".json")])
        _for_each(self._sync_trial, trial_ids)

    def try_download_trial(self, trial_id: str) -> bool:
        def sync() -> None:
            self._list(f"trials/{trial_id}")
            self._sync_trial(trial_id)

        return run_or_warn_unreachable(sync)

    def _sync_trial(self, trial_id: str) -> None:
        """Download a trial's small files; what is here of another run of it, or was set aside elsewhere, goes.

        A result that the store never had stays: it is being sent, or could not be.
        """
        folder, result = self.trial(trial_id), f"trials/{trial_id}/{RESULT}"
        known = result in self.listed and self.downloaded.get(result) == self.listed[result]
        if self.has_result(trial_id) and not known:
            there = self.read_current_bytes(folder / RESULT)
            if there is None and not (folder / SENT_RESULT_MARK).exists():
                return
            if there != (folder / RESULT).read_bytes():
                shutil.rmtree(folder, ignore_errors=True)
        for name in (CONFIG, ERROR, PROGRESS, RETRY, RESULT):  # what plans, status and reports read
            self._refresh(f"trials/{trial_id}/{name}")
        if result in self.listed and self.has_result(trial_id):
            (folder / SENT_RESULT_MARK).touch()

    def push_unsent_results(self, trial_ids: Iterable[str]) -> None:
        for trial_id in trial_ids:
            if self._is_unsent(trial_id):
                run_or_warn_unreachable(partial(self._send_trial, trial_id))

    def _is_unsent(self, trial_id: str) -> bool:
        folder = self.trial(trial_id)
        unknown = self.has_result(trial_id) and not (folder / SENT_RESULT_MARK).exists()
        return unknown and self.read_current_bytes(folder / RESULT) is None

    def fetch_trial(self, trial_id: str) -> None:
        name = f"trials/{trial_id}"
        if self._is_unsent(trial_id):
            self._send_trial(trial_id)
            return
        found = self._list(name)
        shutil.rmtree(self.trial(trial_id), ignore_errors=True)
        _for_each(self._get, [each for each in found if not each.startswith(f"{name}/{WEIGHTS}/")])

    def write_trial_config(self, trial_id: str, config: dict[str, Any]) -> None:
        super().write_trial_config(trial_id, config)
        (self.trial(trial_id) / SENT_RESULT_MARK).unlink(missing_ok=True)
        self.try_push(self.trial(trial_id) / CONFIG)

    def push_trial(self, trial_id: str) -> bool:
        for wait in PUSH_RETRY_WAITS_SECONDS:
            time.sleep(wait)
            if run_or_warn_unreachable(lambda: self._send_trial(trial_id)):
                return True
        return False

    def _send_trial(self, trial_id: str) -> None:
        """Send a trial, then delete what one that has ended does not keep; a lost one keeps everything."""
        folder, skipped = self.trial(trial_id), (PROGRESS, RETRY, RESULT)
        files = [file for file in _shown_files(folder) if file.parent == folder and file.name not in skipped]
        if (folder / WEIGHTS).is_dir():
            self.push(folder / WEIGHTS)
        _for_each(self._put, files)
        self._put(folder / RESULT)
        (folder / SENT_RESULT_MARK).touch()
        if (self.result(trial_id) or {}).get("status") != LOST:
            kept = tuple(self._name(path) for path in (*files, folder / RESULT, folder / WEIGHTS))
            self._delete(each for each in self._list(self._name(folder)) if not each.startswith(kept))

    def publish_checkpoint(self, folder: Path, tag: str) -> None:
        def finish() -> None:
            evaluations = folder.parent / EVALUATIONS
            _for_each(self._put, _shown_files(evaluations))
            self._put(folder / META_FILE)
            old = [name for name in self._list(self._name(evaluations)) if not (self.root / name).exists()]
            current = (self._name(folder / META_FILE), f"{self._name(folder / tag)}/")  # other machines' shards, too
            self._delete([*old, *(name for name in self._list(self._name(folder)) if not name.startswith(current))])

        run_or_warn_unreachable(finish)

    # Files and folders

    def fetch(self, path: Path) -> None:
        name = self._name(path)
        if path.is_file() or (path / COMPLETE_FOLDER_MARK).exists():
            return
        found = self._list(name)
        if f"{name}/{COMPLETE_FOLDER_MARK}" not in found:
            self._get(name)
            return
        places = {each: each.removeprefix(f"{name}/") for each in found}
        with write_folder(path) as staging:
            _for_each(lambda each: self._get(each, staging / places[each]), found)
            if not all((staging / place).exists() for place in places.values()):
                raise InputError(f"{self.uri(path)}: a part of it was removed while it was fetched")
            shutil.rmtree(path, ignore_errors=True)  # single files of it

    def push(self, path: Path, *, changing: bool = False) -> None:
        if changing or not path.is_dir():
            _for_each_in_turn(self._put, _shown_files(path) if path.is_dir() else [path], marks_first=False)
            return
        mark = path / COMPLETE_FOLDER_MARK
        if self.read_current_bytes(mark) is None:
            self.push(path, changing=True)
            mark.touch()
            self._put(mark)
        mark.touch()
        self.listed[self._name(mark)] = (0, None)

    def try_push(self, path: Path) -> bool:
        return run_or_warn_unreachable(lambda: self.push(path, changing=True))

    def read_current_bytes(self, path: Path) -> bytes | None:
        try:
            with self._errors(), self.files.open_input_file(self._name(path)) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def exists(self, path: Path) -> bool:
        return not {self._name(path), f"{self._name(path)}/{COMPLETE_FOLDER_MARK}"}.isdisjoint(self.listed)

    def move(self, source: Path, target: Path) -> None:
        name, to = self._name(source), self._name(target)

        def move(each: str) -> None:
            self.listed.pop(each, None)
            with self._errors(), contextlib.suppress(FileNotFoundError):
                self._make_folder(to + each.removeprefix(name))
                self.files.move(each, to + each.removeprefix(name))

        _for_each_in_turn(move, self._below(name), marks_first=True)
        super().move(source, target)

    def remove(self, path: Path) -> None:
        super().remove(path)
        name = self._name(path)
        run_or_warn_unreachable(lambda: self._delete([name, *self._list(name)]))

    # The store

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _below(self, name: str) -> list[str]:
        """Return the listed object of this name, or those in the folder; of "" all."""
        return [each for each in list(self.listed) if not name or f"{each}/".startswith(f"{name}/")]

    def _list(self, below: str = "") -> dict[str, tuple[int, Any]]:
        """List every object below a folder anew, without names that would lead out of it; return bytes and times."""
        with self._errors():
            try:
                found = self.files.get_file_info(FileSelector(below, allow_not_found=True, recursive=True))
            except NotADirectoryError:
                return {}
        objects = [info for info in found if info.type == FileType.File and _is_inside(info.path)]
        now = {info.path: (info.size, info.mtime) for info in objects}
        for name in {*self._below(below)} - {below, *now}:
            self.listed.pop(name, None)
        self.listed |= now
        return now

    def _refresh(self, name: str) -> None:
        """Download an object if there is one, and it has changed since this process downloaded it."""
        there = self.listed.get(name)
        if there and not (self.downloaded.get(name) == there and (self.root / name).exists()):
            self._get(name)
            self.downloaded[name] = there

    def _get(self, name: str, target: Path | None = None) -> None:
        """Download an object, by rename; nothing if there is none."""

        def copy(staging: Path) -> None:
            with self._errors(), self.files.open_input_file(name) as stream, staging.open("wb") as written:
                shutil.copyfileobj(stream, written, COPY_CHUNK_BYTES)

        with contextlib.suppress(FileNotFoundError):
            replace_file(target or self.root / name, copy, durable=False)

    def _put(self, file: Path) -> None:
        """Send a file; nothing if it is gone meanwhile."""
        name = self._name(file)
        try:
            stream = file.open("rb")
        except FileNotFoundError:
            return
        with stream, self._errors():
            self._make_folder(name)
            with self.files.open_output_stream(name) as written:
                shutil.copyfileobj(stream, written, COPY_CHUNK_BYTES)
            self.listed[name] = (stream.tell(), None)

    def _make_folder(self, name: str) -> None:
        """Make an object's folder in a store that is a tree of folders."""
        if self.files.base_fs.type_name not in STORES_WITHOUT_FOLDERS:
            self.files.create_dir(name.rpartition("/")[0], recursive=True)

    def _delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that does not exist is no error."""

        def delete(name: str) -> None:
            self.listed.pop(name, None)
            with self._errors(), contextlib.suppress(FileNotFoundError):
                self.files.delete_file(name)

        _for_each_in_turn(delete, names, marks_first=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise StoreUnreachable, which names --storage, for an error of the store."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            raise StoreUnreachable(_explain_failure(self.location, error)) from error


def open_object_storage(uri: str) -> ObjectStorage:
    """Open the working copy of a storage by pyarrow's file system of that scheme, else fsspec's.

    Raises InputError if its address, or the copy's folder, cannot be used.
    """
    if has_credentials(uri):
        raise InputError("--storage: the address holds a user name or password; leave them out and " + LOGIN_ADVICE)
    try:
        files, base = FileSystem.from_uri(uri if uri.split("://")[0] in PYARROW_SCHEMES else f"fsspec+{uri}")
    except (ImportError, ValueError) as error:  # a package that is missing, an unknown scheme
        known = "a folder, file://, s3://, gs://, abfs://, or another scheme of fsspec"
        raise InputError(f"--storage: '{uri}' is no address of a storage: {error}; known: {known}") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise StoreUnreachable(_explain_failure(uri, error)) from error
    if not base.strip("/"):
        raise InputError(f"--storage: '{uri}' names no bucket; write it like s3://bucket/folder")
    # the same address is another store at another server
    key = hashlib.sha256(f"{uri.rstrip('/')} {_read_server(uri)}".strip().encode()).hexdigest()[:16]
    copy = Path(os.environ.get("UNLEARN_CACHE") or WORKING_COPIES_FOLDER).expanduser().absolute() / key
    return ObjectStorage(ensure_folder(copy, "UNLEARN_CACHE", writable=True), uri, SubTreeFileSystem(base, files))


def _read_server(uri: str) -> str:
    """Return the address of another server than AWS's own, as pyarrow reads it; empty without one."""
    query, named = parse_qs(uri.partition("?")[2]), map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    server = query.get("endpoint_override", [next(filter(None, named), "")])[0]
    return server if not server or "://" in server else f"{query.get('scheme', ['https'])[0]}://{server}"


def _explain_failure(uri: str, error: Exception) -> str:
    reason = (str(error).splitlines() or [repr(error)])[0].split(" (Request ID")[0]
    return f"--storage: '{uri}' cannot be used: {reason}; {LOGIN_ADVICE}"


def run_or_warn_unreachable(action: Callable[[], object]) -> bool:
    """Run `action`, and return whether the store answered. If not, warn: what runs here goes on without it."""
    try:
        action()
    except StoreUnreachable as error:
        cli.print_line(f"warning: {error}", error=True)
        return False
    return True


def _for_each(action: Callable[[Any], object], items: Iterable[Any]) -> None:
    with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
        list(pool.map(action, items))


def _for_each_in_turn(action: Callable[[Any], object], items: Iterable[Any], *, marks_first: bool) -> None:
    items = list(items)
    for marked in (marks_first, not marks_first):
        _for_each(action, [one for one in items if str(one).endswith(NAMES_SENT_LAST) == marked])


def _shown_files(folder: Path) -> list[Path]:
    """Return every file below a folder without the hidden ones, which are being written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def _is_inside(name: str) -> bool:
    """Whether a relative name stays in its folder, whatever machine writes it there."""
    return not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and "\0" not in name
