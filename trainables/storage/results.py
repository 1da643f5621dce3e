"""What a trial leaves: whether its result can be read, what it says in short, what is removed, what is set aside."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from trainables.storage.base import CHECKPOINT, ERROR, LOST, RESULT, ROWS, STEPS, UNFINISHED, Storage, dated_place
from trainables.storage.files import read_json


class ResultSummary(NamedTuple):
    """How a trial ended, when its attempt was started, and its message if it failed."""

    status: str
    started: str
    message: str | None


def summarise(store: Storage, trial_id: str) -> ResultSummary | None:
    """Return the summary of a trial's result, None if there is none that can be read; reads only a changed file."""
    path = store.trial(trial_id) / RESULT
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return _read_summary(path, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=2**14)
def _read_summary(path: Path, version: tuple[int, int, int]) -> ResultSummary | None:
    """`version`: the file's inode, time and size, a key of the cache: results are written by rename, never in place."""
    result = read_json(path)
    if result is None or not result.keys() >= {"status", "started"}:
        return None
    return ResultSummary(result["status"], result["started"], (result.get("error") or {}).get("message"))


def read_result(folder: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """Return a trial's result, None if it has none that is whole, and its files that cannot be what was written.

    Reads no more of a Parquet file than its ends, which every cut takes away.
    """
    if not (folder / RESULT).exists():
        return None, []
    result = read_json(folder / RESULT)
    damaged = [] if result and _is_of(result, folder.name) else [folder / RESULT]
    damaged += [path for path in (folder / STEPS, folder / ROWS) if path.exists() and not _is_whole_table(path)]
    return (None if damaged else result), damaged


def _is_of(result: Mapping[str, Any], trial_id: str) -> bool:
    """Whether a JSON object is the result of this trial."""
    whole = result.keys() >= {"id", "status", "config", "metrics", "started"} and result["id"] == trial_id
    return whole and isinstance(result["config"], dict) and isinstance(result["metrics"], dict)


def never_ran(result: Mapping[str, Any] | None) -> bool:
    """Whether a result was written for a trial that did not run, and not by the process that ran it."""
    return result is not None and result.get("attempt", "") is None


def _is_whole_table(path: Path) -> bool:
    """Whether a Parquet file has its beginning, and at its end a footer of the length that is written there."""
    size = path.stat().st_size
    if size < 12:
        return False
    with path.open("rb") as stream:
        begin = stream.read(4)
        stream.seek(-8, os.SEEK_END)
        length, end = int.from_bytes(stream.read(4), "little"), stream.read(4)
    return begin == end == b"PAR1" and length + 12 <= size


def remove_leftovers(folder: Path) -> None:
    """Remove what a trial with a result does not need, which a kill right after the result leaves.

    The checkpoint of a lost trial stays.
    """
    if (folder / CHECKPOINT).exists() and (read_json(folder / RESULT) or {}).get("status") == LOST:
        return
    for path in folder.iterdir():
        if path.name not in UNFINISHED and not path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def set_results_aside(trial_ids: Iterable[str], store: Storage) -> Path:
    """Move the results of trials that run again, as set_aside does; their checkpoints stay."""
    place = dated_place(store)
    for key in trial_ids:
        for name in (RESULT, ERROR, STEPS, ROWS):  # the result first: from then on the trial is one to run
            store.move(store.trial(key) / name, place / key / name)
    return place


def spent(results: Iterable[Mapping[str, Any]]) -> float:
    """Return the GPU-seconds of finished trials."""
    timed = (result for result in results if "seconds" in result)
    return sum(result["seconds"].get("total", 0.0) * gpus(result["config"]) for result in timed)


def gpus(config: Mapping[str, Any]) -> float:
    """Return the GPUs of a trial's configuration; a rank without a GPU counts as one."""
    resources = config["resources"]
    return resources["ranks"] * (resources["gpus"] or 1)


def cause(result: dict[str, Any]) -> str:
    """Return what failures have in common: the message without its numbers, addresses and ids."""
    message = (result["error"] or {}).get("message", result["status"])
    return re.sub(r"\b(0x)?[0-9a-f]*\d[0-9a-f]*\b", "#", message.splitlines()[0] if message else "")
