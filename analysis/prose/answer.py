"""A report's first sentences: whether GRU improved the trade-off, by how much and where not, and how far that holds."""

from __future__ import annotations

from collections.abc import Hashable
from statistics import mean
from typing import Any

import pandas as pd

from analysis.labels import join_names, method_label, number, split_label
from analysis.load.goals import Goals
from analysis.stats import calibration, hypervolume, significance
from analysis.stats.selection import STUDY
from trainables.benchmarks import Goal
from trainables.config.settings import Selection

MOST = 8
"""So many significant differences are listed; the details have all."""


def change_signs(row: dict[Hashable, Any], goals: Goals) -> tuple[int, ...] | None:
    """Return for every goal -1, 0 or 1: worse, no clear change, better with GRU. None where one is not known."""
    changes = [_change_sign(row, goal) for goal in goals.compared]
    return None if any(change is None for change in changes) else tuple(change or 0 for change in changes)


def _change_sign(row: dict[Hashable, Any], goal: Goal) -> int | None:
    """Return the direction of a change; 0 where it is too small to count, or seeds leave the direction open.

    They do so where the 95 % interval holds 0; below the seeds that an interval takes, where not all moved one way.
    """
    change = row[f"{goal.metric}_difference"]
    if pd.isna(change):
        return None
    low, high, gains = (row[f"{goal.metric}_{name}"] for name in ("low", "high", "gains"))
    if pd.isna(low):
        low, high = (min(gains), max(gains)) if gains else (0.0, 0.0)
    if abs(change) < resolution(goal) or low <= 0 <= high:
        return 0
    return 1 if goal.gain(change) > 0 else -1


def resolution(goal: Goal) -> float:
    """Return the least change that counts: one in the last digit that a line of progress shows."""
    return float(10**-goal.digits)


def summarise(comparison: pd.DataFrame, goals: Goals) -> str:
    """Return in how many comparisons GRU improved the trade-off, traded one goal for another, or worsened it."""
    kinds = [kind for row in comparison.to_dict("records") if (kind := change_signs(row, goals)) is not None]
    if not kinds:
        return "GRU's effect on the trade-off cannot be judged: no comparison has all goals on both sides."
    better = sum(min(kind) >= 0 < max(kind) for kind in kinds)
    worse = sum(max(kind) <= 0 > min(kind) for kind in kinds)
    traded = sum(min(kind) < 0 < max(kind) for kind in kinds)
    rest = [(traded, "traded one goal for another in"), (worse, "worsened it in")]
    rest += [(len(kinds) - better - traded - worse, "clearly changed nothing in")]
    others = [f"{text} {count}" for count, text in rest if count]
    start = f"GRU improved the trade-off (a goal better, none worse) in {better or 'none'} of {len(kinds)} comparisons"
    return ", ".join([start, *others[:-1]]) + (f" and {others[-1]}" if others else "") + "."


def explain_counting(goals: Goals) -> str:
    """Return which changes are called better or worse."""
    least = join_names(f"{resolution(goal):g} in {goal.short}" for goal in goals.compared)
    return (
        f"A change counts from {least} on, and where all seeds that both sides have moved the same way (from "
        f"{significance.LEAST} seeds on: where its 95% interval does not hold 0)."
    )


def count_kept(comparison: pd.DataFrame, goals: Goals, rule: Selection) -> str:
    """Return on how many chosen settings each side keeps the utility that the rule asks for; empty without a bar."""
    if rule.rule != "utility_floor" or any(comparison["bar_none"].isna() | comparison["bar_gru"].isna()):
        return ""
    gru, plain = (int(sum(comparison[f"kept_{side}"])) for side in ("gru", "none"))
    share = f"At least {rule.share:.0%} of the original model's {goals.retention.short}"
    return f"{share} is kept in {gru} of {len(comparison)} with GRU, in {plain} without it."


