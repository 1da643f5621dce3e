"""A storage on a local server that speaks S3, as several machines open it, and trials as they write them."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector, FileType

from tests.support.starts import RESULT_FIELDS
from trainables.storage.atomic_files import write_json, write_parquet_rows
from trainables.storage.file_names import CONFIG, RESULT, STEPS
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
    """Return the names of all objects."""
    found = store.files.get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    return {info.path for info in found if info.type == FileType.File}


def put(store: ObjectStorage, name: str, content: bytes) -> None:
    with store.files.open_output_stream(name) as stream:
        stream.write(content)


def delete(store: ObjectStorage, *gone: str) -> None:
    for name in gone:
        store.files.delete_file(name)


def write_trial(store: ObjectStorage, key: str, **more: Any) -> Path:
    """Write a trial that has ended into the working copy, without sending it."""
    folder = store.trial(key)
    write_json(folder / CONFIG, {"method": "ga"})
    write_parquet_rows(folder / STEPS, [{"step": 1, "loss": 0.5}])
    write_json(folder / RESULT, {**RESULT_FIELDS, "id": key, **more})
    return folder


def write_folder(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"what {name} holds")
    return folder


class Files:
    """A file system that records what is written, and that does not answer when a name ends so."""

    def __init__(self, files: Any, refused: str = "\0") -> None:
        self.files = files
        self.refused = refused
        self.written: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.files, name)

    def open_output_stream(self, path: str) -> Any:
        if path.endswith(self.refused):
            raise OSError("gone")
        self.written.append(path)
        return self.files.open_output_stream(path)


def record_puts(store: ObjectStorage, refused: str = "\0") -> list[str]:
    """Return a list to which the path of each object that is written is appended."""
    store.files = Files(store.files, refused)
    return store.files.written
