"""Copies files between a folder on this machine and an object store, under the same relative names."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from trainables.common.errors import Unreachable
from trainables.storage.atomic_files import WHOLE, is_complete, mark_complete, publish, sizes_of
from trainables.storage.names import META, RESULT
from trainables.storage.object_store import Entry, ObjectStore, is_same

LAST = (f"/{RESULT}", f"/{META}")
"""Names of the files that are transferred after all others: with them the others count."""


class Listing:
    """Objects by name, in groups of the first two parts of their names (`trials/ID`), so that look-ups are quick."""

    def __init__(self) -> None:
        self.groups: defaultdict[str, dict[str, Entry]] = defaultdict(dict)

    def update(self, found: Mapping[str, Entry]) -> None:
        for name, entry in found.items():
            self.groups[_group(name)][name] = entry

    def drop_below(self, name: str) -> None:
        for key in self.below(name):
            del self.groups[_group(key)][key]

    def has(self, name: str) -> bool:
        """Return whether there is an object of this name, or a folder that was sent whole and never changes."""
        return not {name, f"{name}/{WHOLE}"}.isdisjoint(self.groups[_group(name)])

    def below(self, name: str) -> dict[str, Entry]:
        """Return an object, or everything below a folder; of "" everything."""
        groups = [self.groups[_group(name)]] if "/" in name else self.groups.values()
        found = (item for group in groups for item in group.items())
        return {key: entry for key, entry in found if not name or f"{key}/".startswith(f"{name}/")}


def _group(name: str) -> str:
    return "/".join(name.split("/")[:2])


class Transfer:
    """Copies files between the folder `root` and `store`.

    `listed`: what the store held at the last scan, and what was sent since. Look-ups there ask no network.
    """

    def __init__(self, root: Path, store: ObjectStore) -> None:
        self.root = root
        self.store = store
        self.listed = Listing()

    def scan(self) -> None:
        found, self.listed = self.store.list(), Listing()
        self.listed.update(found)

    def name(self, path: Path) -> str:
        """Return the name in the store of the file `path`."""
        return path.relative_to(self.root).as_posix()

    def list(self, path: Path) -> dict[str, Entry]:
        """Return what the store has below a folder now."""
        return self.store.list(self.name(path))

    def named(self, folder: Path) -> dict[str, Path]:
        """Return every file of a folder by its name in the store."""
        return {self.name(file): file for file in list_files(folder)}

    def download(self, wanted: Mapping[str, Entry]) -> None:
        """Download those objects whose files here are missing or differ."""
        changed = {name: entry for name, entry in wanted.items() if not is_same(self.root / name, entry)}
        for last in (False, True):
            names = [name for name in changed if name.endswith(LAST) == last]
            self.store.get_all({name: (self.root / name, changed[name]) for name in names})

    def mirror(self, folder: Path, found: Mapping[str, Entry], may_delete: Callable[[Path], bool]) -> None:
        """Download what was found, and delete other files of the folder that may be deleted."""
        self.download(found)
        for file in list_files(folder):
            if self.name(file) not in found and may_delete(file):
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
        """Download a file, or a folder that never changes, unless it is here; nothing if the store has none."""
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

    def remove(self, path: Path) -> None:
        """Delete a file or a folder in the store, first the mark that it is whole."""
        name = self.name(path)
        self.store.delete([f"{name}/{WHOLE}"])
        self.store.delete(self.store.list(name) or [name])
        self.listed.drop_below(name)

    def move(self, source: Path, target: Path) -> bool:
        """Rename objects, and return whether there were any."""
        name, to = self.name(source), self.name(target)
        found = self.listed.below(name)
        first = sorted(found, key=lambda key: not key.endswith(LAST))  # without it the others do not count
        self.store.move({key: to + key.removeprefix(name) for key in first})
        self.listed.drop_below(name)
        return bool(found)

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


def list_files(folder: Path) -> list[Path]:
    """Return every file below a folder, without the hidden ones, which are being written."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(found)


def was_sent(file: Path) -> bool:
    """Return whether a file was downloaded or sent: its time is then its object's, in whole seconds (or 1 ns more)."""
    return file.stat().st_mtime_ns % 10**9 <= 1
