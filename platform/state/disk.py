"""The disk that a sweep takes: a size as a person writes it, the forecast of a plan, and what gives way at a budget."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from platform.state import weights as state_weights
from platform.state.sweep_state import SweepState
from trainables.common.cli import format_size
from trainables.common.errors import InputError
from trainables.storage.base import Storage
from trainables.training.task_vectors import spec

BYTES_PER_TRIAL = 2 * 2**20
"""Measured on tofu_tiny: 0.4 MB of Parquet and JSON a trial, and its part of the MLflow store."""
EVERY, SHARE = 20.0, 0.01
"""The whole storage is counted at most so often (seconds), and for at most this share of the driver's time."""
UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
CHECKPOINT_BYTES = {"fp32": 16, "bf16": 18}
"""Of a parameter: weights, AdamW's moments and GRU's average in fp32, with bf16 weights beside the fp32 ones."""


def parse(text: str | None) -> int | None:
    """Bytes of `20GB`, `500 MB`, `1.5TiB`. Raises InputError."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise InputError(f"--disk-budget: '{text}' is no size; write it like 500MB, 20GB or 1.5TB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** UNITS[match[2].lower()])


def forecast(state: SweepState, store: Storage, choice: str, slots: int) -> dict[str, int]:
    """What the rest of a plan writes at least, in bytes; models count where their sizes are known.

    `--keep pareto` is counted as one trial a study. Each of the trials side by side (`slots`) has a checkpoint, and
    beside it the new one.
    """
    plan, parts = state.plan, {"results": BYTES_PER_TRIAL * state.outstanding}
    shape = plan.target_shape(store)
    if shape is None or not state.outstanding:
        return parts
    resources, size = plan.sweep.resources, shape.parameters
    weights = size * (4 if resources.precision == "fp32" else 2)
    missing = sum(not store.exists(store.model(recipe.id())) for recipe in plan.recipes)
    vectors = sum(not store.exists(spec.folder_of(made, store)) for made in state.directions)
    left = len({trial.study() for trial in state.left})
    kept = {"all": state.outstanding, "pareto": left, "best": left, "none": 0}[choice]
    parts |= {"models made": missing * size * 4, "directions": vectors * size * 4, "weights": kept * weights}
    if resources.checkpoint_every:
        parts["checkpoints"] = slots * 2 * size * CHECKPOINT_BYTES[resources.precision]
    return {name: part for name, part in parts.items() if part}


def check(state: SweepState, store: Storage, choice: str, budget: int | None, slots: int) -> None:
    """Raise InputError where what is there and what will come exceed the budget."""
    if budget is None:
        return
    parts, there = forecast(state, store, choice, slots), store.size(store.root)
    if there + sum(parts.values()) > budget:
        raise InputError(
            f"--disk-budget: the storage has {format_size(there)} and at least {listed(parts)} will come, together "
            f"more than {format_size(budget)}; what helps: a larger budget, a smaller --keep than {choice}, or fewer "
            "trials (--only)"
        )


def shortage(state: SweepState, store: Storage, choice: str, slots: int) -> str | None:
    """What the disk lacks, None where there is room."""
    parts, free = forecast(state, store, choice, slots), store.free()
    if sum(parts.values()) <= free:
        return None
    return f"disk: at least {listed(parts)} will come, {format_size(free)} are free"


def check_free(state: SweepState, store: Storage, choice: str, slots: int) -> None:
    """Raise InputError where the disk has no room for what will come."""
    lack = shortage(state, store, choice, slots)
    if lack:
        raise InputError(f"--storage: {lack}; what helps: another disk, a smaller --keep, fewer trials (--only)")


def listed(parts: dict[str, int]) -> str:
    """The sum of a forecast, and its parts."""
    each = ", ".join(f"{name} {format_size(part)}" for name, part in parts.items())
    return f"{format_size(sum(parts.values()))} ({each})"


@dataclass
class Watch:
    """Keeps the storage within its budget while trials run.

    The whole storage is counted once in a while, which also sees the checkpoints of running trials; in between the
    folder of each trial that ends is added. A running trial's checkpoint goes with its end and cannot give way before.
    """

    keeper: state_weights.Keeper
    budget: int | None
    size: int = 0
    """Bytes: never less than the storage has, but for what running trials wrote since it was counted."""
    due: float = 0.0
    """When the whole is counted next (monotonic)."""
    why: str | None = None
    """Why no further trial may begin: for the rest of this start, for Tune asks no more once it was told so."""

    def tick(self) -> str | None:
        """Between two ends, as often as one likes: returns `why`."""
        if self.budget is not None and self.why is None and time.monotonic() >= self.due:
            self._count(self.budget)
        return self.why

    def ended(self, study: str, trial_id: str) -> str | None:
        """After a trial of a study: returns `why`."""
        self.keeper.prune(study, trial_id)
        if self.budget is not None and self.why is None:
            store = self.keeper.store
            self.size += store.size(store.trial(trial_id))
            if self.size > self.budget:
                self._count(self.budget)
        return self.why

    def _count(self, budget: int) -> None:
        """Count the whole storage, and keep fewer weights until it is within the budget."""
        keeper, store, begun = self.keeper, self.keeper.store, time.monotonic()
        self.size = store.size(store.root)
        while self.size > budget and self.why is None:
            if keeper.tighten():
                kept = f"--keep {keeper.choice} from now on"
                print(f"the storage has {format_size(self.size)}, more than {format_size(budget)}: {kept}", flush=True)
                self.size = store.size(store.root)
            else:
                held = f"the storage has {format_size(self.size)}, without any weights kept"
                self.why = f"--disk-budget {format_size(budget)}: {held}"
        now = time.monotonic()
        self.due = now + max(EVERY, (now - begun) / SHARE)
