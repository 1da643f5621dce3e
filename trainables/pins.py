"""What was fetched from the hub for a storage, and where it lies: every process reads it there.

STORAGE/shared/hub/models--ORG--NAME@COMMIT/ holds the files, STORAGE/shared/hub/pins/models--ORG--NAME@main.json (a
pin) says which commit `main` was when it was fetched first, and stays: one storage never mixes two of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import paths
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Recipe
from trainables.storage import files as storage_files
from trainables.storage.sync_interface import Sharing
from trainables.wanted import DATA, Wanted

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


def located(value: V, store: Sharing) -> V:
    """A configuration of a plan with folders of the storage in the place of hub ids; its identity stays.

    What has no fingerprint (a configuration that a person wrote) or was not fetched stays as it is.
    """
    found: Any = value
    if isinstance(value, Model):
        found = _model(value, store)
    elif isinstance(value, Benchmark):
        found = _benchmark(value, store)
    elif isinstance(value, BaseModel):
        before = {name: getattr(value, name) for name in type(value).model_fields}
        after = {name: located(part, store) for name, part in before.items()}
        if isinstance(value, Recipe) and paths.is_hub_id(value.data):
            after["data"] = _place(Wanted("datasets", value.data, value.revision), store)
        changed = {name: part for name, part in after.items() if part is not before[name]}
        found = value.model_copy(update=changed) if changed else value
    return found


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


def _model(model: Model, store: Sharing) -> Model:
    mark, changed = model.fingerprint or "", {}
    if mark.startswith("hub:") and not paths.is_folder(model.path):
        changed["path"] = _place(Wanted("models", _hub_id(model.path), model.revision), store)
    if mark and model.tokenizer and not paths.is_folder(model.tokenizer):
        changed["tokenizer"] = _place(Wanted("tokenizers", _hub_id(model.tokenizer)), store)
    changed = {name: place for name, place in changed.items() if place != getattr(model, name)}
    return model.model_copy(update=changed) if changed else model


def _benchmark(benchmark: Benchmark, store: Sharing) -> Benchmark:
    if not benchmark.fingerprint or benchmark.is_fictional:
        return benchmark
    changed: dict[str, Any] = {}
    at = dict(source.split("=", 1) for source in benchmark.sources)
    for wanted in benchmarks.find(benchmark.name).wanted(benchmark):
        folder = find(replace(wanted, id=_hub_id(wanted.id)), store)
        if folder is not None and wanted.part == DATA:
            changed["data"] = str(folder)
        elif folder is not None:
            at[wanted.part] = str(folder)
            changed["sources"] = tuple(f"{part}={place}" for part, place in sorted(at.items()))
    return benchmark.model_copy(update=changed) if changed else benchmark


def _hub_id(place: str) -> str:
    """What a place stands for: also a folder of a storage that was moved, in a configuration from there."""
    return paths.hub_id_of(place) or place


def _place(wanted: Wanted, store: Sharing) -> str:
    folder = find(wanted, store)
    return wanted.id if folder is None else str(folder)
