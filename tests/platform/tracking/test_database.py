"""MLflow's database in a storage is whole or not there; when a start may leave it alone, because it shows all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest

from platform.tracking import database
from tests.support import tracked_store
from tests.support.starts import write_result
from trainables.common import provenance
from trainables.storage import files
from trainables.storage.base import RESULT, Storage
from trainables.storage.sweeps import SweepFile


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


# When nothing has changed


@pytest.fixture
def noted(store: Storage, monkeypatch: pytest.MonkeyPatch) -> SweepFile:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sweep = tracked_store.write_sweep(store)
    for key in sweep.trials:
        write_result(store, key)
    assert not database.is_in_sync(sweep, store)
    (store.root / "mlflow.db").touch()
    database.mark_in_sync(sweep, store)
    assert database.is_in_sync(sweep, store)
    return sweep


def attempt(sweep: SweepFile, store: Storage, patch: pytest.MonkeyPatch) -> None:
    path = store.trial(sweep.trials[0]) / RESULT
    files.write_json(path, (files.read_json(path) or {}) | {"started": "2026-11-21T11:22:33+00:00"})


CHANGES: dict[str, Callable[[SweepFile, Storage, pytest.MonkeyPatch], Any]] = {
    "a trial ran again": attempt,
    "a result went": lambda sweep, store, patch: (store.trial(sweep.trials[0]) / RESULT).unlink(),
    "the database went": lambda sweep, store, patch: (store.root / "mlflow.db").unlink(),
    "another server": lambda sweep, store, patch: patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9"),
    "another commit's report": lambda sweep, store, patch: patch.setattr(provenance, "commit", lambda: ("feed", False)),
    "a damaged note": lambda sweep, store, patch: (store.root / "sweeps" / "tiny-0a1b2c3d.shown").write_text("{"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_mlflow_is_asked_after_every_change(
    noted: SweepFile, store: Storage, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    CHANGES[change](noted, store, monkeypatch)
    assert not database.is_in_sync(noted, store)


def test_mlflow_is_asked_after_trials_were_added(noted: SweepFile, store: Storage) -> None:
    more = noted.model_copy(update={"trials": (*noted.trials, "0a1b2c3d4e5f")})
    assert not database.is_in_sync(more, store)


def test_full_disk_costs_the_note_alone(noted: SweepFile, store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, value: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    attempt(noted, store, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", fail)
        database.mark_in_sync(noted, store)
    assert not database.is_in_sync(noted, store)
    database.mark_in_sync(noted, store)
    assert database.is_in_sync(noted, store)
