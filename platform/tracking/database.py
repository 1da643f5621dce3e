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

from trainables.storage.folder_storage import Storage, set_aside

SQLITE, OWN, ARTIFACTS = "sqlite:///", "mlflow.db", "mlartifacts"
CACHE_KIB = 200_000
ENGINES = ("sqlite", "postgresql", "mysql", "mssql")
"""What MLflow talks to without a server between."""


def tracking_uri(store: Storage) -> str:
    """Return MLFLOW_TRACKING_URI, else SQLite in the storage."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.root / OWN}"


def is_database(uri: str) -> bool:
    """Return whether no server stands between: then MLflow would put artifacts where the command was typed."""
    return uri.partition(":")[0].partition("+")[0] in ENGINES


def is_own(uri: str, store: Storage) -> bool:
    """Return whether runs go into the storage's own database."""
    return uri == f"{SQLITE}{store.root / OWN}"


def prepare_database(uri: str, store: Storage) -> None:
    """Make the SQLite file that `uri` names where it is missing, and mend the storage's own.

    A damaged one is set aside and made again, for it is a view.
    """
    path = Path(uri.removeprefix(SQLITE))
    if is_own(uri, store):
        from sqlalchemy import Engine, event

        event.listen(Engine, "connect", _write_quickly)
        if path.exists() and not _is_whole(path):
            print(
                f"damaged: {path}; set aside in {set_aside([path], store)} and made again; of other sweeps by python "
                "-m platform.tracking sync NAME",
                flush=True,
            )
    if uri.startswith(SQLITE) and not path.exists():
        _create(path)


def _write_quickly(connection: Any, record: object) -> None:
    """Let no commit wait for the disk, for what a loss of power damages is a view, and keep indices in memory."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")
        connection.execute(f"pragma cache_size = -{CACHE_KIB}")


def _is_whole(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            return database.execute("pragma quick_check").fetchone() == ("ok",)
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


def place_artifacts(uri: str, store: Storage, experiment: str) -> None:
    """Let the artifacts of an experiment that a server made lie in this storage, and all those of the storage's own
    database that came with it from another place.

    MLflow (3.17) knows absolute places only, and from a database it takes none of a server, `mlflow-artifacts:/1`.
    """
    if not is_database(uri):
        return
    from sqlalchemy import create_engine, text

    engine, own, folder = create_engine(uri), is_own(uri, store), str(store.root / ARTIFACTS)
    with contextlib.closing(engine.connect()) as connection, connection.begin():
        places = connection.execute(text("select experiment_id, name, artifact_location from experiments")).all()
        for key, name, old in places:
            moved = own and old.endswith(f"/{ARTIFACTS}") and old != folder
            if moved or (old.startswith("mlflow-artifacts:") and (own or name == experiment)):
                values = {"old": old, "new": folder, "id": key}
                for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
                    words = f"update {table} set {column} = replace({column}, :old, :new) where experiment_id = :id"
                    connection.execute(text(words), values)
    engine.dispose()
