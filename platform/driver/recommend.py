"""The end of a sweep on one's own rows: the trial that the rule chooses, written as a verified model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from platform.plan.value import Plan
from platform.state import weights
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.storage.base import Storage, set_aside


def recommend(plan: Plan, store: Storage, print_line: Callable[[str], None]) -> None:
    """Export the chosen trial of each split to STORAGE/exports/ID, once; says where, or why there is none."""
    utilities, rule = weights.planned_utilities(plan, store), plan.sweep.selection
    for split in dict.fromkeys(trial.benchmark.split for trial in plan.trials):
        trials = [trial for trial in plan.trials if trial.benchmark.split == split]
        results = {trial.id(): store.result(trial.id()) or {} for trial in trials}
        measured = weights.candidates(results, plan.sweep.benchmark.name, rule)
        chosen = selection.pick(measured, utilities.get(split), rule)
        if chosen is None:
            print_line("recommended: no trial has finished")
            continue
        if chosen.utility <= 0 and rule.rule != "highest_removal":
            told = f"none of {len(measured)} trials, the utility of each is 0; give more or other retain rows"
            print_line(f"recommended: {told}")
            continue
        trial = next(trial for trial in trials if trial.id() == chosen.key)
        fallback = selection.fallback(utilities.get(split), rule)
        told = benchmarks.outcome(trial.benchmark.name, selection.reported(results[chosen.key], rule))
        told = f"{trial.label()} ({'; '.join(filter(None, [told, fallback]))})"
        print_line(f"recommended: {told}, {_write(trial, _why(plan, len(measured), fallback), plan, store)}")


def _why(plan: Plan, measured: int, fallback: str) -> str:
    """How the trial was chosen, for its card."""
    rule = selection.sentence(plan.sweep.selection)
    told = f"It is the choice among the {measured} evaluated trials of a start of sweep {plan.name}: {rule}."
    return f"{told} Here {fallback}." if fallback else told


def _write(trial: Trial, why: str, plan: Plan, store: Storage) -> str:
    """Where the trial's folder is, written where it was not there, or why it cannot be."""
    import ray
    import ray.exceptions

    from trainables.trial.export import model_folder
    from trainables.workers import shared_artifacts

    folder = store.root / "exports" / trial.id()
    if store.exists(folder):
        store.fetch(folder)
    shown = store.uri(folder) if store.is_remote else str(folder)
    if _current(folder / model_folder.FACTS, store.result(trial.id()) or {}):
        return f"model: {shown}"
    place = set_aside([folder], store) if folder.exists() else None
    told = f"model: {shown}{f' (the one of an earlier run is in {place})' if place else ''}"
    make: Any = ray.remote(shared_artifacts.make_export).options(num_cpus=1, num_gpus=min(1, plan.sweep.resources.gpus))
    try:
        ray.get(make.remote(trial.id(), store.location, str(folder), why, plan.sweep.selection))
    except ray.exceptions.RayTaskError as error:
        return f"not exported: {error.cause}"
    return told


def _current(facts: Path, result: Mapping[str, Any]) -> bool:
    """Whether a folder is of this run of its trial: the same trial may have been run again."""
    made = (files.read_json(facts) or {}).get("made_with", {})
    return made.get("started") == result.get("started")
