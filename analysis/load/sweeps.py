"""Sweeps on disk: finding `sweeps/NAME-HASH.json` in a storage, and reading the files of one."""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from trainables.common import errors
from trainables.config.settings import Selection
from trainables.storage import location
from trainables.storage.base import Storage

log = logging.getLogger(__name__)

SWEEP_FILE = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})")


class InputError(ValueError):
    """A sweep name or a storage that cannot be used; the message says what was given, what is there and what to do."""


class DamagedFileError(ValueError):
    """A file of the storage that is not what it should be; the message names it."""


@dataclass(frozen=True)
class Sweep:
    """What `sweeps/NAME-HASH.json` says."""

    name: str
    hash: str
    title: str
    created: datetime
    command: str
    commands: tuple[str, ...]
    strategy: str
    selection: Selection
    trials: tuple[str, ...]
    references: tuple[dict[str, str], ...]
    backbone: str
    """Of `search_spaces.schema.backbones`; empty where the target model is another or the file is older."""

    @property
    def strategies(self) -> tuple[str, ...]:
        """Return the strategies of all starts, each once: the trials are of all of them."""
        found = [self.strategy if command == self.command else _strategy(command) for command in self.commands]
        return tuple(dict.fromkeys([*found, self.strategy]))

    @property
    def subject(self) -> str:
        """Return the title up to its colon: the rest tells of all that the sweep can have, not of these trials."""
        return self.title.partition(": ")[0]

    @property
    def label(self) -> str:
        """Return NAME-HASH, which names this sweep and no other."""
        return f"{self.name}-{self.hash}"


def _strategy(command: str) -> str:
    """Return the strategy that a start names; the one that is taken where it names none."""
    match = re.search(r"--strategy[= ](\w+)", command)
    return match[1] if match else "grid"


def open_storage(storage: str | Path = "runs") -> Storage:
    """Return the storage at a path, a `file://` address or one such as s3://bucket/folder, of which a working copy is
    brought up to date. InputError where it cannot be read.
    """
    text = str(storage)
    address = urlparse(text)
    if "://" in text and address.scheme != "file":
        with told():
            store = location.open_storage(text, writable=False)
            store.sync_trials()
            return store
    folder = Path(unquote(address.path)) if address.scheme == "file" else Path(text)
    if not folder.is_dir():
        raise InputError(
            f"--storage {text}: there is no such folder; give the one that `python -m platform.sweep` wrote to"
        )
    return Storage(folder)


def opened(storage: str | Path | Storage) -> Storage:
    """Return a storage that is open already as it is."""
    return storage if isinstance(storage, Storage) else open_storage(storage)


def find_sweep(name: str, storage: str | Path | Storage = "runs") -> Sweep:
    """Return the sweep called NAME or NAME-HASH; of several hashes the newest by `created`, saying so on stderr.

    InputError, with the closest match and what is there, where no sweep has that name.
    """
    store = opened(storage)
    folder, storage = store.root / "sweeps", store.location if isinstance(storage, Storage) else storage
    files = {path.stem: path for path in sorted(folder.glob("*.json")) if SWEEP_FILE.fullmatch(path.stem)}
    if name in files:
        return _brought(_sweep(files[name]), store)
    found = [_sweep(path) for stem, path in files.items() if _name(stem) == name]
    if not found:
        raise InputError(_unknown(name, files, storage))
    found.sort(key=lambda sweep: (sweep.created, sweep.hash))
    if len(found) > 1:
        others = ", ".join(sweep.label for sweep in reversed(found[:-1]))
        log.warning("%s has %d sweeps: taking the newest, %s (others: %s)", name, len(found), found[-1].label, others)
    return _brought(found[-1], store)


def _brought(sweep: Sweep, store: Storage) -> Sweep:
    with told():
        store.download_trials(sweep.trials)
    return sweep


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn what a storage refuses into this package's InputError."""
    try:
        yield
    except errors.InputError as error:
        raise InputError(str(error)) from error


def _name(stem: str) -> str:
    match = SWEEP_FILE.fullmatch(stem)
    return match["name"] if match else stem


def _unknown(name: str, stems: Iterable[str], storage: str | Path) -> str:
    stems = sorted(stems)
    if not stems:
        return f"NAME {name}: storage {storage} holds no sweep yet; start one with `python -m platform.sweep NAME`"
    known = sorted({*stems, *map(_name, stems)})
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"NAME {name}: storage {storage} holds no such sweep; {hint}there are: {', '.join(stems)}"


def _sweep(path: Path) -> Sweep:
    try:
        data = read(path, ("name", "hash", "created", "trials"))
        created = datetime.fromisoformat(data["created"])
        rule = Selection(**data.get("selection") or {})  # sweeps from before there was a choice of rules have none
    except (ValueError, TypeError) as damage:
        why = " ".join(str(damage).split())
        message = f"sweeps/{path.name} cannot be used: {why}; run the sweep again or name another as NAME-HASH"
        raise InputError(message) from damage
    if f"{data['name']}-{data['hash']}" != path.stem:  # it names the report's folder
        message = f"it is called {data['name']}-{data['hash']} inside; give the file that name again"
        raise InputError(f"sweeps/{path.name} cannot be used: {message}")
    command = data.get("command") or f"python -m platform.sweep {data['name']}"
    return Sweep(
        name=data["name"],
        hash=data["hash"],
        title=data.get("title") or data["name"],
        created=created if created.tzinfo else created.replace(tzinfo=UTC),
        command=command,
        commands=tuple(data.get("commands") or [command]),
        strategy=data.get("strategy") or "unknown",
        selection=rule,
        trials=tuple(data["trials"]),
        references=tuple(data.get("references") or ()),
        backbone=data.get("backbone") or "",
    )


def read(path: Path, fields: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object; FileNotFoundError where there is none, DamagedFileError where it lacks its fields."""
    place = "/".join(path.parts[-3:])
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{place} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise DamagedFileError(f"{place} is damaged: not a JSON object")
    lacking = [field for field in fields if field not in data]
    if lacking:
        raise DamagedFileError(f"{place} is damaged: no field {', '.join(lacking)}")
    return data
