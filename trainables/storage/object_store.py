"""Objects below an address such as s3://bucket/prefix, by their relative names.

Any file system that pyarrow knows (s3, gs, abfs, hdfs), any other one through fsspec. A reader sees an object whole or
not at all: an object store has it so, and elsewhere it is written beside its place and moved there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.fs

from trainables.common.errors import InputError, Unreachable
from trainables.storage import uri as storage_uri

OBJECT_STORES = ("s3", "gcs", "abfs")
"""pyarrow's names of file systems whose objects appear when they are whole."""
AT_ONCE = 16
"""Requests side by side."""
WHOLE = 64 * 2**20
"""Bytes of a file that is read before it is sent, so that an error of the disk leaves no part of it."""
PIECE = 8 * 2**20
TRIES = 3
"""How often a JSON object is read that was written anew meanwhile."""
RECENT = 5.0
"""Seconds after which no other writing of an object can bear the same time: until then a file is brought again."""
STAGING = re.compile(r"(^|/)\.[^/]+\.[0-9a-f]{8}$")


class Entry(NamedTuple):
    """An object: its bytes, and when it was written, in whole seconds since 1970; None where that is not told."""

    size: int
    stamp: int | None


class Remote:
    """`base` is the address's path in the file system."""

    def __init__(self, uri: str, files: Any, base: str) -> None:
        self.uri = uri
        self.files = files
        self.base = base
        self.whole_at_once = files.type_name in OBJECT_STORES

    def check(self) -> None:
        """Raise InputError where there is no such bucket, or it does not answer."""
        bucket = self.base.split("/")[0]
        with self._told():
            found = self.files.get_file_info(bucket) if self.whole_at_once else None
        if found is not None and found.type == pyarrow.fs.FileType.NotFound:
            raise InputError(f"--storage: there is no bucket '{bucket}' for '{self.uri}'; make it, or name another one")

    def check_writable(self) -> None:
        """Raise InputError where nothing can be written or deleted."""
        probe = f".probe-{uuid.uuid4().hex}"
        self.write(probe, b"x")
        self.delete([probe])

    def list(self, below: str = "") -> dict[str, Entry]:
        """Every object below a folder, by its name; names that would lead out of a folder are nobody's."""
        place = self._place(below)
        with self._told():
            try:
                found = self.files.get_file_info(pyarrow.fs.FileSelector(place, allow_not_found=True, recursive=True))
            except NotADirectoryError:
                return {}
        start = len(self.base) + 1
        whole = {info.path[start:]: _entry(info) for info in found if info.type == pyarrow.fs.FileType.File}
        return {name: entry for name, entry in whole.items() if is_inside(name) and not STAGING.search(name)}

    def stat(self, name: str) -> Entry | None:
        """An object, None where there is none."""
        with self._told():
            info = self.files.get_file_info(self._place(name))
        return _entry(info) if info.type == pyarrow.fs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        """What an object holds, None where there is none."""
        with self._told():
            try:
                with self.files.open_input_file(self._place(name)) as stream:
                    return stream.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> Entry | None:
        self._write(name, [content])
        return self.stat(name)

    def put(self, source: Path, name: str) -> Entry | None:
        """Send a file, which gets the object's time, so that `same` knows it again."""
        with source.open("rb") as stream:
            small = os.fstat(stream.fileno()).st_size <= WHOLE
            self._write(name, [stream.read()] if small else iter(lambda: stream.read(PIECE), b""))
            entry = self.stat(name)
            if entry is not None and entry.stamp is not None:
                _set_time(stream.fileno(), entry.stamp * 10**9)
        return entry

    def get(self, name: str, target: Path, entry: Entry) -> bool:
        """Bring an object into a file, by rename; False where it has gone."""
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            self._copy(name, staging)
            if entry.stamp is not None:
                recent = abs(time.time() - entry.stamp) < RECENT
                _set_time(staging, entry.stamp * 10**9 + recent)
            os.replace(staging, target)
        except FileNotFoundError:
            return False
        finally:
            staging.unlink(missing_ok=True)
        return True

    def put_all(self, sources: Mapping[str, Path]) -> dict[str, Entry]:
        """Files by the names that they get; what has vanished meanwhile is left out."""
        found = self._each(lambda name: self._put_there(sources[name], name), sources)
        return {name: entry for name, entry in zip(sources, found, strict=True) if entry is not None}

    def get_all(self, targets: Mapping[str, tuple[Path, Entry]]) -> None:
        """Objects, by name the file that each becomes."""
        self._each(lambda name: self.get(name, *targets[name]), targets)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; what is not there is no error."""

        def one(name: str) -> None:
            with self._told(), contextlib.suppress(FileNotFoundError):
                self.files.delete_file(self._place(name))

        self._each(one, names)

    def delete_folder(self, name: str) -> None:
        with self._told():
            self.files.delete_dir_contents(self._place(name), missing_dir_ok=True)

    def move(self, names: Mapping[str, str]) -> None:
        """Give objects other names: all are copied before the first one goes, and the others after it."""

        def copy(name: str) -> None:
            with self._told():
                self._make_room(names[name])
                self.files.copy_file(self._place(name), self._place(names[name]))

        self._each(copy, names)
        self.delete(list(names)[:1])
        self.delete(list(names)[1:])

    def _put_there(self, source: Path, name: str) -> Entry | None:
        with contextlib.suppress(FileNotFoundError):
            return self.put(source, name)

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        place = self._place(name)
        folder, _, last = place.rpartition("/")
        staging = place if self.whole_at_once else f"{folder}/.{last}.{uuid.uuid4().hex[:8]}"
        with self._told():
            self._make_room(name)
            with self.files.open_output_stream(staging) as stream:
                for piece in pieces:
                    stream.write(piece)
            if staging != place:
                self.files.move(staging, place)

    def _make_room(self, name: str) -> None:
        """Object stores have no folders."""
        if not self.whole_at_once:
            self.files.create_dir(self._place(name).rpartition("/")[0], recursive=True)

    def _copy(self, name: str, staging: Path) -> None:
        """An object is read in parts: a small one that was written anew between two of them is read again."""
        for _ in range(TRIES):
            with staging.open("wb") as written:
                for piece in self._pieces(name):
                    written.write(piece)
            if not name.endswith(".json") or _is_json(staging):
                return

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._told():
            stream = self.files.open_input_file(self._place(name))
        with stream:
            while True:
                with self._told():
                    piece = stream.read(PIECE)
                if not piece:
                    return
                yield piece

    def _place(self, name: str) -> str:
        return f"{self.base}/{name}".rstrip("/")

    def _each(self, action: Any, names: Iterable[str]) -> list[Any]:
        names = list(names)
        if len(names) <= 1:
            return [action(name) for name in names]
        with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
            return list(pool.map(action, names))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the store in the words of --storage."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            raise Unreachable(storage_uri.advice(self.uri, error)) from error


def _set_time(file: Path | int, nanoseconds: int) -> None:
    os.utime(file, ns=(nanoseconds, nanoseconds))


def is_inside(name: str) -> bool:
    """Whether a relative name stays in its folder, whatever machine writes it there."""
    return not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and "\0" not in name


def _entry(info: Any) -> Entry:
    return Entry(info.size, None if info.mtime is None else int(info.mtime.timestamp()))


def same(path: Path, entry: Entry) -> bool:
    """Whether a file is the object that it was sent or brought as."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return entry.stamp is not None and (found.st_size, found.st_mtime_ns) == (entry.size, entry.stamp * 10**9)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
