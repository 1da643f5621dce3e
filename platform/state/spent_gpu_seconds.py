"""The record of the GPU-seconds of all starts of a sweep, `sweeps/NAME-HASH.spent`.

Results alone do not show what was killed or set aside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from platform.state.limits import Stopper
from platform.state.lock import repeat
from platform.state.trial_outcomes import SweepState
from trainables.storage.atomic_files import parse_object, read_json, write_json
from trainables.storage.folder_storage import Storage

NOTE_SECONDS = 10.0
"""Seconds between two notes of what is spent: a driver that is killed forgets no more than these."""
KEY = "gpu_seconds"


def load_spent(state: SweepState, store: Storage) -> float:
    """Return the GPU-seconds of all starts so far: those noted, else those of the plan's results.

    They only grow: of a remote storage's note and one written here, which may never have been sent, the larger counts.
    """
    path = store.spent(state.plan.sweep.name, state.plan.hash)
    notes = parse_object(store.read_newest(path) or b""), read_json(path)
    return max((float(note[KEY]) for note in notes if note is not None), default=state.spent)


@contextlib.contextmanager
def record_spent(stopper: Stopper, path: Path, store: Storage) -> Iterator[None]:
    """Note the GPU-seconds while the block runs, and at its end."""
    _note(stopper, path, store)
    try:
        with repeat(lambda: _note(stopper, path, store), NOTE_SECONDS):
            yield
    finally:
        _note(stopper, path, store)


def _note(stopper: Stopper, path: Path, store: Storage) -> None:
    """Write the record; that a disk is full is found out by the trials' own files."""
    with contextlib.suppress(OSError):
        write_json(path, {KEY: round(stopper.hours * 3600, 3)}, durable=False)
        store.try_push(path)
