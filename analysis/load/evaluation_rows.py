"""The rows of an evaluation: what was measured of each question or text, without the text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from trainables.storage.folder_storage import Storage
from trainables.storage.names import ROWS

log = logging.getLogger(__name__)


def read_evaluation_rows(folder: Path, store: Storage, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows in the folder of a trial or of a reference model's evaluation; none where they are not there.

    A damaged file is warned of.
    """
    path = folder / ROWS
    store.fetch(path)
    try:
        if path.is_file():
            return pyarrow.parquet.read_table(path, columns=columns).to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException) as damage:
        log.warning("%s is damaged: %s", path.relative_to(store.root), damage)
    return []
