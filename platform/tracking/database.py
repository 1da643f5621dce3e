"""Where MLflow's runs are: a tracking server, or the storage's own database."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import uuid
from pathlib import Path
from typing import Any

from trainables.storage.base import Storage, set_aside

SQLITE, ARTIFACTS = "sqlite:///", "mlartifacts"
ENGINES = ("sqlite", "postgresql", "mysql", "mssql")
"""What MLflow talks to without a server between."""


def tracking_uri(store: Storage) -> str:
    """Return MLFLOW_TRACKING_URI, else SQLite in the storage."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.root / 'mlflow.db'}"


def is_database(uri: str) -> bool:
    """Return whether no server stands between: then MLflow would put artifacts where the command was typed."""
    return uri.partition(":")[0].partition("+")[0] in ENGINES


def prepare_database(uri: str, store: Storage) -> None:
    """Make the SQLite file that `uri` names where it is missing, and mend the storage's own.

    A damaged one is set aside and made again, for it is a view. In one that was copied or moved with its storage the
    places of artifacts become those in this storage.
    """
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE):
        return
    own = path == store.root / "mlflow.db"
    if own:
        from sqlalchemy import Engine, event

        event.listen(Engine, "connect", _leave_flushing_to_the_kernel)
    if own and path.exists() and not _is_whole(path):
        print(
            f"damaged: {path}; set aside in {set_aside([path], store)} and made again; of other sweeps by python -m "
            "platform.tracking sync NAME",
            flush=True,
        )
    if not path.exists():
        _create(path)
    elif own:
        _move_artifacts(path, str(store.root / ARTIFACTS))


def move_artifacts_of_server(uri: str, experiment: Any, folder: str) -> None:
    """Let new artifacts of an experiment that was made through a server lie in `folder`: it has places of a server."""
    old = experiment.artifact_location
    if not is_database(uri) or not old.startswith("mlflow-artifacts:"):
        return
    from sqlalchemy import create_engine, text

    values = {"old": old, "new": folder, "id": int(experiment.experiment_id)}
    engine = create_engine(uri)
    with contextlib.closing(engine.connect()) as connection, connection.begin():
        for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
            words = f"update {table} set {column} = replace({column}, :old, :new) where experiment_id = :id"
            connection.execute(text(words), values)
    engine.dispose()


def _leave_flushing_to_the_kernel(connection: Any, record: object) -> None:
    """Let no commit wait for the disk: MLflow commits ten times a trial, and what a loss of power damages is a view."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")


def _is_whole(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            return {"experiments", "runs"} <= tables and database.execute("pragma quick_check").fetchone() == ("ok",)
    except sqlite3.OperationalError:  # another process writes
        return True
    except sqlite3.DatabaseError:
        return False


def _create(path: Path) -> None:
    """Make MLflow's tables elsewhere and move the file into place.

    A kill amid its dozens of migrations leaves a database that MLflow never opens again.
    """
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        MlflowClient(tracking_uri=f"{SQLITE}{made}").search_experiments(max_results=1)
        try:
            shutil.copyfile(made, staging)  # a copy, because MLflow keeps its connection to the file that it made
            with contextlib.suppress(FileExistsError):  # another sweep in this storage was quicker
                os.link(staging, path)
        finally:
            staging.unlink(missing_ok=True)


def _move_artifacts(path: Path, folder: str) -> None:
    """Let artifacts of another storage's folder lie in this one's: MLflow (3.17) knows absolute places only."""
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        places = {place for (place,) in file.execute("select artifact_location from experiments")}
        for old in places - {folder}:
            if old.endswith(f"/{ARTIFACTS}"):
                file.execute(
                    "update runs set artifact_uri = ? || substr(artifact_uri, ?) where substr(artifact_uri, 1, ?) = ?",
                    (folder, len(old) + 1, len(old) + 1, f"{old}/"),
                )
                file.execute("update experiments set artifact_location = ? where artifact_location = ?", (folder, old))
