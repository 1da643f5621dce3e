"""Which trials keep their weights (`--keep`): all, the Pareto set of their study, its best or none.

The weights of the others are deleted as soon as a trial's end shows that they are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common.errors import InputError, closest
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.storage.base import EVALUATED, WEIGHTS, Storage

if TYPE_CHECKING:
    from platform.plan.plan import Plan

CHOICES = ("all", "pareto", "best", "none")
"""Each keeps less than the one before. `best` is the trial that the selection rule chooses; `pareto` keeps it, too."""

Point = tuple[str, *tuple[float, ...]]
"""A trial's id and its gain in each goal of the benchmark: more is better, retention is last (TOFU: FQ, MU)."""
Results = Mapping[str, Mapping[str, Any]]
"""result.json by trial id."""


def check_choice(choice: str) -> None:
    if choice not in CHOICES:
        raise InputError(f"--keep: unknown choice '{choice}'; {closest(choice, CHOICES)}")


def target_utilities(
    evaluations: Mapping[str, str], store: Storage, benchmark: str, rule: Selection
) -> dict[str, float | None]:
    """Return the target model's utility on each split, on the rows that the selection rule goes by.

    `evaluations`: the ids of its evaluations by split.
    """
    metric = benchmarks.find(benchmark).GOALS[-1].metric
    documents = {split: store.read_evaluation(key) or {} for split, key in evaluations.items()}
    return {split: selection.metrics_of(document, rule).get(metric) for split, document in documents.items()}


def planned_utilities(plan: Plan, store: Storage) -> dict[str, float | None]:
    """Return the target model's utility on each split of a plan, for the selection rule."""
    evaluations = {ref.split: ref.evaluation for ref in plan.references if ref.role == "original"}
    return target_utilities(evaluations, store, plan.sweep.benchmark.name, plan.sweep.selection)


@dataclass
class Study:
    """The trials of one study, and which of them have weights on disk.

    `target_utility`: the target model's, to which the selection rule compares a trial's.
    """

    trials: Sequence[Trial]
    store: Storage
    rule: Selection
    target_utility: float | None
    points: dict[str, Point] = field(default_factory=dict)
    candidates: dict[str, selection.Candidate] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Trials with weights on disk."""

    def add(self, trial_id: str) -> None:
        """Add the result of a trial, if it has one."""
        results = {trial_id: self.store.result(trial_id) or {}}
        benchmark = self.trials[0].benchmark.name
        self.points |= {point[0]: point for point in goal_points(results, benchmark)}
        self.candidates |= {one.key: one for one in candidates(results, benchmark, self.rule)}
        if self.store.exists(weights_folder(self.store, trial_id)):
            self.kept.add(trial_id)

    def prune(self, choice: str) -> list[str]:
        """Delete the weights of measured trials that `choice` does not keep; return their ids."""
        if choice == "all" or not self.kept:
            return []
        best = selection.pick(self.candidates.values(), self.target_utility, self.rule) if choice != "none" else None
        keep = {best.key} if best else set()
        if choice == "pareto":
            keep |= set(pareto_front(list(self.points.values())))
        dropped = sorted(key for key in self.kept if key in self.points and key not in keep)
        for key in dropped:
            self.store.remove(weights_folder(self.store, key))
        self.kept -= set(dropped)
        return dropped


@dataclass
class Keeper:
    """Reduces the weights of a sweep's studies to `choice` as trials end."""

    studies: Mapping[str, Study]
    store: Storage
    choice: str

    def prune(self, study: str, trial_id: str) -> None:
        """Add a trial that has ended to its study, and drop the weights that are not kept any more."""
        self.studies[study].add(trial_id)
        self.studies[study].prune(self.choice)

    def keep_less(self) -> bool:
        """Keep fewer weights from now on; False if none are kept already."""
        if self.choice == CHOICES[-1]:
            return False
        self.choice = CHOICES[CHOICES.index(self.choice) + 1]
        for study in self.studies.values():
            study.prune(self.choice)
        return True


def make_keeper(plan: Plan, store: Storage, choice: str) -> Keeper:
    """Return the keeper of a plan's studies, which prunes what earlier starts left."""
    utilities, studies = planned_utilities(plan, store), {}
    for name, trials in plan.studies().items():
        utility = utilities.get(trials[0].benchmark.split)
        studies[name] = Study(trials, store, plan.sweep.selection, utility)
        for trial in trials:
            studies[name].add(trial.id())
        studies[name].prune(choice)
    return Keeper(studies, store, choice)


def goal_points(results: Results, benchmark: str) -> list[Point]:
    """Return the points of the results that have every goal's value."""
    found = ((key, benchmarks.goal_gains(benchmark, result.get("metrics", {}))) for key, result in results.items())
    return [(key, *gains) for key, gains in found if gains is not None]


def pareto_front(points: Sequence[Point]) -> list[str]:
    """Return the ids of the points that no other one beats: at least as good in every goal and better in one."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: point[1:], reverse=True):  # what beats a point comes before it
        if not any(other[1:] != point[1:] and all(map(ge, other[1:], point[1:])) for other in front):
            front.append(point)
    return [key for key, *_ in front]


def choose_best(results: Results, benchmark: str, rule: Selection, target_utility: float | None) -> str | None:
    """Return the id of the single trial that the rule chooses. Tables choose among means over seeds instead."""
    chosen = selection.pick(candidates(results, benchmark, rule), target_utility, rule)
    return chosen.key if chosen else None


def candidates(results: Results, benchmark: str, rule: Selection) -> list[selection.Candidate]:
    """Return the results that the rule may choose: those with an evaluation."""
    evaluated = {key: result for key, result in results.items() if result.get("status") in EVALUATED}
    found = [
        selection.candidate(key, benchmark, selection.metrics_of(result, rule)) for key, result in evaluated.items()
    ]
    return [one for one in found if one]


def weights_folder(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS
