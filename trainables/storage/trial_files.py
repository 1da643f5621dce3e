"""What is removed of the files that a trial leaves, and how results are told from notes that a trial did not run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.storage.atomic_files import read_json
from trainables.storage.names import CHECKPOINT, LOST, RESULT, UNFINISHED


def never_ran(result: Mapping[str, Any] | None) -> bool:
    """Whether a result was written for a trial that did not run, and not by the process that ran it."""
    return result is not None and result.get("attempt", "") is None


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
