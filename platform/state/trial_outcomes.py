"""What a storage holds of a sweep's trials: which are done, failed, damaged or left, and what they were made with."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from platform.plan.plan import Plan
from trainables.benchmarks import selection
from trainables.common import fingerprints, provenance
from trainables.common.wording import format_count
from trainables.config.settings import Resources
from trainables.config.shared_artifacts import TaskVectorRecipe, make_task_vector_recipe
from trainables.config.trial import Trial
from trainables.storage.atomic_files import read_json
from trainables.storage.file_names import CONFIG, EVALUATED_STATUSES, FAILED_STATUSES, LOST, RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile, read_sweep

ResultsByTrial = dict[str, dict[str, Any]]
"""result.json by trial id."""
COMPARED_PACKAGES = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""


@dataclass(frozen=True)
class SweepState:
    """A plan beside what the storage holds of its trials."""

    plan: Plan
    done: Mapping[str, str]
    """The outcome of each trial that does not run again, by its id."""
    retried: tuple[str, ...] = ()
    """Ids of trials whose results are set aside, and which run again: a search asks for them first."""
    damaged: tuple[Path, ...] = ()
    """Result files that cannot be read: their trials run again."""
    warnings: tuple[str, ...] = ()
    """What comes from other code than this."""

    @property
    def failed_outcomes(self) -> dict[str, str]:
        """Outcomes of trials that failed and count as done, by id."""
        return {key: one for key, one in self.done.items() if one in FAILED_STATUSES}

    @cached_property
    def remaining(self) -> list[Trial]:
        return [trial for trial in self.plan.trials if trial.id() not in self.done]

    @cached_property
    def number_to_run(self) -> int:
        """How many trials a start has to run: `optuna` stops each study at its budget."""
        studies = self.plan.group_trials_by_study().items()
        return sum(max(0, self.plan.planned[name] - self.count_done_among(trials)) for name, trials in studies)

    def count_done_among(self, trials: Iterable[Trial]) -> int:
        return sum(trial.id() in self.done for trial in trials)

    @cached_property
    def directions(self) -> list[TaskVectorRecipe]:
        """The directions that the trials that are left move along, each once; one from a trial's model makes itself."""
        found = [make_task_vector_recipe(trial) for trial in self.remaining if trial.earlier_trial_id is None]
        return list({made.id(): made for made in found if made is not None}.values())

    def warning(self) -> str | None:
        """Return in one line what is odd in the rows and what other code made; None if nothing."""
        return ". ".join((*self.plan.warnings, *self.warnings)) or None


def read_sweep_state(plan: Plan, store: Storage, retry: tuple[str, ...] = ()) -> SweepState:
    """Read what the storage holds of a plan; trials whose outcome is one of `retry`, or that were lost, run again."""
    plan = add_recorded_trials_to_plan(plan, store)
    trials = {trial.id(): trial for trial in plan.trials}
    store.download_sweeps_and_results(trials)
    results, damaged = read_trial_results(trials, store)
    outcomes = {key: result["status"] for key, result in results.items()}
    retried = tuple(key for key, status in outcomes.items() if status in (*retry, LOST))
    done = {key: status for key, status in outcomes.items() if status not in (*retry, LOST)}
    other = describe_code_change(results.values(), "result", "numbers may differ from new ones, --new makes them again")
    state = SweepState(plan, done, retried, tuple(damaged), other)
    return add_shared_artifact_warnings(state, store)


def add_recorded_trials_to_plan(plan: Plan, store: Storage, *, every: bool = False) -> Plan:
    """Return a plan with the trials in its ranges that earlier starts began: the sweep's file lists them.

    `every`: with all trials of its splits, also of studies that this start leaves out, and with the file's selection
    rule, as reports and status have them.
    """
    if not (plan.has_ranges or every):
        return plan
    store.download_sweeps_and_results()
    known, recorded = {trial.id() for trial in plan.trials}, []
    file = store.sweep(plan.sweep.name, plan.hash)
    sweep = read_sweep(file) if file.exists() else None
    listed = sweep.trials if sweep else ()
    store.download_sweeps_and_results(listed)
    for key in (key for key in listed if key not in known):
        config = read_json(store.trial(key) / CONFIG)
        with contextlib.suppress(ValidationError):  # of other custom methods than are here
            trial = Trial.model_validate(config)
            space = plan.spaces.get(trial.study())
            if every and trial.benchmark.split in {ref.split for ref in plan.references}:
                recorded.append(trial)
            elif space and space.has_ranges and (found := space.find_same_trial(trial)):
                recorded.append(found)
    rule = sweep.selection if sweep and every else plan.sweep.selection
    settings = plan.sweep.model_copy(update={"selection": rule})
    return replace(plan, sweep=settings, trials=(*plan.trials, *recorded))


