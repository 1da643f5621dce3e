"""What is made once and shared: a folder with a list of its files, so that what a cut or a crash took is seen."""

from __future__ import annotations

import os
from pathlib import Path

from trainables.storage import files as storage_files
from trainables.storage.base import RESULT

WHOLE = ".whole"
"""In a folder that never changes: its files and their sizes, written last."""


def sizes_of(folder: Path) -> dict[str, int]:
    """Bytes of every file below, by relative name; hidden ones are nobody's."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def are_there(sizes: dict[str, int], folder: Path) -> bool:
    """Whether a folder has all these files, each of its size; what else is there does not matter."""
    found = sizes_of(folder)
    return all(found.get(name) == size for name, size in sizes.items())


def seal(folder: Path) -> None:
    """Flush all files of a folder to disk, then list them in it: before it is published."""
    sizes = sizes_of(folder)
    for name in sizes:
        with (folder / name).open("rb") as stream:
            os.fsync(stream.fileno())
    storage_files.write_json(folder / WHOLE, sizes)


def is_whole(folder: Path) -> bool:
    """Whether a folder is as it was sealed, and its result its own. One that an earlier version made has no list."""
    if (folder / WHOLE).exists():
        sizes = storage_files.read_json(folder / WHOLE)
        if sizes is None or not are_there(sizes, folder):
            return False
    return not (folder / RESULT).exists() or has_result(folder)


def has_result(folder: Path) -> bool:
    """Whether a folder named by an id holds the result of that id."""
    return (storage_files.read_json(folder / RESULT) or {}).get("id") == folder.name
