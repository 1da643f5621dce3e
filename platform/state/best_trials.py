"""Which trials are best: the Pareto front, the one that the selection rule chooses, the utility that it goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import ge
from typing import TYPE_CHECKING, Any

from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.config.settings import Selection
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED

if TYPE_CHECKING:
    from platform.plan.plan import Plan

Point = tuple[str, *tuple[float, ...]]
"""A trial's id and its gain in each goal of the benchmark: more is better, retention is last (TOFU: FQ, MU)."""
Results = Mapping[str, Mapping[str, Any]]
"""result.json by trial id."""


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
