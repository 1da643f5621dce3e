"""The end of a sweep on one's own rows: the trial that the rule chooses, written as a verified model folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import platform.keep as keep
from platform.plan import Plan
from trainables import benchmarks, selection
from trainables.config import Trial
from trainables.storage import Storage


def recommend(plan: Plan, store: Storage, say: Callable[[str], None]) -> None:
    """Export the chosen trial of each split to STORAGE/exports/ID, once; says where, or why there is none."""
    utilities = keep.planned_utilities(plan, store)
    for split in dict.fromkeys(trial.benchmark.split for trial in plan.trials):
        trials = [trial for trial in plan.trials if trial.benchmark.split == split]
        results = {trial.id(): store.result(trial.id()) or {} for trial in trials}
        chosen = keep.best(results, plan.sweep.benchmark.name, plan.sweep.selection, utilities.get(split))
        if chosen is None:
            say("recommended: no trial has finished")
            continue
        trial = next(trial for trial in trials if trial.id() == chosen)
        told = f"recommended: {trial.label()} ({benchmarks.outcome(trial.benchmark.name, results[chosen]['metrics'])})"
        say(f"{told}, {_write(plan, trial, trials, store)}")


def _write(plan: Plan, trial: Trial, trials: list[Trial], store: Storage) -> str:
    """Where the trial's folder is, written where it was not there, or why it cannot be."""
    import ray
    import ray.exceptions

    from trainables import export, recipes

    folder = store.root / "exports" / trial.id()
    if (folder / export.FACTS).is_file():
        return f"model: {folder}"
    finished = sum((store.result(one.id()) or {}).get("status") == "finished" for one in trials)
    why = (
        f"It is the choice among the {finished} finished trials of sweep {plan.name}: "
        f"{selection.sentence(plan.sweep.selection)}."
    )
    make: Any = ray.remote(recipes.make_export).options(num_cpus=1, num_gpus=min(1, plan.sweep.resources.gpus))
    try:
        ray.get(make.remote(trial.id(), str(store.root), str(folder), why))
    except ray.exceptions.RayTaskError as error:
        return f"not exported: {error.cause}"
    return f"model: {folder}"
