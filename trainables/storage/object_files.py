"""Files and folders in an object store, and their copies in a folder on this machine, under the same relative names."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from trainables.common.errors import InputError, Unreachable
from trainables.storage.atomic_files import WHOLE, is_complete, mark_complete, publish, sizes_of
from trainables.storage.folder_storage import Storage
from trainables.storage.names import META, RESULT
from trainables.storage.object_store import Entry, ObjectStore, is_inside, is_same

LAST = (f"/{RESULT}", f"/{META}")
"""Names of the files that are transferred after all others: with them the others count."""


class Listing:
    """Objects by name, in groups of the first two parts of their names (`trials/ID`), so that look-ups are quick."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Entry]] = {}

    def update(self, found: Mapping[str, Entry]) -> None:
        for name, entry in found.items():
            self.groups.setdefault(_group(name), {})[name] = entry

    def drop_below(self, name: str) -> None:
        for key in self.below(name):
            del self.groups[_group(key)][key]

    def has(self, name: str) -> bool:
        """Return whether there is an object of this name, or a folder that was sent whole and never changes."""
        return not {name, f"{name}/{WHOLE}"}.isdisjoint(self.groups.get(_group(name), ()))

    def below(self, name: str) -> dict[str, Entry]:
        """Return an object, or everything below a folder; of "" everything."""
        groups = [self.groups.get(_group(name), {})] if "/" in name else list(self.groups.values())
        found = (item for group in groups for item in group.items())
        return {key: entry for key, entry in found if not name or f"{key}/".startswith(f"{name}/")}


def _group(name: str) -> str:
    return "/".join(name.split("/")[:2])


