"""MLflow's database in a storage is whole or not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest

from platform.tracking import database
from trainables.storage.folder_storage import Storage


class Migrations:
    """Stands for MlflowClient, which makes its tables in dozens of migrations."""

    def __init__(self, tracking_uri: str) -> None:
        Path(tracking_uri.removeprefix("sqlite:///")).write_text("whole")

    def search_experiments(self, max_results: int) -> None:
        """Nothing is asked of it."""


@pytest.fixture(autouse=True)
def migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "MlflowClient", Migrations)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_database_that_is_cut_off_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}"

    def copy_to_full_disk(source: Any, target: Any) -> None:
        Path(target).write_text("who")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", copy_to_full_disk)
        with pytest.raises(OSError, match="No space left"):
            database.prepare_database(uri, Storage(tmp_path / "another"))
    assert contents(tmp_path / "runs") == {}
    database.prepare_database(uri, Storage(tmp_path / "another"))
    assert contents(tmp_path / "runs") == {"mlflow.db": "whole"}


def test_database_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes while another one is made; a server is nobody's file."""
    path, copy = tmp_path / "mlflow.db", shutil.copyfile

    def copy_too_late(source: Any, target: Any) -> None:
        path.write_text("another sweep's")
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_too_late)
    for uri in (f"sqlite:///{path}", f"sqlite:///{path}", "http://127.0.0.1:1"):
        database.prepare_database(uri, Storage(tmp_path / "another"))
        assert contents(tmp_path) == {"mlflow.db": "another sweep's"}
