"""The files that a trial leaves: whether they can be read, and what of them is removed.

A trial writes them (trainables.trial.record); what result.json must hold is in result_file.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.storage.atomic_files import read_json, sha256
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CHECKPOINT, LOST, RESULT, ROWS, STEPS, UNFINISHED


def read_result(store: Storage, trial_id: str) -> tuple[dict[str, Any] | None, list[Path]]:
    """Return a trial's result, None if it has none that is whole, and its files that cannot be what was written."""
    folder = store.trial(trial_id)
    if not (folder / RESULT).exists():
        return None, []
    result = store.result(trial_id)
    sums = result.get("files") if result else None
    if result is None:
        damaged = [folder / RESULT]
    elif sums is None:  # of an earlier version
        damaged = [path for path in (folder / STEPS, folder / ROWS) if path.exists() and not _is_whole_table(path)]
    else:
        damaged = [path for name, found in sums.items() if not _is_written(path := folder / name, found, store)]
    if damaged and read_json(folder / RESULT) != result and result is not None:  # set aside, or run again, meanwhile
        return read_result(store, trial_id)
    return (None if damaged else result), damaged


def _is_written(path: Path, sha: str, store: Storage) -> bool:
    """Return whether a table is what was written; where a copy of the storage lacks it, the storage has to have it."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        return sha256(path) == sha
    return not path.exists() and store.exists(path)


def never_ran(result: Mapping[str, Any] | None) -> bool:
    """Whether a result was written for a trial that did not run, and not by the process that ran it."""
    return result is not None and result.get("attempt", "") is None


def _is_whole_table(path: Path) -> bool:
    """Return whether a Parquet file has both its ends."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(path).num_rows >= 0
    except (OSError, pyarrow.ArrowException):
        return False


def remove_leftovers(folder: Path) -> None:
    """Remove what a kill right after the result leaves; the checkpoint of a lost trial stays."""
    if (folder / CHECKPOINT).exists() and (read_json(folder / RESULT) or {}).get("status") == LOST:
        return
    for path in folder.iterdir():
        if path.name not in UNFINISHED and not path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
