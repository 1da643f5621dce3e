"""The disk that a sweep takes: a size as a person writes it, the forecast of a plan, and what a budget removes."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass

from platform.state.kept_weights import Keeper
from platform.state.trial_outcomes import SweepState
from trainables.common.errors import InputError
from trainables.common.wording import format_size
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.training.task_vectors import forget_batches

BYTES_PER_TRIAL = 2 * 2**20
"""Measured on tofu_tiny: 0.4 MB of Parquet and JSON a trial, and its part of the MLflow store."""
MEASURE_SECONDS, MEASURE_SHARE = 20.0, 0.01
"""The whole storage is measured at most so often, and for at most this share of the driver's time."""
CHECKPOINT_BYTES = {"fp32": 16, "bf16": 18}
"""Of a parameter: weights, AdamW's moments and GRU's average in fp32, with bf16 weights beside the fp32 ones."""


def parse_size(text: str | None) -> int | None:
    """Return the bytes of `20GB`, `500 MB` or `1.5TiB`. Raises InputError."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise InputError(f"--disk-budget: '{text}' is no size; write it like 500MB, 20GB or 1.5TB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2].lower() or " "))


def forecast(state: SweepState, store: Storage, choice: str, slots: int) -> dict[str, int]:
    """Return what the rest of a plan writes at least, in bytes; models count if their sizes are known.

    `--keep pareto` counts as one trial a study; models that further requests go on from lie there beside each other.
    Each of `slots` parallel trials has a checkpoint and the next one.
    """
    plan, parts = state.plan, {"results": BYTES_PER_TRIAL * state.outstanding}
    if plan.shape is None or not state.outstanding:
        return parts
    resources, size = plan.sweep.resources, plan.shape.parameters
    weights = size * (4 if resources.precision == "fp32" else 2)
    missing = sum(not store.exists(store.model(recipe.id())) for recipe in plan.recipes)
    vectors = sum(not store.exists(forget_batches.direction_folder(made, store)) for made in state.directions)
    left = len({trial.study() for trial in state.left})
    kept = {"all": state.outstanding, "pareto": left, "best": left, "none": 0}[choice]
    kept = max(kept, *Counter(trial.benchmark.split for trial in state.left if trial.follows).values(), 0)
    parts |= {"models made": missing * size * 4, "directions": vectors * size * 4, "weights": kept * weights}
    if resources.checkpoint_every:
        parts["checkpoints"] = slots * 2 * size * CHECKPOINT_BYTES[resources.precision]
    return {name: part for name, part in parts.items() if part}


def describe_forecast(parts: dict[str, int]) -> str:
    """Return the sum of a forecast, and its parts."""
    each = ", ".join(f"{name} {format_size(part)}" for name, part in parts.items())
    return f"{format_size(sum(parts.values()))} ({each})"


def check_budget(state: SweepState, store: Storage, choice: str, budget: int | None, slots: int) -> None:
    """Raise InputError if the storage and the forecast exceed the budget."""
    if budget is None:
        return
    parts, size = forecast(state, store, choice, slots), store.size(store.root)
    if size + sum(parts.values()) > budget:
        raise InputError(
            f"--disk-budget: the storage has {format_size(size)} and at least {describe_forecast(parts)} will come, "
            f"together more than {format_size(budget)}; what helps: a larger budget, a smaller --keep than {choice}, "
            "or fewer trials (--only)"
        )


def describe_shortage(state: SweepState, store: Storage, choice: str, slots: int) -> str | None:
    """Say what the disk lacks for the forecast, and what helps; None: there is room."""
    parts, free = forecast(state, store, choice, slots), store.free()
    if sum(parts.values()) <= free:
        return None
    lacks = f"at least {describe_forecast(parts)} will come, {format_size(free)} are free"
    return f"disk: {lacks}; what helps: another disk, a smaller --keep, fewer trials (--only)"


@dataclass
class DiskMonitor:
    """Keeps the storage within its budget while trials run.

    The whole storage is measured once in a while; in between the folder of each trial that ends is added.
    """

    keeper: Keeper
    budget: int | None
    size: int = 0
    """Bytes: never less than the storage has, but for what running trials wrote since it was measured."""
    due: float = 0.0
    """When the whole is measured next (monotonic)."""
    reason: str | None = None
    """Why no further trial may begin: for the rest of this start, for Tune asks no more after that."""

    def poll(self) -> str | None:
        """Measure the whole storage if it is time, and keep fewer weights until it is within the budget.

        Return `reason`.
        """
        keeper, store, budget, started = self.keeper, self.keeper.store, self.budget, time.monotonic()
        if budget is None or self.reason is not None or started < self.due:
            return self.reason
        self.size = store.size(store.root)
        while self.size > budget and self.reason is None:
            has, most = f"the storage has {format_size(self.size)}", format_size(budget)
            if keeper.keep_less():
                print(f"{has}, more than {most}: --keep {keeper.choice} from now on", flush=True)
                self.size = store.size(store.root)
            else:
                self.reason = f"--disk-budget {most}: {has}, without any weights kept"
        now = time.monotonic()
        self.due = now + max(MEASURE_SECONDS, (now - started) / MEASURE_SHARE)
        return self.reason

    def trial_ended(self, trial: Trial) -> str | None:
        """Take account of a trial that has ended; return `reason`."""
        self.keeper.trial_ended(trial)
        if self.budget is not None:
            self.size += self.keeper.store.size(self.keeper.store.trial(trial.id()))
            self.due = 0.0 if self.size > self.budget else self.due
        return self.poll()
