"""The disk that a sweep takes: a size as a person writes it, the forecast of a plan, and what gives way at a budget."""

from __future__ import annotations

import re

import platform.budget as budgets
import platform.keep as keep
from platform.plan import BYTES_PER_TRIAL, Plan
from trainables import directions
from trainables.commands import size as told
from trainables.errors import InputError
from trainables.storage import Storage

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


def forecast(plan: Plan, store: Storage, choice: str) -> dict[str, int]:
    """What the rest of a plan writes at least, in bytes; models count where their sizes are known.

    `--keep pareto` is counted as one trial a study. Checkpoints are one trial's, a new one beside the old.
    """
    parts = {"results": BYTES_PER_TRIAL * plan.outstanding}
    shape = budgets.shape_of(plan.sweep, plan.trials[0], {str(store.model(r.id())): r for r in plan.recipes})
    if shape is None or not plan.outstanding:
        return parts
    resources, size = plan.sweep.resources, shape.parameters
    weights = size * (4 if resources.precision == "fp32" else 2)
    missing = sum(not store.there(store.model(recipe.id())) for recipe in plan.recipes)
    vectors = sum(not store.there(directions.folder_of(made, store)) for made in plan.directions())
    left = len({trial.study() for trial in plan.left})
    kept = {"all": plan.outstanding, "pareto": left, "best": left, "none": 0}[choice]
    parts |= {"models made": missing * size * 4, "directions": vectors * size * 4, "weights": kept * weights}
    if resources.checkpoint_every:
        parts["checkpoints"] = 2 * size * CHECKPOINT_BYTES[resources.precision]
    return {name: part for name, part in parts.items() if part}


def check(plan: Plan, store: Storage, choice: str, budget: int | None) -> None:
    """Raise InputError where what is there and what will come exceed the budget."""
    if budget is None:
        return
    parts, there = forecast(plan, store, choice), store.size(store.root)
    if there + sum(parts.values()) > budget:
        raise InputError(
            f"--disk-budget: the storage has {told(there)} and at least {listed(parts)} will come, together more than "
            f"{told(budget)}; what helps: a larger budget, a smaller --keep than {choice}, or fewer trials (--only)"
        )


def shortage(plan: Plan, store: Storage, choice: str) -> str | None:
    """What the disk lacks, None where there is room."""
    parts, free = forecast(plan, store, choice), store.free()
    return f"disk: at least {listed(parts)} will come, {told(free)} are free" if sum(parts.values()) > free else None


def check_free(plan: Plan, store: Storage, choice: str) -> None:
    """Raise InputError where the disk has no room for what will come."""
    lack = shortage(plan, store, choice)
    if lack:
        raise InputError(f"--storage: {lack}; what helps: another disk, a smaller --keep, fewer trials (--only)")


def listed(parts: dict[str, int]) -> str:
    """The sum of a forecast, and its parts."""
    return f"{told(sum(parts.values()))} ({', '.join(f'{name} {told(part)}' for name, part in parts.items())})"


def hold(keeper: keep.Keeper, budget: int | None) -> str | None:
    """Keep fewer weights until the storage is within its budget; returns why no further trial may begin, if so.

    A running trial has one checkpoint, which goes with its end: nothing else of it can give way.
    """
    if budget is None:
        return None
    keeper.store.look_again()
    while (size := keeper.store.size(keeper.store.root)) > budget:
        if not keeper.tighten():
            return f"--disk-budget {told(budget)}: the storage has {told(size)}, without any weights kept"
        print(f"the storage has {told(size)}, more than {told(budget)}: --keep {keeper.choice} from now on", flush=True)
    return None
