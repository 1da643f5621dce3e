"""How a storage is opened."""

from __future__ import annotations

from pathlib import Path

from trainables.common.paths import expand
from trainables.storage.base import Storage
from trainables.storage.files import usable_folder


def open_storage(location: str, *, writable: bool = True) -> Storage:
    """Open the storage at a folder, a file:// URI or another address. Raises InputError if it cannot be used."""
    if _is_object_store(location):
        from trainables.storage import object_storage

        return object_storage.open_copy(location, writable=writable, check=True)
    return Storage(usable_folder(expand(location.removeprefix("file://")).absolute(), "--storage", writable))


def reopen(location: str) -> Storage:
    """Open the storage that another process of this program has opened."""
    if _is_object_store(location):
        from trainables.storage import object_storage

        return object_storage.open_copy(location, writable=True, check=False)
    return Storage(Path(location))


def _is_object_store(location: str) -> bool:
    return "://" in location and not location.startswith("file://")
