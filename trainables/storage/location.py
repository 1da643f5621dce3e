"""Where results lie, and how a storage is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainables.common import paths as common_paths
from trainables.storage.base import Storage
from trainables.storage.files import usable_folder

DEFAULT, VARIABLE = "runs", "UNLEARN_STORAGE"
"""Where results are if nobody says, and what says it once for every command of a machine."""
Location = Annotated[
    str, typer.Option("--storage", envvar=VARIABLE, help="Folder or address (s3://...) of the results.")
]
"""The option of every command that reads or writes results."""


def open_storage(location: str, *, writable: bool = True) -> Storage:
    """The storage at a folder, a file:// URI or another address. Raises InputError where it cannot be used."""
    if _is_elsewhere(location):
        from trainables.storage import object_storage

        return object_storage.open_copy(location, writable=writable, check=True)
    return Storage(
        usable_folder(common_paths.expand(location.removeprefix("file://")).absolute(), "--storage", writable)
    )


def reopen(location: str) -> Storage:
    """The storage that another process of this program has opened."""
    if _is_elsewhere(location):
        from trainables.storage import object_storage

        return object_storage.open_copy(location, writable=True, check=False)
    return Storage(Path(location))


def default() -> str:
    """What a command takes for --storage without being told."""
    return os.environ.get(VARIABLE) or DEFAULT


def _is_elsewhere(location: str) -> bool:
    return "://" in location and not location.startswith("file://")