def describe_amounts(rows: pd.DataFrame, goals: Goals) -> str:
    """Return by how much the goals changed on one split: `FQ changed by -1.0000 (GA) to +4.0000 (GD)`."""
    texts = []
    for goal in goals.compared:
        known = rows.dropna(subset=[f"{goal.metric}_difference"]).sort_values(f"{goal.metric}_difference")
        ends = [
            f"{row[f'{goal.metric}_difference']:+.4f} ({method_label(row['method'])})"
            for row in known.to_dict("records")
        ]
        if ends:
            name = goal.short if goal.best == "highest" else f"{goal.short} (less is better)"
            texts.append(f"{name} by {ends[0]}" + (f" to {ends[-1]}" if len(ends) > 1 else ""))
    return f"With GRU the chosen setting changes {join_names(texts)}." if texts else ""


def describe_tests(tests: pd.DataFrame, goals: Goals) -> str:
    """Return what seeds say: nothing below five on both sides, from there on the outcome of the paired tests."""
    if tests.empty:
        return ""
    tested = tests.dropna(subset=["p"])
    if tested.empty:
        least = significance.LEAST
        most = max(tests["n"])
        why = f"there are at most {most}" if most < least else "where there are as many, they all differ alike"
        return f"No difference is called significant here: that takes {least} seeds on both sides, and {why}."
    sure = tested.loc[tested["adjusted"] < significance.LEVEL].sort_values("adjusted", kind="stable")
    low, high = min(tested["n"]), max(tested["n"])
    seeds = f"{low}" if low == high else f"{low} to {high}"
    text = (
        f"{len(sure)} of {len(tested)} differences are significant at {significance.LEVEL:.0%} "
        f"(two-sided paired t tests over n = {seeds} seeds, p adjusted by Holm for {len(tested)} tests)"
    )
    listed = [_describe_test(row, goals) for row in sure.head(MOST).to_dict("records")]
    text += f": {'; '.join(listed)}" if listed else ""
    text += f"; and {len(sure) - MOST} more" if len(sure) > MOST else ""
    fewer = len(tests) - len(tested)
    untested = (
        f" {fewer} more rest on fewer than {significance.LEAST} seeds, or on seeds that all differ alike: not tested."
    )
    return f"{text}.{untested if fewer else ''}"


def _describe_test(row: dict[Hashable, Any], goals: Goals) -> str:
    goal = next(goal for goal in goals.compared if goal.metric == row["metric"])
    side = "better" if goal.gain(row["difference"]) > 0 else "worse"
    p = "< 0.0001" if row["adjusted"] < 1e-4 else f"= {row['adjusted']:.2g}"
    return f"{goal.short} of {method_label(row['method'])} on {row['split']} ({side} with GRU, p {p})"


def describe_areas(runs: pd.DataFrame, references: pd.DataFrame, goals: Goals) -> list[str]:
    """Return one sentence a split on the hypervolume of the Pareto front with and without GRU."""
    return [_describe_area(row, goals) for row in hypervolume.table(runs, references, goals).to_dict("records")]


def _describe_area(row: dict[Hashable, Any], goals: Goals) -> str:
    plain, gru = row["volume_none"], row["volume_gru"]
    tried, plainly = row["settings_gru"], row["settings_none"]
    settings = f"{tried} settings each way" if tried == plainly else f"{tried} settings with and {plainly} without it"
    unequal = "" if tried == plainly else "; the side with more settings has the better chance"
    change = f" ({gru / plain - 1:+.0%})" if plain else ""
    return (
        f"On {split_label(row['split'])}, the Pareto front of all settings of {_methods(row['methods'])} covers "
        f"{number(gru, 3)} with GRU and "
        f"{number(plain, 3)} without it{change}, as hypervolume in {hypervolume.unit(goals)} beyond the target model's "
        f"{goals.x_short} of {number(row['reference'], 2)} and {goals.retention.short} 0: {settings}{unequal}."
    )


def _methods(count: int) -> str:
    """Return `the 5 methods run both ways`: one that was run in one way only would decide between the two."""
    return f"the {count} methods run both ways" if count > 1 else "the one method run both ways"


