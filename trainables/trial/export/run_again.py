"""A trial whose weights were not kept, run once more for its weights alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.common.wording import format_duration
from trainables.config.shared_artifacts import direction_of
from trainables.storage.folder_storage import Storage
from trainables.storage.names import STOPPED
from trainables.trial.export import verify
from trainables.trial.export.model_folder import read_trial


def run_again(result: dict[str, Any], store: Storage, place: Path) -> Storage:
    """Run the trial of a result again, as it was, in a new storage at `place`; return that one. Prints its steps.

    `store` stays as it is; what its trials share is read there. Raises InputError if the trial needs several
    processes, was stopped by its search's other trials, or ends otherwise than the first time.
    """
    trial = read_trial(result, store)
    again = f"ID: the weights of trial {trial.id()} were not kept, and it cannot run again by itself"
    if trial.resources.ranks > 1:
        ranks = f"it takes {trial.resources.ranks} ranks"
        raise InputError(f"{again}: {ranks}; run its sweep again with --new --keep all")
    if result["status"] == STOPPED:
        raise InputError(f"{again}: other trials of its search stopped it; run its sweep again with --new --keep all")
    took = format_duration(result["seconds"]["total"])
    print(f"the weights of trial {trial.id()} were not kept: it runs again; it took {took}", flush=True)
    if not trial.resources.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from trainables.training.task_vectors.forget_batches import direction_folder
    from trainables.trial.runner import TrialRun

    if (direction := direction_of(trial)) is not None:
        store.fetch(direction_folder(direction, store))
    place.mkdir(parents=True, exist_ok=True)
    if (store.root / "shared").is_dir():
        (place / "shared").symlink_to((store.root / "shared").absolute())
    own = Storage(place)
    for event in TrialRun(trial, own, keep_weights=True).events():
        if event["phase"] == "training":
            print(f"step {event['step']}/{event['steps']} loss {event['entry']['loss']:.4f}", flush=True)
    found = own.result(trial.id()) or {}
    if found.get("status") != result["status"]:
        why = (found.get("error") or {}).get("message", "no message")
        raise InputError(f"ID: trial {trial.id()} {result['status']} the first time, now {found.get('status')}: {why}")
    if others := verify.differences(result["metrics"], found["metrics"]):
        print(f"other metrics than the first time: {'; '.join(others)}")
    return own
