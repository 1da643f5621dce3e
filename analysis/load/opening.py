"""Opens a storage for analysis, and finds a sweep in it by its name."""

from __future__ import annotations

import logging
from pathlib import Path

from trainables.common.errors import InputError
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
