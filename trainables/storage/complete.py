"""Folders that are made once and shared: each lists its files, so that what a crash or a cut took is seen."""

from __future__ import annotations

import os
from pathlib import Path

from trainables.storage.base import RESULT
from trainables.storage.files import read_json, write_json

WHOLE = ".whole"
"""In a folder that never changes: its files and their sizes, written last."""


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of every file below, by relative name, hidden files left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def has_files(folder: Path, sizes: dict[str, int]) -> bool:
    """Whether a folder has all these files, each of its size; other files do not matter."""
    found = sizes_of(folder)
    return all(found.get(name) == size for name, size in sizes.items())


def mark_complete(folder: Path) -> None:
    """Flush all files of a folder to disk, then list them in it, before it is published."""
    sizes = sizes_of(folder)
    for name in sizes:
        with (folder / name).open("rb") as stream:
            os.fsync(stream.fileno())
    write_json(folder / WHOLE, sizes)


def is_complete(folder: Path) -> bool:
    """Whether a folder has the files that it lists, if it lists any, and its result, if it has one, bears its id."""
    if (folder / WHOLE).exists():
        sizes = read_json(folder / WHOLE)
        if sizes is None or not has_files(folder, sizes):
            return False
    return not (folder / RESULT).exists() or has_result(folder)


def has_result(folder: Path) -> bool:
    """Whether a folder named by an id holds the result of that id."""
    return (read_json(folder / RESULT) or {}).get("id") == folder.name
