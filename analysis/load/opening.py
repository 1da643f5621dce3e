"""Opens a storage for analysis, finds a sweep in it by its name, and reads what a trial wrote row by row."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow

from trainables.common.errors import InputError
from trainables.common.regular_files import read_parquet
from trainables.storage import opening
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile, find_sweeps

log = logging.getLogger(__name__)


def open_storage(storage: str | Path | Storage = "runs") -> Storage:
    """Return the storage at a path or address, its working copy refreshed; an open one as it is. Raise InputError."""
    if isinstance(storage, Storage):
        return storage
    store = opening.open_storage(str(storage), writable=False)
    if not store.root.is_dir():
        raise InputError(
            f"--storage {storage}: there is no such folder; give the one that `python -m platform.sweep` wrote to"
        )
    store.download_sweeps_and_results()
    return store


def find_sweep(name: str, storage: str | Path | Storage = "runs") -> SweepFile:
    """Return the sweep NAME or NAME-HASH; of several hashes the newest, saying so on stderr. Raise InputError."""
    store = open_storage(storage)
    newest, *others = find_sweeps(name, store)
    if others:
        labels = ", ".join(sweep.label for sweep in others)
        log.warning("%s has %d sweeps: taking the newest, %s (others: %s)", name, len(others) + 1, newest.label, labels)
    store.download_sweeps_and_results(newest.trials)
    return newest


def read_trial_table(store: Storage, path: Path, columns: Collection[str] = ()) -> pyarrow.Table | None:
    """Return `columns` of a trial's or evaluation's file; None without it, with a warning of a damaged one."""
    store.fetch(path)
    try:
        return read_parquet(path, columns)
    except FileNotFoundError:
        return None
    except (OSError, InputError) as damage:
        log.warning("%s is damaged: %s", path.relative_to(store.root), damage)
        return None
