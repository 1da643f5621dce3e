"""A small sweep that was sent to MLflow once, and a copy of it for tests that change it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from platform.tracking.__main__ import sync_sweep
from tests.support.tracked_store import write_store, write_sweep
from trainables.storage.folder_storage import Storage


def client_of(store: Storage) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{store.root / 'mlflow.db'}")


@pytest.fixture(scope="session")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Return a storage whose sweep was synced once; nobody changes it."""
    store = write_store(tmp_path_factory.mktemp("tracking"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert sync_sweep(write_sweep(store), store) == 4
    return store


@pytest.fixture(scope="session")
def client(tracked: Storage) -> Any:
    return client_of(tracked)


@pytest.fixture
def copied(tracked: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, Any]:
    """Return a copy of the synced storage with a client of its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(tracked.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    sync_sweep(write_sweep(copy), copy)  # an experiment of its own: MLflow moves no files
    return copy, client_of(copy)
