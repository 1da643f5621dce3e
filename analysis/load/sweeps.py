"""Sweeps on disk: finding `sweeps/NAME-HASH.json` in a storage, and reading the files of one."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlparse

from pydantic import AfterValidator, BaseModel, ConfigDict

from trainables.common.errors import InputError
from trainables.config.settings import Selection
from trainables.storage import location
from trainables.storage.base import Storage
from trainables.storage.files import parse_object

log = logging.getLogger(__name__)

SWEEP_FILE = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})")


class DamagedFileError(ValueError):
    """A file of the storage that is not what it should be; the message names it."""


class Sweep(BaseModel):
    """What `sweeps/NAME-HASH.json` says; older files lack what has a default."""

    model_config = ConfigDict(frozen=True)

    name: str
    hash: str
    title: str
    created: Annotated[datetime, AfterValidator(lambda time: time if time.tzinfo else time.replace(tzinfo=UTC))]
    command: str
    commands: tuple[str, ...]
    strategy: str = "unknown"
    selection: Selection = Selection()
    trials: tuple[str, ...]
    references: tuple[dict[str, str], ...] = ()
    backbone: str = ""
    """Of `search_spaces.schema.backbones`; empty where the target model is another."""

    @property
    def strategies(self) -> tuple[str, ...]:
        """Return the strategies of all starts, each once: the trials are of all of them."""
        found = [self.strategy if command == self.command else _strategy(command) for command in self.commands]
        return tuple(dict.fromkeys([*found, self.strategy]))

    @property
    def subject(self) -> str:
        """Return the title up to its colon: the rest describes all that the sweep can have, not these trials."""
        return self.title.partition(": ")[0]

    @property
    def label(self) -> str:
        """Return NAME-HASH, which names this sweep and no other."""
        return f"{self.name}-{self.hash}"


def _strategy(command: str) -> str:
    """Return the strategy that a start names; the default where it names none."""
    match = re.search(r"--strategy[= ](\w+)", command)
    return match[1] if match else "grid"


def open_storage(storage: str | Path | Storage = "runs") -> Storage:
    """Return the storage at a path, a `file://` address or one such as s3://bucket/folder, whose working copy is
    refreshed; a storage that is open already as it is. Raise InputError if it cannot be read.
    """
    if isinstance(storage, Storage):
        return storage
    text = str(storage)
    address = urlparse(text)
    if "://" in text and address.scheme != "file":
        store = location.open_storage(text, writable=False)
        store.sync_trials()
        return store
    folder = Path(unquote(address.path)) if address.scheme == "file" else Path(text)
    if not folder.is_dir():
        raise InputError(
            f"--storage {text}: there is no such folder; give the one that `python -m platform.sweep` wrote to"
        )
    return Storage(folder)


def find_sweep(name: str, storage: str | Path | Storage = "runs") -> Sweep:
    """Return the sweep called NAME or NAME-HASH; of several hashes the newest by `created`, saying so on stderr.

    Raise InputError, with the closest match and what is there, if no sweep has that name.
    """
    store = open_storage(storage)
    files = {path.stem: path for path in sorted((store.root / "sweeps").glob("*.json"))}
    names = {stem: match["name"] for stem in files if (match := SWEEP_FILE.fullmatch(stem))}
    wanted = [name] if name in names else [stem for stem in names if names[stem] == name]
    if not wanted:
        raise InputError(_unknown(name, names, store.location if isinstance(storage, Storage) else storage))
    found = sorted((_read_sweep(files[stem]) for stem in wanted), key=lambda sweep: (sweep.created, sweep.hash))
    *others, newest = found
    if others:
        labels = ", ".join(sweep.label for sweep in reversed(others))
        log.warning("%s has %d sweeps: taking the newest, %s (others: %s)", name, len(found), newest.label, labels)
    store.download_trials(newest.trials)
    return newest


def _unknown(name: str, names: dict[str, str], storage: str | Path) -> str:
    if not names:
        return f"NAME {name}: storage {storage} holds no sweep yet; start one with `python -m platform.sweep NAME`"
    close = difflib.get_close_matches(name, sorted({*names, *names.values()}), n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"NAME {name}: storage {storage} holds no such sweep; {hint}there are: {', '.join(names)}"


def _read_sweep(path: Path) -> Sweep:
    try:
        found = read_object(path, ("name", "hash", "created", "trials"))
        data = {field: value for field, value in found.items() if value not in (None, "", [])}
        command = data.get("command", f"python -m platform.sweep {data['name']}")
        defaults = {"title": data["name"], "command": command, "commands": [command], "trials": []}
        sweep = Sweep.model_validate(defaults | data)
    except ValueError as damage:
        why = " ".join(str(damage).split())
        message = f"sweeps/{path.name} cannot be used: {why}; run the sweep again or name another as NAME-HASH"
        raise InputError(message) from damage
    if sweep.label != path.stem:  # it names the report's folder
        message = f"it is called {sweep.label} inside; give the file that name again"
        raise InputError(f"sweeps/{path.name} cannot be used: {message}")
    return sweep


def read_object(path: Path, fields: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object. Raise FileNotFoundError if there is none, DamagedFileError if it lacks its fields."""
    place = "/".join(path.parts[-3:])
    try:
        data = parse_object(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"{place} is damaged: {error}") from error
    if data is None:
        raise DamagedFileError(f"{place} is damaged: not a JSON object")
    lacking = [field for field in fields if field not in data]
    if lacking:
        raise DamagedFileError(f"{place} is damaged: no field {', '.join(lacking)}")
    return data
