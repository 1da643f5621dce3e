"""Which of a study's trials, or a trial's steps, are best: driver, trial and analysis choose alike; no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge
from statistics import mean
from typing import Any

from trainables import benchmarks
from trainables.config.settings import Selection
from trainables.storage.file_names import EVALUATED_STATUSES

GoalPoint = tuple[str, *tuple[float, ...]]
"""A trial's id and its gain in each goal of the benchmark: more is better, retention is last (TOFU: FQ, MU)."""
Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """What a rule looks at, more being better in both; `removal` is None where it was not measured."""

    key: str
    removal: float | None
    utility: float


def make_candidate(key: str, benchmark: str, metrics: Mapping[str, Any]) -> Candidate | None:
    """Return a result as a candidate: the mean gain of the goals of removal, and that of retention; else None."""
    goals = benchmarks.get_benchmark(benchmark).GOALS
    values = [metrics.get(goal.metric) for goal in goals]
    if values[-1] is None:
        return None
    gains = [None if value is None else goal.upward_value(value) for goal, value in zip(goals, values, strict=True)]
    removal = [gain for gain in gains[:-1] if gain is not None]
    utility = float(goals[-1].upward_value(values[-1]))
    return Candidate(key, mean(removal) if len(removal) == len(gains) - 1 else None, utility)


def pick_half_metrics(document: Mapping[str, Any], chosen: Selection, *, reported: bool = False) -> Mapping[str, Any]:
    """Return the metrics that a choice is made by, or that are reported of it; none where it has no halves to go by."""
    if not chosen.halves:
        return document.get("metrics") or {}
    return (document.get("halves") or ({}, {}))[reported]


def pick_utility(document: Mapping[str, Any], benchmark: str, chosen: Selection) -> float | None:
    return pick_half_metrics(document, chosen).get(benchmarks.get_benchmark(benchmark).GOALS[-1].metric)


def list_goal_gains(results: Results, benchmark: str) -> list[GoalPoint]:
    found = (
        (key, benchmarks.orient_goal_values(benchmark, result.get("metrics", {}))) for key, result in results.items()
    )
    return [(key, *gains) for key, gains in found if gains is not None]


def pareto_front_ids(points: Sequence[GoalPoint]) -> list[str]:
    """Return the ids of the points that no other one beats: at least as good in every goal and better in one."""
    front: list[GoalPoint] = []
    for point in sorted(points, key=lambda point: point[1:], reverse=True):  # what beats a point comes before it
        if not any(other[1:] != point[1:] and all(map(ge, other[1:], point[1:])) for other in front):
            front.append(point)
    return [key for key, *_ in front]


def list_candidates(results: Results, benchmark: str, chosen: Selection) -> list[Candidate]:
    """Return the results that the rule may choose: those with an evaluation, of the rule's seeds where any is."""
    evaluated = {key: result for key, result in results.items() if result.get("status") in EVALUATED_STATUSES}
    asked = [key for key, result in evaluated.items() if chosen.seeds and result["config"]["seed"] in chosen.seeds]
    evaluated = {key: evaluated[key] for key in asked or evaluated}
    found = [make_candidate(key, benchmark, pick_half_metrics(result, chosen)) for key, result in evaluated.items()]
    return [one for one in found if one]


def average_over_seeds(settings: Mapping[str, Sequence[Candidate]]) -> list[Candidate]:
    found = []
    for key, trials in settings.items():
        removal = [one.removal for one in trials if one.removal is not None]
        found.append(Candidate(key, mean(removal) if removal else None, mean(one.utility for one in trials)))
    return found


def pick_candidate(candidates: Iterable[Candidate], original: float | None, chosen: Selection) -> Candidate | None:
    """Return the candidate that the rule chooses, None of none. `original`: the target model's utility.

    Ties go to the higher other value, then to the lower key. Without a measured removal or a bar, the utility decides.
    """
    ordered = sorted(candidates, key=lambda one: one.key)
    measured = [one for one in ordered if one.removal is not None]
    if chosen.rule == "utility_floor":
        floor = chosen.share * original if original is not None and original > 0 else float("inf")
        measured = [one for one in measured if one.utility >= floor]
    if chosen.rule != "highest_utility" and measured:
        return max(measured, key=lambda one: (_removal(one), one.utility))
    return max(ordered, key=lambda one: (one.utility, _removal(one)), default=None)


def explain_missing_utility_bar(original: float | None, chosen: Selection) -> str:
    """Return why the rule has no bar of the target model's utility to go by, empty where it has one or needs none."""
    if chosen.rule != "utility_floor" or (original is not None and original > 0):
        return ""
    known = "not known" if original is None else "0"
    return f"the target model's utility is {known}, so the highest utility is chosen"


def describe_rule(chosen: Selection, removal: str = "removal", utility: str = "utility") -> str:
    """Return the rule in words, for reports and cards; `removal` and `utility` name the benchmark's metrics."""
    rules = {
        "utility_floor": f"the most {removal} among those with at least {chosen.share:.0%} of the target model's "
        f"{utility}; where none has that, the highest {utility}",
        "highest_removal": f"the most {removal}, whatever the {utility}",
        "highest_utility": f"the highest {utility}, whatever the {removal}",
    }
    rows = "the same evaluation rows that are reported, which favours the chosen one"
    if chosen.halves:
        rows = "every other evaluation row, reported on the remaining ones"
    seeds = f"; chosen on seeds {', '.join(map(str, chosen.seeds))}, reported on others, where there are any"
    return f"{rules[chosen.rule]}; ties go to the higher other value; chosen on {rows}{seeds if chosen.seeds else ''}"


def _removal(one: Candidate) -> float:
    return float("-inf") if one.removal is None else one.removal
