"""Which trials keep their weights: the Pareto set of their study as it moves, the best, all or none."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import benchmarks, selection, storage
from trainables.config import Selection, Trial
from trainables.errors import InputError, closest
from trainables.storage import Storage

if TYPE_CHECKING:
    from platform.plan import Plan

CHOICES = ("pareto", "best", "all", "none")
"""`best` is the trial that the sweep's selection rule chooses; `pareto` keeps it beside the front."""
STRICTER = ("all", "pareto", "best", "none")
"""Each keeps less than the one before."""
WEIGHTS = "weights"

Point = tuple[str, *tuple[float, ...]]
"""Trial id, and the benchmark's goals turned so that more is better, retention last: on TOFU FQ and MU."""
Results = Mapping[str, Mapping[str, Any]]
"""result.json by trial id."""


def check(choice: str) -> str:
    if choice not in CHOICES:
        raise InputError(f"--keep: unknown choice '{choice}'; {closest(choice, CHOICES)}")
    return choice


def utilities(
    references: Iterable[Mapping[str, Any]], store: Storage, benchmark: str, rule: Selection
) -> dict[str, float | None]:
    """The target model's utility on each split, on the rows that the selection rule goes by.

    `references`: as in the sweep's file.
    """
    found: dict[str, float | None] = {}
    for ref in (ref for ref in references if ref["role"] == "original"):
        document = storage.read_json(store.evaluation(ref["evaluation"]) / storage.RESULT) or {}
        goal = benchmarks.find(benchmark).GOALS[-1]
        found[ref["split"]] = selection.choosing(document, rule).get(goal.metric)
    return found


def planned_utilities(plan: Plan, store: Storage) -> dict[str, float | None]:
    """The same of a plan."""
    return utilities([vars(ref) for ref in plan.references], store, plan.sweep.benchmark.name, plan.sweep.selection)


def prune(trials: Sequence[Trial], store: Storage, choice: str, rule: Selection, original: float | None) -> list[str]:
    """Delete the weights of finished trials of one study that `choice` does not keep; returns their ids.

    `original`: the target model's utility, which the rule needs.
    """
    if choice == "all":
        return []
    results = {trial.id(): store.result(trial.id()) or {} for trial in trials}
    benchmark = trials[0].benchmark.name
    points = points_of(results, benchmark)
    keep: set[str] = set()
    if choice != "none":
        chosen = best(results, benchmark, rule, original)
        keep = {chosen} if chosen else set()
    if choice == "pareto":
        keep |= set(front(points))
    dropped = [key for key, *_ in points if key not in keep and weights(store, key).is_dir()]
    for key in dropped:
        shutil.rmtree(weights(store, key), ignore_errors=True)
    return dropped


@dataclass
class Keeper:
    """Keeps the weights of a sweep's studies down to `choice` as trials end."""

    studies: Mapping[str, Sequence[Trial]]
    store: Storage
    choice: str
    rule: Selection
    utilities: Mapping[str, float | None]
    """The target model's, by split."""

    def prune(self, study: str) -> None:
        trials = self.studies[study]
        prune(trials, self.store, self.choice, self.rule, self.utilities.get(trials[0].benchmark.split))

    def tighten(self) -> bool:
        """Keep less from now on; False where nothing less can be kept."""
        place = STRICTER.index(self.choice) + 1
        if place == len(STRICTER):
            return False
        self.choice = STRICTER[place]
        for study in self.studies:
            self.prune(study)
        return True


def points_of(results: Results, benchmark: str) -> list[Point]:
    """The results that have every goal's value."""
    found = ((key, benchmarks.gains(benchmark, result.get("metrics", {}))) for key, result in results.items())
    return [(key, *gains) for key, gains in found if gains is not None]


def front(points: Sequence[Point]) -> list[str]:
    """Ids of the points that no other one beats: at least as good in every goal and better in one."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: point[1:], reverse=True):  # what beats a point comes before it
        if not any(other[1:] != point[1:] and _covers(other, point) for other in kept):
            kept.append(point)
    return [key for key, *_ in kept]


def _covers(one: Point, other: Point) -> bool:
    return all(a >= b for a, b in zip(one[1:], other[1:], strict=True))


def best(results: Results, benchmark: str, rule: Selection, original: float | None) -> str | None:
    """The id of the trial that the rule chooses, each trial on its own: seeds are averaged in tables, not here."""
    finished = {key: result for key, result in results.items() if result.get("status") in storage.EVALUATED}
    candidates = [
        selection.candidate(key, benchmark, selection.choosing(result, rule)) for key, result in finished.items()
    ]
    chosen = selection.pick([one for one in candidates if one], original, rule)
    return chosen.key if chosen else None


def weights(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS
