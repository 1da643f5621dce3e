"""What a sweep takes from the hub, and where a storage keeps it: fetched once, then every process reads it there.

STORAGE/shared/hub/models--ORG--NAME@COMMIT/ holds the files. STORAGE/shared/hub/pins/models--ORG--NAME@main.json (a
pin) says which commit `main` was when it was first fetched: one storage never mixes two commits of it.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock
from pydantic import BaseModel

from trainables.common import typed_paths
from trainables.storage.atomic_files import write_json
from trainables.storage.folder_storage import Storage

Kind = Literal["models", "tokenizers", "datasets", "tasks"]
LABELS = {"models": "model", "tokenizers": "tokenizer", "datasets": "data set", "tasks": "questions of"}
DATA = "data"
"""The part of a benchmark that `benchmark.data` names; the others are its sources."""
FOLDER = re.compile(r"(?:models|tokenizers|datasets)--([^@/]+)@([^@/+]+)(?:\+[^@/]+)?")
"""A folder of the hub in a storage; what follows `+` is a data set's configuration, in older storages."""


@dataclass(frozen=True)
class HubRequirement:
    """A model, a tokenizer, a data set or the questions of a task on the hub.

    Of `tasks` the id is lm-eval's task, which names the data set. `part`: of a benchmark, DATA or the name of a source.
    `setting`: what a user sets to give an own folder instead of the hub's, such as `target=DIR`. `folder`: its own
    folder below DIR, where one DIR is for several requirements. `files`: what that folder has to hold; `suffixes`:
    others that each file may have.
    `bytes`: its size, where that is known without asking. `gated`: what to accept, where that is known.
    """

    kind: Kind
    id: str
    revision: str | None = None
    part: str = DATA
    setting: str = "benchmark.data=DIR"
    files: tuple[str, ...] = ("its files",)
    suffixes: tuple[str, ...] = ()
    bytes: int | None = None
    gated: str = ""
    folder: str = ""

    @property
    def key(self) -> str:
        """Its name in a storage: `models--ORG--NAME@main`."""
        return folder_name(self.kind, self.id, self.revision or "main")

    @property
    def repo_type(self) -> str:
        """The hub's word for the kind."""
        return "dataset" if self.kind == "datasets" else "model"

    @property
    def label(self) -> str:
        """`model ORG/NAME`."""
        return f"{LABELS[self.kind]} {self.id}"

    @property
    def field(self) -> str:
        """The setting that messages begin with."""
        return self.setting.split("=", 1)[0]

    @property
    def directory(self) -> str:
        """Where its files go before `setting` is given: `DIR`, `DIR/retain95`."""
        return f"DIR/{self.folder}" if self.folder else "DIR"

    @property
    def option(self) -> str:
        """What to type for a folder in its place: `--set models=DIR with it in DIR/retain95`."""
        return f"--set {self.setting}" + (f" with it in {self.directory}" if self.folder else "")


@dataclass(frozen=True)
class HubSnapshot:
    """What a pin says. `commit`: None where a person brought the files. `folder`: its name in shared/hub.

    `source`: hub, cache (of Hugging Face's libraries) or brought. `files`: name -> size, and SHA-256 where it is known.
    """

    id: str
    revision: str
    commit: str | None
    folder: str
    source: str
    fetched: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def folder_name(kind: str, hub_id: str, revision: str) -> str:
    """Return `models--ORG--NAME@REVISION`, a name for a file or folder."""
    return f"{kind}--{hub_id.replace('/', '--')}@{re.sub(r'[^A-Za-z0-9._-]', '_', revision)}"


def parse_folder(place: str) -> tuple[str, str] | None:
    """Return hub id and revision of a storage's folder (STORAGE/shared/hub/...), None for any other place."""
    path = Path(place)
    found = FOLDER.fullmatch(path.name) if path.parent.name == "hub" else None
    return (found[1].replace("--", "/", 1), found[2]) if found else None


def hub_id_of(place: str) -> str:
    """Return the hub id whose files a storage's folder holds, and any other place as it is."""
    found = parse_folder(place)
    return found[0] if found else place


def is_given_folder(place: str | Path) -> bool:
    """Return whether a person named this folder: a storage's folder of the hub stands for its hub id."""
    return typed_paths.is_folder(place) and parse_folder(str(place)) is None


def hub_root(store: Storage) -> Path:
    """Return STORAGE/shared/hub."""
    return store.root / "shared" / "hub"


def pin_file(requirement: HubRequirement, store: Storage) -> Path:
    """Return the file of the pin, which is written last."""
    return hub_root(store) / "pins" / f"{requirement.key}.json"


def read_pin(requirement: HubRequirement, store: Storage) -> HubSnapshot | None:
    """Return what was fetched for this storage, None where nothing was."""
    found = store.read_json(pin_file(requirement, store))
    return HubSnapshot(**found) if found else None


def write_pin(requirement: HubRequirement, pin: HubSnapshot, store: Storage) -> None:
    """Write the pin. Only from then on do other processes see the folder, so call it last."""
    file = pin_file(requirement, store)
    write_json(file, asdict(pin))
    store.push(file)


def find_folder(requirement: HubRequirement, store: Storage) -> Path | None:
    """Return the folder on this machine, downloaded once where the storage is elsewhere; None: nothing was fetched."""
    pin = read_pin(requirement, store)
    if pin is None:
        return None
    folder = hub_root(store) / pin.folder
    if store.is_remote and not folder.is_dir():
        with lock(pin.folder, store):
            store.fetch(folder)
    return folder if folder.is_dir() else None


def lock(name: str, store: Storage) -> FileLock:
    """Return a lock between the processes of this machine."""
    folder = hub_root(store) / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / name)


def find_commits(value: BaseModel) -> dict[str, str]:
    """Return hub id -> commit (or what a person called it) of the hub's folders that a configuration names."""
    found: dict[str, str] = {}
    for _, part in value:
        for item in part if isinstance(part, tuple) else (part,):
            if isinstance(item, BaseModel):
                found |= find_commits(item)
            elif isinstance(item, str) and (stored := parse_folder(item.rpartition("=")[2])):
                found[stored[0]] = stored[1]
    return found