def list_beaten(chosen: pd.DataFrame, references: pd.DataFrame, goals: Goals) -> str:
    """Return which chosen settings are no better than the original model on any goal; empty where none is.

    A change between two such settings is no useful unlearning, however large.
    """
    originals = references.loc[references["role"] == "original"].set_index("split")
    lost: dict[str, list[str]] = {"gru": [], "none": []}
    for row in chosen.to_dict("records"):
        side, split = str(row["rectifier.name"]), row["benchmark.split"]
        if side not in lost or split not in originals.index:
            continue
        gains = [goal.gain(row[goal.metric]) - goal.gain(originals.at[split, goal.metric]) for goal in goals.compared]
        if all(gain <= 0 for gain in gains):
            lost[side].append(f"{method_label(row['method'])} on {split}")
    parts = [
        f"{len(lost[side])} of {sum(chosen['rectifier.name'] == side)} {name} ({', '.join(lost[side])})"
        for side, name in (("gru", "with GRU"), ("none", "without"))
        if lost[side]
    ]
    if not parts:
        return ""
    found = " and ".join(parts)
    return (
        f"No better than the original model on any goal, so that a change among them is no useful unlearning: {found}."
    )


def compare_at_equal_utility(runs: pd.DataFrame, references: pd.DataFrame, goals: Goals, rule: Selection) -> list[str]:
    """Return one sentence a split on FQ where both sides were mixed back to the same MU (UWC)."""
    trials = calibration.chosen_trials(runs, references, rule) if goals.benchmark == "tofu" else runs.head(0)
    if trials.empty:
        return []
    found = calibration.targets(trials).merge(trials[["id", *STUDY]], on="id")
    return [text for split, rows in found.groupby(STUDY[0]) if (text := _compare_pairs(str(split), rows))]


def _compare_pairs(split: str, found: pd.DataFrame) -> str:
    """Return how many pairs of a method and target GRU is better in; empty where nothing has both sides."""
    pairs, left_out, seeds, shares = [], 0, set(), set()
    for _, rows in found.groupby(["method", "target"], sort=False):
        method, target = rows.iloc[0][["method", "target"]]
        sides = {side: group for side, group in rows.groupby("rectifier.name") if side in ("none", "gru")}
        if len(sides) < 2:
            continue
        shares.add(target)
        if not all(rows["reached"]) or any(rows["unmixed"]) or any(rows["forget_quality"].isna()):
            left_out += 1
            continue
        seeds |= {len(group) for group in sides.values()}
        means = {side: round(mean(group["forget_quality"]), 4) for side, group in sides.items()}
        pairs.append((method_label(str(method)), target, round(means["gru"] - means["none"], 4)))
    if not shares:
        return ""
    at = join_names(f"{share:.0%}" for share in sorted(shares))
    start = f"At equal utility on {split_label(split)} (UWC: mixed back to {at} of the original model's MU)"
    rest = f" {left_out} of {left_out + len(pairs)} pairs are left out: a side missed its target, needed no mixing, or"
    rest += " has no FQ."
    if not pairs:
        return f"{start} no pair can be compared.{rest}"
    return f"{start} {_describe_pairs(pairs)} (n = {'/'.join(map(str, sorted(seeds)))}).{rest if left_out else ''}"


def _describe_pairs(pairs: list[tuple[str, float, float]]) -> str:
    """Return `FQ is higher with GRU in 2 of 3 pairs and lower in 1: GA -1.0000 to +2.0000`."""
    more, less = sum(gain > 0 for *_, gain in pairs), sum(gain < 0 for *_, gain in pairs)
    ties = f", equal in {len(pairs) - more - less}" if more + less < len(pairs) else ""
    spans = []
    for method in dict.fromkeys(method for method, *_ in pairs):
        gains = sorted(gain for name, _, gain in pairs if name == method)
        spans.append(f"{method} {gains[0]:+.2f}" + (f" to {gains[-1]:+.2f}" if len(gains) > 1 else ""))
    return f"FQ is higher with GRU in {more} of {len(pairs)} pairs, lower in {less}{ties} ({'; '.join(spans)})"
