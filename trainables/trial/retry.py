"""When a trial begins again by itself: with half the micro-batch, or without a checkpoint that cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from trainables.common.errors import StartAgain
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.training import checkpoints
from trainables.trial.record import CHECKPOINT, RETRY, Event, Place, Record

Phases = Callable[[Trial, Record, Place], Iterator[Event]]


def follow(trial: Trial, record: Record, place: Place, phases: Phases) -> Iterator[Event]:
    """The phases, a second time with half the micro-batch where memory ran out the first time."""
    folder = place.folder
    retry = files.read_json(folder / RETRY)
    record.micro_batch = retry["micro_batch"] if retry else trial.resources.micro_batch
    try:
        yield from _from_checkpoint(trial, record, place, phases)
        return
    except torch.OutOfMemoryError as full:
        share = trial.training.batch_size // trial.resources.ranks
        if retry is not None or (record.micro_batch or share) == 1:
            raise
        half = max(1, (record.micro_batch or share) // 2)
        files.write_json(folder / RETRY, {"micro_batch": half})
        place.store.try_push(folder / RETRY)
        if trial.resources.ranks > 1:
            raise StartAgain(f"out of memory at step {len(record.steps) + 1}: again with micro-batch {half}") from full
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    record.steps.clear()
    yield from follow(trial, record, place, phases)


def _from_checkpoint(trial: Trial, record: Record, place: Place, phases: Phases) -> Iterator[Event]:
    """The phases, from their beginning where there is a checkpoint that cannot be read."""
    try:
        yield from phases(trial, record, place)
        return
    except checkpoints.Damaged as damaged:
        why = str(damaged)
    aside = checkpoints.set_aside(place.folder / CHECKPOINT, place.store)
    told = f"trial {trial.id()}: its checkpoint cannot be read ({why}); set aside in {aside}, the trial begins again"
    print(f"warning: {told}", file=sys.stderr, flush=True)
    if trial.resources.ranks > 1:
        raise StartAgain(told)
    record.damaged_checkpoint = str(aside)
    yield from _from_checkpoint(trial, record, place, phases)
