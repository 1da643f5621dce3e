"""Files between a folder on this machine and an object store, by the same relative names."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from trainables.common.errors import Unreachable
from trainables.storage import files as storage_files
from trainables.storage.base import META, RESULT
from trainables.storage.complete import WHOLE, seal
from trainables.storage.index import Listing
from trainables.storage.object_store import Entry, Remote, same

LAST = (f"/{RESULT}", f"/{META}")
"""What makes other files count comes after them."""


class Exchange:
    """`listed`: what the store held when it was last looked at, and what was sent since."""

    def __init__(self, root: Path, remote: Remote) -> None:
        self.root = root
        self.remote = remote
        self.listed = Listing()

    def look(self) -> None:
        self.listed.replace(self.remote.list())

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def list(self, path: Path) -> dict[str, Entry]:
        """What the store has below a folder now."""
        return self.remote.list(self.name(path))

    def bring(self, wanted: Mapping[str, Entry]) -> None:
        """Those objects that are not here as they are there."""
        changed = {name: entry for name, entry in wanted.items() if not same(self.root / name, entry)}
        for last in (False, True):
            names = [name for name in changed if name.endswith(LAST) == last]
            self.remote.get_all({name: (self.root / name, changed[name]) for name in names})

    def mirror(self, folder: Path, found: Mapping[str, Entry], ours: Callable[[Path], bool]) -> None:
        """Bring what was found; other files of the folder go where they are `ours` to delete."""
        self.bring(found)
        for file in files_of(folder):
            if self.name(file) not in found and ours(file):
                file.unlink(missing_ok=True)

    def send(self, files: Mapping[str, Path]) -> None:
        for last in (False, True):
            chosen = {name: file for name, file in files.items() if name.endswith(LAST) == last}
            for name, entry in self.remote.put_all(chosen).items():
                self.listed.add(name, entry)

    def send_changed(self, files: Mapping[str, Path], there: Mapping[str, Entry]) -> None:
        """Those files that the store has not as they are here."""
        self.send({name: file for name, file in files.items() if name not in there or not same(file, there[name])})

    def named(self, folder: Path) -> dict[str, Path]:
        """Every file of a folder by its name in the store."""
        return {self.name(file): file for file in files_of(folder)}

    def fetch(self, path: Path) -> None:
        """Bring a file, or a folder that never changes; nothing where the store has none."""
        name = self.name(path)
        entry = self.remote.stat(name)
        if entry is not None:
            self.remote.get(name, path, entry)
            return
        found = self.remote.list(name)
        if f"{name}/{WHOLE}" in found:
            self._fetch_folder(name, path, found)

    def push(self, path: Path) -> None:
        """Send a file, or a folder that never changes (unless another machine was first)."""
        if not path.is_dir():
            self.send({self.name(path): path})
            return
        mark = f"{self.name(path)}/{WHOLE}"
        if self.remote.stat(mark) is None:
            files = files_of(path)
            sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
            self.send({self.name(file): file for file in files})
            self.remote.write(mark, json.dumps(sizes, indent=2, sort_keys=True).encode())
        self.listed.add(mark, Entry(0, None))

    def remove(self, path: Path) -> None:
        """Delete a file or a folder there, first what makes it count."""
        name = self.name(path)
        found = self.remote.list(name)
        self.remote.delete([mark for mark in (f"{name}/{WHOLE}",) if mark in found])
        if found:
            self.remote.delete_folder(name)
        else:
            self.remote.delete([name])
        self._forget(name)

    def move(self, source: Path, target: Path) -> bool:
        """Whether there was something to move."""
        name, to = self.name(source), self.name(target)
        found = self.listed.below(name)
        first = sorted(found, key=lambda key: not key.endswith(LAST))  # without it the others do not count
        self.remote.move({key: to + key.removeprefix(name) for key in first})
        self._forget(name)
        return bool(found)

    def softly(self, action: Callable[[], object]) -> bool:
        """Whether it was done; where the store does not answer, what runs here goes on."""
        try:
            action()
        except Unreachable as error:
            print(f"warning: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _forget(self, name: str) -> None:
        for key in self.listed.below(name):
            self.listed.drop(key)

    def _fetch_folder(self, name: str, path: Path, found: Mapping[str, Entry]) -> None:
        sizes = json.loads(self.remote.read(f"{name}/{WHOLE}") or b"{}")
        staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            wanted = {f"{name}/{file}": staging / file for file in sizes}
            self.remote.get_all({key: (file, found[key]) for key, file in wanted.items() if key in found})
            for file, size in sizes.items():
                if not (staging / file).is_file() or (staging / file).stat().st_size != size:
                    raise Unreachable(
                        f"--storage: {name}/{file} of '{self.remote.uri}' is missing or not as it was written; delete "
                        f"{name}/{WHOLE}, so that the folder is made again"
                    )
            seal(staging)
            storage_files.publish(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def files_of(folder: Path) -> list[Path]:
    """Every file below, without what is being written."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(found)


def was_sent(file: Path) -> bool:
    """Whether the file has an object's time (or its nanosecond after): it came from the store, or was sent to it."""
    return file.stat().st_mtime_ns % 10**9 <= 1
