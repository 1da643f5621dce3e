"""What most callers want to know of a result, without reading the file again that has not changed."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from trainables.storage import files
from trainables.storage.base import RESULT, Storage


class Brief(NamedTuple):
    """How a trial ended, when its attempt was started, and what it says where it failed."""

    status: str
    started: str
    message: str | None


def of(store: Storage, trial_id: str) -> Brief | None:
    """Of a trial's result, None where there is none that can be read."""
    path = store.trial(trial_id) / RESULT
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return _read(path, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=2**14)
def _read(path: Path, file: tuple[int, int, int]) -> Brief | None:
    """Kept for `file`, a file's number, time and size: results are written by rename, never in place."""
    result = files.read_json(path)
    if result is None or not result.keys() >= {"status", "started"}:
        return None
    return Brief(result["status"], result["started"], (result.get("error") or {}).get("message"))