def add_shared_artifact_warnings(state: SweepState, store: Storage) -> SweepState:
    """Return the state with the warnings of what its trials share, where other code made that."""
    files = [store.evaluation(ref.evaluation) / RESULT for ref in state.plan.references]
    files += [store.model(recipe.id()) / fingerprints.RECIPE_FILE for recipe in state.plan.recipes]
    files += [store.direction(made.id()) / RESULT for made in state.directions]
    advice = f"trials start from or are compared with these; to make them again, move {store.root}/shared away"
    documents = [store.read_json(file) or {} for file in files if store.exists(file)]
    return replace(state, warnings=(*state.warnings, *describe_code_change(documents, "shared artifact", advice)))


def read_target_evaluations(plan: Plan, store: Storage) -> dict[str, dict[str, Any]]:
    """Return the target model's evaluation on each split, empty where there is none."""
    return {ref.split: store.read_evaluation(ref.evaluation) or {} for ref in plan.references if ref.role == "original"}


def read_target_utilities(plan: Plan, store: Storage) -> dict[str, float | None]:
    """Return the target model's utility on each split, on the rows that the selection rule goes by."""
    name, rule = plan.sweep.benchmark.name, plan.sweep.selection
    return {
        split: selection.pick_utility(found, name, rule)
        for split, found in read_target_evaluations(plan, store).items()
    }


def read_trial_results(trial_ids: Iterable[str], store: Storage) -> tuple[ResultsByTrial, list[Path]]:
    """Return the results by trial id, and the files of results that cannot be read: their trials run again."""
    read = {key: store.result(key) for key in trial_ids}
    damaged = [store.trial(key) / RESULT for key, result in read.items() if result is None and store.has_result(key)]
    return {key: result for key, result in read.items() if result is not None}, damaged


def count_trials_by_outcome(sweep: SweepFile, store: Storage) -> dict[str, int]:
    """Count a manifest's trials by outcome, also those that no trial has; `missing` have no result yet."""
    found = Counter((store.result(key) or {"status": "missing"})["status"] for key in sweep.trials)
    kinds = (*EVALUATED_STATUSES, "diverged", *FAILED_STATUSES, "missing")
    return {"total": len(sweep.trials), **dict.fromkeys(kinds, 0), **found}


def normalise_failure_cause(result: dict[str, Any]) -> str:
    """Return the error's first line with numbers, addresses and ids masked: equal failures have equal texts."""
    message = (result.get("error") or {}).get("message", result["status"])
    return re.sub(r"\b(0x)?[0-9a-f]*\d[0-9a-f]*\b", "#", message.splitlines()[0] if message else "")


def count_trial_gpus(resources: Resources) -> float:
    """Return the GPUs of a trial; a rank without a GPU counts as one."""
    return resources.ranks * (resources.gpus or 1)


def describe_code_change(documents: Iterable[Mapping[str, Any]], noun: str, advice: str) -> tuple[str, ...]:
    """Return how many of these were made by other code or versions than this checkout's; nothing if none was."""
    counts = Counter(found for document in documents if (found := _find_difference(document)))
    if not counts:
        return ()
    counted = "; ".join(f"{count} at {difference}" for difference, count in counts.most_common())
    here = _describe_code(provenance.collect_provenance())
    return (f"{format_count(counts.total(), noun)} made by other code than {here}: {counted}; {advice}",)


def _find_difference(made: Mapping[str, Any]) -> str | None:
    """Return what something was made with unlike this checkout, its custom methods' code included; None if nothing."""
    versions, config = made.get("versions"), made.get("config") or {}
    if not versions:
        return None
    here = provenance.collect_provenance(str(config.get("method")), str(config.get("rectifier", {}).get("name")))
    parts = [] if made.get("code") == here["code"] else [_describe_code(made)]
    parts += [f"{one} {versions.get(one)}" for one in COMPARED_PACKAGES if versions.get(one) != here["versions"][one]]
    return ", ".join(parts) or None


def _describe_code(made: Mapping[str, Any]) -> str:
    return f"commit {made.get('commit') or 'unknown'}, code {made.get('code') or 'unknown'}"
