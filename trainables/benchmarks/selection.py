"""The selection rule: which candidate speaks for a study's trials or a trial's steps. No torch: the driver, a trial and
the analysis choose alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from trainables import benchmarks
from trainables.config.settings import Selection


@dataclass(frozen=True)
class Candidate:
    """What a rule looks at, more being better in both; `removal` is None where it was not measured."""

    key: str
    removal: float | None
    utility: float


def candidate(key: str, benchmark: str, metrics: Mapping[str, Any]) -> Candidate | None:
    """Return a result as a candidate: the mean over the benchmark's goals of removal, and its goal of retention.

    None where there is no utility: the trial did not come to its evaluation.
    """
    goals = benchmarks.find(benchmark).GOALS
    values = [metrics.get(goal.metric) for goal in goals]
    if values[-1] is None:
        return None
    gains = [None if value is None else goal.gain(value) for goal, value in zip(goals, values, strict=True)]
    removal = [gain for gain in gains[:-1] if gain is not None]
    return Candidate(key, mean(removal) if len(removal) == len(gains) - 1 else None, float(goals[-1].gain(values[-1])))


def metrics_of(document: Mapping[str, Any], chosen: Selection, *, reported: bool = False) -> Mapping[str, Any]:
    """Return the metrics of a result or reference evaluation that a choice is made by, or that are reported of it.

    None where the choice goes by halves of the rows, and the document has no halves.
    """
    if not chosen.halves:
        return document.get("metrics") or {}
    return (document.get("halves") or ({}, {}))[reported]


def pick(candidates: Iterable[Candidate], original: float | None, chosen: Selection) -> Candidate | None:
    """Return the candidate that the rule chooses, None of none. `original`: the target model's utility.

    Ties go to the higher other value, then to the lower key. Where removal or the target model's utility was not
    measured, or that utility is 0 so that any model has its share, `utility_floor` falls back on utility.
    """
    ordered = sorted(candidates, key=lambda one: one.key)
    measured = [one for one in ordered if one.removal is not None]
    if chosen.rule == "utility_floor":
        floor = chosen.share * original if original is not None and original > 0 else float("inf")
        measured = [one for one in measured if one.utility >= floor]
    if chosen.rule != "highest_utility" and measured:
        return max(measured, key=lambda one: (_removal(one), one.utility))
    return max(ordered, key=lambda one: (one.utility, _removal(one)), default=None)


def explain_fallback(original: float | None, chosen: Selection) -> str:
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
    return f"{rules[chosen.rule]}; ties go to the higher other value; chosen on {rows}"


def _removal(one: Candidate) -> float:
    return float("-inf") if one.removal is None else one.removal
