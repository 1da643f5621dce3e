"""What a sweep has spent in all its starts: GPU-seconds in `sweeps/NAME-HASH.spent`, written again every few seconds.

Results tell only of trials that ended, and not of what a kill, `--new` or a retry threw away; this file does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from platform.state import lock
from platform.state.limits import Gate
from platform.state.sweep_state import SweepState
from trainables.storage import files
from trainables.storage.base import Storage
from trainables.storage.results import spent

BEAT = 10.0
"""Seconds: a driver that is killed forgets no more than these."""
KEY = "gpu_seconds"


def read(state: SweepState, store: Storage) -> float:
    """GPU-seconds of all starts so far; where nobody has noted them, what the sweep's results tell."""
    plan = state.plan
    path = store.spent(plan.sweep.name, plan.hash)
    store.fetch_parts(path.parent, (path.name,))
    noted = files.read_json(path)
    if noted is not None:
        return float(noted[KEY])
    earlier = files.read_json(store.sweep(plan.sweep.name, plan.hash)) or {}
    others = dict.fromkeys(earlier.get("trials", [])).keys() - {trial.id() for trial in plan.trials}
    return state.history.spent + spent(result for key in others if (result := store.result(key)))


@contextlib.contextmanager
def kept(gate: Gate, path: Path, store: Storage) -> Iterator[None]:
    """Note what the gate counts while the block runs, and at its end."""
    _note(gate, path, store)
    try:
        with lock.beating(path.stem, lambda: _note(gate, path, store), BEAT):
            yield
    finally:
        _note(gate, path, store)


def _note(gate: Gate, path: Path, store: Storage) -> None:
    """A full disk is told where it hurts, by the trials' own files."""
    with contextlib.suppress(OSError):
        files.write_json(path, {KEY: round(gate.hours * 3600, 3)}, durable=False)
        store.try_push(path)
