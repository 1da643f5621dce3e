"""A storage on a local server that speaks S3, as several machines open it, and trials as they write them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.starts import RESULT_FIELDS
from trainables.storage.atomic_files import write_json, write_rows
from trainables.storage.names import CONFIG, RESULT, STEPS
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage

Machine = Callable[..., ObjectStorage]


@pytest.fixture
def machine(object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return `machine(name)`: the test's storage as a machine of that name opens it, in a copy of its own."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    uri = f"s3://bucket/{uuid.uuid4().hex}"

    def open_there(name: str, *, writable: bool = True) -> ObjectStorage:
        monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / name))
        found = open_storage(uri, writable=writable)
        assert isinstance(found, ObjectStorage)
        return found

    return open_there


def names(store: ObjectStorage) -> set[str]:
    return set(store.store.list())


def write_trial(store: ObjectStorage, key: str, **more: Any) -> Path:
    """Write a trial that has ended into the working copy, without sending it."""
    folder = store.trial(key)
    write_json(folder / CONFIG, {"method": "ga"})
    write_rows(folder / STEPS, [{"step": 1, "loss": 0.5}])
    write_json(folder / RESULT, {**RESULT_FIELDS, "id": key, **more})
    return folder


def write_folder(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"what {name} holds")
    return folder


def record_puts(store: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each object that is written is appended."""
    written: list[str] = []
    write = store.store._write

    def record(name: str, pieces: Any) -> None:
        write(name, pieces)
        written.append(name)

    monkeypatch.setattr(store.store, "_write", record)
    return written