class ObjectFiles(Storage):
    """Files and folders in an object store; ObjectStorage adds the trials.

    `listed`: what the store held at the last scan, and what was sent since. Look-ups there ask no network.
    """

    is_remote = True

    def __init__(self, root: Path, store: ObjectStore) -> None:
        super().__init__(root)
        self.store = store
        self.listed = Listing()

    @property
    def location(self) -> str:
        return self.store.uri

    def uri(self, path: Path) -> str:
        return f"{self.location.split('?')[0].rstrip('/')}/{self.name(path)}"

    def local_path(self, place: str) -> str:
        """Return where a path of another machine's copy lies in this one: their folders have the same name."""
        _, copy, name = place.partition(f"/{self.root.name}/")
        if not (copy and place.startswith("/")):
            return place
        if not is_inside(name):
            raise InputError(f"'{place}' leads out of the storage's copy in {self.root}")
        self.fetch(self.root / name)
        return str(self.root / name)

    def scan(self) -> None:
        found, self.listed = self.store.list(), Listing()
        self.listed.update(found)

    def name(self, path: Path) -> str:
        """Return the name in the store of the file `path`."""
        return path.relative_to(self.root).as_posix()

    def list_below(self, path: Path) -> dict[str, Entry]:
        """Return what the store has below a folder now."""
        return self.store.list(self.name(path))

    def files_of(self, folder: Path) -> dict[str, Path]:
        """Return every file of a folder by its name in the store, without the hidden ones, which are being written."""
        found = {}
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            files = [Path(place, name) for name in names if not name.startswith(".")]
            found |= {self.name(file): file for file in files}
        return found

    def download(self, wanted: Mapping[str, Entry]) -> None:
        """Download those objects whose files here are missing or differ."""
        changed = {name: entry for name, entry in wanted.items() if not is_same(self.root / name, entry)}
        for last in (False, True):
            names = [name for name in changed if name.endswith(LAST) == last]
            self.store.get_all({name: (self.root / name, changed[name]) for name in names})

    def mirror(self, folder: Path, found: Mapping[str, Entry], may_delete: Callable[[Path], bool]) -> None:
        """Download what was found, and delete other files of the folder that may be deleted."""
        self.download(found)
        for name, file in self.files_of(folder).items():
            if name not in found and may_delete(file):
                file.unlink(missing_ok=True)

    def send(self, files: Mapping[str, Path]) -> None:
        for last in (False, True):
            chosen = {name: file for name, file in files.items() if name.endswith(LAST) == last}
            self.listed.update(self.store.put_all(chosen))

    def send_changed(self, files: Mapping[str, Path], existing: Mapping[str, Entry]) -> None:
        """Send those files that differ from the objects of the same names."""
        same = {name for name, entry in existing.items() if name in files and is_same(files[name], entry)}
        self.send({name: file for name, file in files.items() if name not in same})

    def fetch(self, path: Path) -> None:
        name = self.name(path)
        if path.is_dir() and not is_complete(path):
            shutil.rmtree(path)
        if path.exists():
            return
        if (entry := self.store.stat(name)) is not None:
            self.store.get(name, path, entry)
        elif f"{name}/{WHOLE}" in (found := self.store.list(name)):
            self._fetch_folder(name, path, found)

    def push(self, path: Path) -> None:
        """Send a file, or a folder that never changes (unless another machine was first)."""
        if not path.is_dir():
            self.send({self.name(path): path})
            return
        mark = f"{self.name(path)}/{WHOLE}"
        if self.store.stat(mark) is None:
            sizes = sizes_of(path)
            self.send({self.name(path / name): path / name for name in sizes})
            self.store.write(mark, json.dumps(sizes, indent=2, sort_keys=True).encode())
        self.listed.update({mark: Entry(0, None)})

    def try_push(self, path: Path) -> bool:
        return warn_if_unreachable(lambda: self.push_parts(path) if path.is_dir() else self.push(path))

    def push_parts(self, folder: Path) -> None:
        self.send_changed(self.files_of(folder), self.list_below(folder))

    def read_newest(self, path: Path) -> bytes | None:
        return self.store.read(self.name(path))

    def exists(self, path: Path) -> bool:
        return self.listed.has(self.name(path))

    def move(self, source: Path, target: Path) -> bool:
        name, to = self.name(source), self.name(target)
        found = self.listed.below(name)
        first = sorted(found, key=lambda key: not key.endswith(LAST))  # without it the others do not count
        self.store.move({key: to + key.removeprefix(name) for key in first})
        self.listed.drop_below(name)
        return super().move(source, target) or bool(found)

    def remove(self, path: Path) -> None:
        """Delete a file or a folder for everybody, in the store first the mark that it is whole."""
        super().remove(path)
        name = self.name(path)

        def remove() -> None:
            self.store.delete([f"{name}/{WHOLE}"])
            self.store.delete(self.store.list(name) or [name])
            self.listed.drop_below(name)

        warn_if_unreachable(remove)

    def size(self, path: Path) -> int:
        if path == self.root:  # of what machines have sent by now
            warn_if_unreachable(self.scan)
        name = "" if path == self.root else self.name(path)
        return sum(entry.size for entry in self.listed.below(name).values())

    def _fetch_folder(self, name: str, path: Path, found: Mapping[str, Entry]) -> None:
        sizes = json.loads(self.store.read(f"{name}/{WHOLE}") or b"{}")
        staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            wanted = {f"{name}/{file}": staging / file for file in sizes}
            self.store.get_all({key: (file, found[key]) for key, file in wanted.items() if key in found})
            for file, size in sizes.items():
                if not (staging / file).is_file() or (staging / file).stat().st_size != size:
                    raise Unreachable(
                        f"--storage: {name}/{file} of '{self.store.uri}' is missing or not as it was written; delete "
                        f"{name}/{WHOLE}, so that the folder is made again"
                    )
            mark_complete(staging)
            publish(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def warn_if_unreachable(action: Callable[[], object]) -> bool:
    """Run `action`, and return whether the store answered. If not, warn: what runs here goes on without it."""
    try:
        action()
    except Unreachable as error:
        print(f"warning: {error}", file=sys.stderr, flush=True)
        return False
    return True


def was_sent(file: Path) -> bool:
    """Return whether a file was downloaded or sent: its time is then its object's, in whole seconds (or 1 ns more)."""
    return file.stat().st_mtime_ns % 10**9 <= 1
