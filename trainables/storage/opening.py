"""How a storage is opened, and named in a command."""

import os
import shlex
from pathlib import Path

from trainables.common.cli import DEFAULT_STORAGE, STORAGE_VARIABLE
from trainables.common.typed_paths import expand_home, make_path_relative
from trainables.storage.folder_storage import Storage


def open_storage(location: str, *, writable: bool = True) -> Storage:
    """Open the storage at a folder, a file:// URI or another address. Raises InputError if it cannot be used."""
    location = location.removeprefix("file://")
    if "://" not in location:
        place = expand_home(location).absolute()
        location = str(place.resolve() if ".." in place.parts else place)  # MLflow refuses files behind `..`
    store = open_storage_unchecked(location)
    store.check_access(writable)
    return store


def open_storage_unchecked(location: str) -> Storage:
    if "://" not in location:
        return Storage(Path(location))
    from trainables.storage import object_storage

    return object_storage.open_object_storage(location)


def format_storage_option(store: Storage) -> str:
    """Return the option that names this storage, empty for the default one."""
    default = os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE
    if store.location == default or store.root == expand_home(default).absolute():
        return ""
    place = store.location if store.is_remote else make_path_relative(store.root)
    return f" --storage {shlex.quote(str(place))}"
