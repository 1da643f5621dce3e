"""The end of a sweep on one's own rows: the trial that the rule chooses, written as a verified model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from platform.plan.plan import Plan
from platform.state.trial_outcomes import planned_utilities
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage, set_aside


def export_chosen_trial(plan: Plan, store: Storage, print_line: Callable[[str], None]) -> None:
    """Export the chosen trial of each split to STORAGE/exports/ID, once; print where, or why there is none."""
    utilities, rule = planned_utilities(plan, store), plan.sweep.selection
    for split in dict.fromkeys(trial.benchmark.split for trial in plan.trials):
        trials = {trial.id(): trial for trial in plan.trials if trial.benchmark.split == split}
        results = {key: store.result(key) or {} for key in trials}
        measured = selection.candidates(results, plan.sweep.benchmark.name, rule)
        chosen = selection.pick(measured, utilities.get(split), rule)
        if chosen is None:
            print_line("recommended: no trial has finished")
            continue
        if chosen.utility <= 0 and rule.rule != "highest_removal":
            none = f"none of {len(measured)} trials, the utility of each is 0; give more or other retain rows"
            print_line(f"recommended: {none}")
            continue
        trial, fallback = trials[chosen.key], selection.explain_fallback(utilities.get(split), rule)
        outcome = benchmarks.describe_goals(
            trial.benchmark.name, selection.metrics_of(results[chosen.key], rule, reported=True)
        )
        why = f"It is the choice among the {len(measured)} evaluated trials of a start of sweep {plan.name}: "
        why += selection.describe_rule(rule) + (f". Here {fallback}." if fallback else ".")
        shown = f"{plan.label(trial)} ({'; '.join(filter(None, [outcome, fallback]))})"
        print_line(f"recommended: {shown}, {_export(trial, why, plan, store)}")


def _export(trial: Trial, why: str, plan: Plan, store: Storage) -> str:
    """Export a trial if its folder is not there; return where the folder is, or why it cannot be written."""
    import ray
    import ray.exceptions

    from trainables.trial.export import model_folder
    from trainables.workers import model_export

    folder = store.root / "exports" / trial.id()
    if store.exists(folder):
        store.fetch(folder)
    shown = f"model: {store.uri(folder) if store.is_remote else folder}"
    if _is_current(folder / model_folder.FACTS, store.result(trial.id()) or {}):
        return shown
    if folder.exists():
        shown += f" (the one of an earlier run is in {set_aside([folder], store)})"
    make: Any = ray.remote(model_export.make_export).options(num_cpus=1, num_gpus=min(1, plan.sweep.resources.gpus))
    try:
        ray.get(make.remote(trial.id(), store.location, str(folder), why, plan.sweep.selection))
    except ray.exceptions.RayTaskError as error:
        return f"not exported: {error.cause}"
    return shown


def _is_current(facts: Path, result: Mapping[str, Any]) -> bool:
    """Return whether a folder is of this run of its trial: the same trial may have been run again."""
    made = (atomic_files.read_json(facts) or {}).get("made_with", {})
    return made.get("started") == result.get("started")
