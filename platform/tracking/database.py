"""Where MLflow's runs are: a tracking server or the storage's own database, and what was last told there of a sweep."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from trainables.common import provenance
from trainables.config.ids import digest
from trainables.storage import files
from trainables.storage.base import Storage
from trainables.storage.results import summarise
from trainables.storage.sweeps import SweepFile

SQLITE = "sqlite:///"
ENGINES = ("sqlite", "postgresql", "mysql", "mssql")
"""What MLflow talks to without a server between."""


def tracking_uri(store: Storage) -> str:
    """Return MLFLOW_TRACKING_URI, else SQLite in the storage."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.root / 'mlflow.db'}"


def is_database(uri: str) -> bool:
    """Return whether no server stands between: then MLflow would put artifacts where the command was typed."""
    return uri.partition(":")[0].partition("+")[0] in ENGINES


def create_database(uri: str) -> None:
    """Make MLflow's tables elsewhere and move the file into place, where `uri` names a missing SQLite file.

    A kill amid its dozens of migrations leaves a database that MLflow never opens again.
    """
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or path.exists():
        return
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


def is_in_sync(sweep: SweepFile, store: Storage) -> bool:
    """Return whether nothing has changed since `mark_in_sync`, so that MLflow, which takes seconds, need not be asked.

    Never where each machine has a copy of the storage. A server that was emptied since is told all again by `sync`.
    """
    uri = tracking_uri(store)
    exists = not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).is_file()
    return exists and not store.is_remote and files.read_json(_note(sweep, store)) == _state(sweep, store)


def mark_in_sync(sweep: SweepFile, store: Storage) -> None:
    """Note that MLflow shows all, the report too. Where the disk has no room for this, MLflow is asked again."""
    with contextlib.suppress(OSError):
        files.write_json(_note(sweep, store), _state(sweep, store))


def _state(sweep: SweepFile, store: Storage) -> dict[str, Any]:
    results = {key: brief.started for key in sweep.trials if (brief := summarise(store, key))}
    fields = sweep.model_dump(mode="json", include={"title", "selection", "target", "trials"})
    made_from = {"uri": tracking_uri(store), "results": results, "commit": provenance.commit()[0], **fields}
    return {"shown": digest(made_from)}


def _note(sweep: SweepFile, store: Storage) -> Path:
    return store.sweep(sweep.name, sweep.hash).with_suffix(".shown")
