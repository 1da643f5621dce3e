"""The one reader of what a trial wrote row by row: evaluation.parquet and steps.parquet."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow

from trainables.common.errors import InputError
from trainables.common.regular_files import read_parquet
from trainables.storage.folder_storage import Storage

log = logging.getLogger(__name__)


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
