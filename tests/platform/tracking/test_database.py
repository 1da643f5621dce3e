"""MLflow's database in a storage is whole or not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from platform.tracking import database


def experiments(uri: str) -> list[str]:
    from mlflow import MlflowClient

    return [found.name for found in MlflowClient(tracking_uri=uri).search_experiments()]


def test_database_that_is_cut_off_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, real = f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}", shutil.copyfile

    def full(source: Any, target: Any) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:5000])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        database.ensure(uri)
    assert list((tmp_path / "runs").iterdir()) == []
    monkeypatch.setattr(shutil, "copyfile", real)
    database.ensure(uri)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mlflow.db"]
    assert experiments(uri) == ["Default"]


def test_database_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes while another one is made; a server is nobody's file."""
    path = tmp_path / "mlflow.db"
    real = shutil.copyfile

    def quicker(source: Any, target: Any) -> None:
        path.write_text("another sweep's")
        real(source, target)

    monkeypatch.setattr(shutil, "copyfile", quicker)
    for _ in range(2):
        database.ensure(f"sqlite:///{path}")
        assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"mlflow.db": "another sweep's"}
    database.ensure("http://127.0.0.1:1")
    assert [item.name for item in tmp_path.iterdir()] == ["mlflow.db"]
