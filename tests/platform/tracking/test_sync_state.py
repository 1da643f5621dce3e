"""When a start may leave MLflow alone, because it shows all that there is."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from platform.tracking import database
from trainables.common import provenance
from trainables.storage import files
from trainables.storage.base import RESULT, Storage


@pytest.fixture
def noted(store: Storage, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sweep: dict[str, Any] = {"name": "tiny", "hash": "0a1b2c3d", "title": "Two trials", "trials": ["a1", "a2"]}
    for key in sweep["trials"]:
        found = {"id": key, "status": "finished", "started": "2026-11-20T10:00:00+00:00"}
        files.write_json(store.trial(key) / RESULT, found)
    assert not database.is_in_sync(sweep, store)
    (store.root / "mlflow.db").touch()
    database.mark_in_sync(sweep, store)
    assert database.is_in_sync(sweep, store)
    return sweep


def attempt(sweep: dict[str, Any], store: Storage, patch: pytest.MonkeyPatch) -> None:
    path = store.trial(sweep["trials"][0]) / RESULT
    files.write_json(path, (files.read_json(path) or {}) | {"started": "2026-11-21T11:22:33+00:00"})


CHANGES: dict[str, Callable[[dict[str, Any], Storage, pytest.MonkeyPatch], Any]] = {
    "a trial ran again": attempt,
    "a result went": lambda sweep, store, patch: (store.trial(sweep["trials"][0]) / RESULT).unlink(),
    "trials were added": lambda sweep, store, patch: sweep["trials"].append("0a1b2c3d4e5f"),
    "the database went": lambda sweep, store, patch: (store.root / "mlflow.db").unlink(),
    "another server": lambda sweep, store, patch: patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9"),
    "another commit's report": lambda sweep, store, patch: patch.setattr(provenance, "commit", lambda: ("feed", False)),
    "a damaged note": lambda sweep, store, patch: (store.root / "sweeps" / "tiny-0a1b2c3d.shown").write_text("{"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_mlflow_is_asked_after_every_change(
    noted: dict[str, Any], store: Storage, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    CHANGES[change](noted, store, monkeypatch)
    assert not database.is_in_sync(noted, store)


def test_full_disk_costs_the_note_alone(noted: dict[str, Any], store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, value: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    attempt(noted, store, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", fail)
        database.mark_in_sync(noted, store)
    assert not database.is_in_sync(noted, store)
    database.mark_in_sync(noted, store)
    assert database.is_in_sync(noted, store)
