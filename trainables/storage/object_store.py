"""Objects below an address such as s3://bucket/prefix, by their relative names.

Any file system that pyarrow knows (s3, gs, abfs, hdfs), any other one through fsspec. A reader sees an object whole or
not at all: object stores work so, and on other file systems a file is written beside its place and moved there.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow
import pyarrow.fs

from trainables.common.errors import InputError, Unreachable
from trainables.storage.atomic_files import read_json
from trainables.storage.connect import explain_failure

OBJECT_STORES = ("s3", "gcs", "abfs")
"""pyarrow's names of file systems whose objects appear when they are whole."""
AT_ONCE = 16
"""Parallel requests."""
SMALL = 64 * 2**20
"""Bytes of a file that is read before it is sent, so that an error of the disk leaves no part of it."""
PIECE = 8 * 2**20
TRIES = 3
"""How often a JSON object is read that was rewritten meanwhile."""
RECENT = 5.0
"""Seconds after which no second writing of an object can bear the same time: until then a file is downloaded again."""
STAGING = re.compile(r"(^|/)\.[^/]+\.[0-9a-f]{8}$")
T = TypeVar("T")


class Entry(NamedTuple):
    """An object: its bytes, and when it was written, in whole seconds since 1970; None if the store does not say."""

    size: int
    stamp: int | None


class ObjectStore:
    """`base` is the address's path in the file system."""

    def __init__(self, uri: str, files: Any, base: str) -> None:
        self.uri = uri
        self.files = files
        self.base = base
        self.whole_at_once = files.type_name in OBJECT_STORES

    def check(self, writable: bool) -> None:
        """Raise InputError if there is no such bucket, it does not answer, or it should be `writable` and is not."""
        bucket = self.base.split("/")[0]
        with self._errors():
            found = self.files.get_file_info(bucket) if self.whole_at_once else None
        if found is not None and found.type == pyarrow.fs.FileType.NotFound:
            raise InputError(f"--storage: there is no bucket '{bucket}' for '{self.uri}'; make it, or name another one")
        if writable:
            probe = f".probe-{uuid.uuid4().hex}"
            self.write(probe, b"x")
            self.delete([probe])

    def list(self, below: str = "") -> dict[str, Entry]:
        """Return every object below a folder by name, without names that would lead out of a folder."""
        selector = pyarrow.fs.FileSelector(self._path(below), allow_not_found=True, recursive=True)
        with self._errors():
            try:
                found = self.files.get_file_info(selector)
            except NotADirectoryError:
                return {}
        start = len(self.base) + 1
        whole = {info.path[start:]: _entry(info) for info in found if info.type == pyarrow.fs.FileType.File}
        return {name: entry for name, entry in whole.items() if is_inside(name) and not STAGING.search(name)}

    def stat(self, name: str) -> Entry | None:
        """Return an object's entry, None if there is no such object."""
        with self._errors():
            info = self.files.get_file_info(self._path(name))
        return _entry(info) if info.type == pyarrow.fs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        """Return an object's content, None if there is no such object."""
        try:
            with self._errors(), self.files.open_input_file(self._path(name)) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        self._write(name, [content])

    def get(self, name: str, target: Path, entry: Entry) -> None:
        """Download an object into a file, by rename; nothing if it is gone."""
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(FileNotFoundError):
            try:
                self._copy(name, staging)
                if entry.stamp is not None:
                    recent = abs(time.time() - entry.stamp) < RECENT
                    _set_time(staging, entry.stamp * 10**9 + recent)
                os.replace(staging, target)
            finally:
                staging.unlink(missing_ok=True)

    def get_all(self, targets: Mapping[str, tuple[Path, Entry]]) -> None:
        """Download objects; the values say into which file each goes."""
        _for_each(lambda name: self.get(name, *targets[name]), targets)

    def put_all(self, sources: Mapping[str, Path]) -> dict[str, Entry]:
        """Send files, each under its key; return the entries of those that had not vanished meanwhile."""
        found = _for_each(lambda name: self._put(sources[name], name), sources)
        return {name: entry for name, entry in zip(sources, found, strict=True) if entry is not None}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that does not exist is no error."""

        def delete_one(name: str) -> None:
            with self._errors(), contextlib.suppress(FileNotFoundError):
                self.files.delete_file(self._path(name))

        _for_each(delete_one, names)

    def move(self, names: Mapping[str, str]) -> None:
        """Rename objects: all are copied, then the first one is deleted, then the others."""

        def copy_one(name: str) -> None:
            with self._errors():
                self._make_folder(names[name])
                self.files.copy_file(self._path(name), self._path(names[name]))

        _for_each(copy_one, names)
        self.delete(list(names)[:1])
        self.delete(list(names)[1:])

    def _put(self, source: Path, name: str) -> Entry | None:
        """Send a file, which gets the object's time: `is_same` knows it by that."""
        with contextlib.suppress(FileNotFoundError), source.open("rb") as stream:
            small = os.fstat(stream.fileno()).st_size <= SMALL
            self._write(name, [stream.read()] if small else iter(lambda: stream.read(PIECE), b""))
            entry = self.stat(name)
            if entry is not None and entry.stamp is not None:
                _set_time(stream.fileno(), entry.stamp * 10**9)
            return entry
        return None

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        staging = path if self.whole_at_once else f"{folder}/.{last}.{uuid.uuid4().hex[:8]}"
        with self._errors():
            self._make_folder(name)
            with self.files.open_output_stream(staging) as stream:
                for piece in pieces:
                    stream.write(piece)
            if staging != path:
                self.files.move(staging, path)

    def _make_folder(self, name: str) -> None:
        """Make the folder of an object-to-be. Object stores have no folders."""
        if not self.whole_at_once:
            self.files.create_dir(self._path(name).rpartition("/")[0], recursive=True)

    def _copy(self, name: str, target: Path) -> None:
        """Copy an object, a JSON object again if it was rewritten meanwhile. Errors of the disk stay what they are."""

        def read_piece(stream: Any) -> bytes:
            with self._errors():
                return stream.read(PIECE)

        for _ in range(TRIES):
            with self._errors():
                stream = self.files.open_input_file(self._path(name))
            with stream, target.open("wb") as written:
                while piece := read_piece(stream):
                    written.write(piece)
            if not name.endswith(".json") or read_json(target) is not None:
                return

    def _path(self, name: str) -> str:
        return f"{self.base}/{name}".rstrip("/")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise Unreachable, which names --storage, for an error of the store."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            raise Unreachable(explain_failure(self.uri, error)) from error


def _for_each(action: Callable[[str], T], names: Iterable[str]) -> list[T]:
    names = list(names)
    if len(names) <= 1:
        return [action(name) for name in names]
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
        return list(pool.map(action, names))


def _set_time(file: Path | int, nanoseconds: int) -> None:
    os.utime(file, ns=(nanoseconds, nanoseconds))


def is_inside(name: str) -> bool:
    """Whether a relative name stays in its folder, whatever machine writes it there."""
    return not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and "\0" not in name


def _entry(info: Any) -> Entry:
    return Entry(info.size, None if info.mtime is None else int(info.mtime.timestamp()))


def is_same(path: Path, entry: Entry) -> bool:
    """Whether a file is the object that it was sent or downloaded as."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return entry.stamp is not None and (found.st_size, found.st_mtime_ns) == (entry.size, entry.stamp * 10**9)
