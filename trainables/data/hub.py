"""What was fetched from the hub for a storage, and where it lies: every process reads it there.

STORAGE/shared/hub/models--ORG--NAME@COMMIT/ holds the files, STORAGE/shared/hub/pins/models--ORG--NAME@main.json (a
pin) says which commit `main` was when it was fetched first, and stays: one storage never mixes two of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from pydantic import BaseModel

from trainables.common import paths
from trainables.data.hub_requirements import Wanted
from trainables.storage import files as storage_files
from trainables.storage.sync_interface import Sharing

V = TypeVar("V")


@dataclass(frozen=True)
class Pin:
    """`folder`: its name in shared/hub. `commit`: None where a person brought the files. `source`: where they are from.

    `files`: name -> size, and SHA-256 where the hub tells it.
    """

    id: str
    revision: str
    commit: str | None
    folder: str
    source: str
    fetched: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def home(store: Sharing) -> Path:
    return store.root / "shared" / "hub"


def file_of(wanted: Wanted, store: Sharing) -> Path:
    return home(store) / "pins" / f"{wanted.key}.json"


def folder_of(pin: Pin, store: Sharing) -> Path:
    return home(store) / pin.folder


def read(wanted: Wanted, store: Sharing) -> Pin | None:
    """The pin, None where the thing was never fetched for this storage."""
    file = file_of(wanted, store)
    store.fetch(file)
    found = storage_files.read_json(file)
    return Pin(**found) if found else None


def write(wanted: Wanted, pin: Pin, store: Sharing) -> None:
    """Others see it after this: the folder is there before."""
    file = file_of(wanted, store)
    storage_files.write_json(file, asdict(pin))
    store.push(file)


def find(wanted: Wanted, store: Sharing) -> Path | None:
    """The folder on this machine, brought here once whoever asks; None where nothing was fetched."""
    pin = read(wanted, store)
    if pin is None:
        return None
    folder = folder_of(pin, store)
    if store.copied and not folder.is_dir():
        with FileLock(locks(store) / pin.folder):
            store.fetch(folder)
    return folder if folder.is_dir() else None


def locks(store: Sharing) -> Path:
    """Where processes of this machine wait for one another."""
    folder = home(store) / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def commits(value: BaseModel) -> dict[str, str]:
    """Hub id -> commit (or what a person called it) of every folder of the hub that a configuration names."""
    named = [part for name in type(value).model_fields if (part := getattr(value, name))]
    found: dict[str, str] = {}
    for part in (item for node in named for item in (node if isinstance(node, tuple) else (node,))):
        if isinstance(part, BaseModel):
            found |= commits(part)
        elif isinstance(part, str) and (hub_id := paths.hub_id_of(part.rpartition("=")[2])):
            found[hub_id] = part.rpartition("@")[2].partition("+")[0]
    return found
