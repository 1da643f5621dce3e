"""Which of a study's trials, or a trial's steps, is best, and whether to ship it: one answer for all; no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge
from statistics import mean
from typing import Any

from trainables import benchmarks
from trainables.config.settings import Selection
from trainables.storage.file_names import EVALUATED_STATUSES

ResultsByKey = Mapping[str, Mapping[str, Any]]
MIN_SHARE_TO_SHIP = 0.1
"""The share of what the target model has that a choice removes at least; less is as good as chance."""


@dataclass(frozen=True)
class Candidate:
    """What a rule looks at, more being better in both; `removal` is None where it was not measured."""

    key: str
    removal: float | None
    utility: float


def make_candidate(key: str, benchmark: str, metrics: Mapping[str, Any]) -> Candidate | None:
    """Return a result as a candidate: the mean gain of the goals of removal, and that of retention; else None."""
    goals = benchmarks.get_benchmark(benchmark).GOALS
    if metrics.get(goals[-1].metric) is None:
        return None
    known = [(goal, value) for goal in goals if (value := metrics.get(goal.metric)) is not None]
    *removal, utility = (goal.orient_value(value) for goal, value in known)
    return Candidate(key, mean(removal) if len(removal) == len(goals) - 1 else None, float(utility))


def pick_half_metrics(document: Mapping[str, Any], chosen: Selection, *, reported: bool = False) -> Mapping[str, Any]:
    """Return the metrics that a choice is made by, or that are reported of it; none where it has no halves to go by."""
    if not chosen.halves:
        return document.get("metrics") or {}
    return (document.get("halves") or ({}, {}))[reported]


def pick_utility(document: Mapping[str, Any], benchmark: str, chosen: Selection) -> float | None:
    return pick_half_metrics(document, chosen).get(benchmarks.get_benchmark(benchmark).GOALS[-1].metric)


def find_pareto_front_ids(points: Mapping[str, tuple[float, ...]]) -> list[str]:
    """Return the ids of the points that no other one beats: at least as good in every goal and better in one."""
    front: list[str] = []
    for key in sorted(points, key=lambda key: points[key], reverse=True):  # what beats a point comes before it
        if not any(points[other] != points[key] and all(map(ge, points[other], points[key])) for other in front):
            front.append(key)
    return front


def list_candidates(results: ResultsByKey, benchmark: str, chosen: Selection) -> list[Candidate]:
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


def pick_best_candidate(candidates: Iterable[Candidate], original: float | None, chosen: Selection) -> Candidate | None:
    """Return the candidate that the rule chooses, None of none. `original`: the target model's utility.

    Ties go to the higher other value, then to the lower key. Without a measured removal or a bar, the utility decides.
    """
    ordered = sorted(candidates, key=lambda one: one.key)
    measured = [one for one in ordered if one.removal is not None]
    if chosen.rule == "utility_floor":
        floor = chosen.share * original if original is not None and original > 0 else float("inf")
        measured = [one for one in measured if one.utility >= floor]
    if chosen.rule != "highest_utility" and measured:
        return max(measured, key=lambda one: (one.removal or 0.0, one.utility))
    unmeasured = float("-inf")
    return max(ordered, key=lambda one: (one.utility, unmeasured if one.removal is None else one.removal), default=None)


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


@dataclass(frozen=True)
class ShippingVerdict:
    """`key`: the chosen trial, if there is one. `reason`: why not to ship it, or empty. `outcome`: removed and kept.

    `doubt`: why not to ship it yet, though its model is exported for people to look at.
    """

    key: str | None
    reason: str = ""
    outcome: str = ""
    doubt: str = ""

    def describe(self, trial: str) -> str:
        """Return the verdict as a sentence; `trial`: what to call the chosen one."""
        if self.key is None:
            return f"No verdict: {self.reason}."
        if self.reason:
            return f"Ship none: {self.reason}. The nearest is {trial}: {self.outcome}."
        if self.doubt:
            return f"Ship none yet: {self.doubt}. The nearest is {trial}: {self.outcome}."
        return f"Ship {trial}: {self.outcome}."


def choose_and_judge_trial(
    benchmark: str, rule: Selection, results: ResultsByKey, target: Mapping[str, Any]
) -> ShippingVerdict:
    """Return the verdict on trials, by id, of one split; `target`: the evaluation of their target model, or empty."""
    kind, utility = benchmarks.get_benchmark(benchmark), pick_utility(target, benchmark, rule)
    chosen = pick_best_candidate(list_candidates(results, benchmark, rule), utility, rule)
    nothing = kind.explain_nothing_to_remove(target.get("metrics") or {})
    if chosen is None:
        measured = any(one.get("metrics") for one in results.values())
        why = "no utility could be measured; give more or other retain rows"
        return ShippingVerdict(None, nothing or (why if measured else "no trial has finished with a result"))
    now, before = (dict(pick_half_metrics(one, rule, reported=True)) for one in (results[chosen.key], target))
    told = kind.describe_outcome(now, before) or benchmarks.format_goal_values(benchmark, now)
    known = make_candidate("", benchmark, pick_half_metrics(target, rule))
    shares = [one.removal for one in (chosen, known) if one and one.removal is not None]  # of own rows: said, negative
    little = kind.name == "own" and len(shares) == 2 and shares[0] < shares[1] / 2
    doubt = "most is still there; other settings or a lower selection.share may remove more" if little else ""
    outcome = "; ".join(filter(None, (told, explain_missing_utility_bar(utility, rule))))
    return ShippingVerdict(chosen.key, nothing or _find_fault(chosen, known, rule), outcome, doubt)


def _find_fault(chosen: Candidate, target: Candidate | None, rule: Selection) -> str:
    """Return what the chosen trial lacks: as it was chosen, every other one lacks it, too."""
    if rule.rule != "highest_removal" and chosen.utility <= 0:
        return "the utility is 0; give more or other retain rows"
    if target is None:
        return ""
    if rule.rule == "utility_floor" and chosen.utility < rule.share * target.utility:
        return f"less than {rule.share:.0%} of the target model's utility is kept"
    if chosen.removal is None or target.removal is None:
        return ""
    removed = chosen.removal - target.removal
    if removed <= 0:
        return "nothing was removed"
    enough = removed >= MIN_SHARE_TO_SHIP * abs(target.removal) - 1e-9
    return "" if enough else f"less than {MIN_SHARE_TO_SHIP:.0%} was removed"
