"""The one reader of what a trial wrote row by row: evaluation.parquet and steps.parquet."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow
import pyarrow.parquet

from trainables.storage.folder_storage import Storage

log = logging.getLogger(__name__)


def read_trial_table(store: Storage, path: Path, columns: Collection[str] = ()) -> pyarrow.Table | None:
    """Return `columns` of a trial's or evaluation's file; None without it, with a warning of a damaged one."""
    store.fetch(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.read(columns=[one for one in file.schema_arrow.names if not columns or one in columns])
    except FileNotFoundError:
        return None
    except (OSError, pyarrow.ArrowException) as damage:
        log.warning("%s is damaged: %s", path.relative_to(store.root), damage)
        return None
