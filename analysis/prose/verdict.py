"""A report's sentences: what GRU changes, how far to believe it, and which trials gave no result."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from analysis.labels import (
    join_names,
    method_label,
    number,
    order_methods,
    order_rectifiers,
    rectifier_label,
    split_label,
)
from analysis.load.goals import Goals, goals_of_runs
from analysis.prose import answer
from analysis.prose.answer import change_signs
from analysis.stats.selection import STUDY
from analysis.stats.strengths import strength_points, utility_at_equal_quality
from analysis.tables.lists import has_task_vectors
from trainables.benchmarks import Goal
from trainables.config.settings import Selection

WORDS = {"out_of_memory": "out of memory", "missing": "without a result yet"}


def count_trials(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), WORDS.get(str(status), status)) for status, count in numbers.items() if status != "finished"]
    texts = [f"{-count} {word}" for count, word in sorted(rest)]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def describe_trials(runs: pd.DataFrame) -> str:
    """Return what the trials are of: `GA and NPO, alone and w/ GRU, on forget05 (5%)`; empty before any has started."""
    known = runs[STUDY].dropna().drop_duplicates()
    if known.empty:
        return ""
    splits = join_names(map(split_label, sorted(set(known[STUDY[0]]))))
    methods = map(method_label, order_methods(known["method"]))
    kinds = [rectifier_label(kind, "alone") for kind in order_rectifiers(known[STUDY[2]])]
    return f"{join_names(methods)}, {join_names(kinds)}, on {splits}"


def compares_vectors(runs: pd.DataFrame) -> bool:
    """Return whether TRU is to be compared with TV: they are over FQ, which only TOFU has."""
    return goals_of_runs(runs).benchmark == "tofu" and has_task_vectors(runs)


def ask_question(runs: pd.DataFrame) -> str:
    """Return what the sweep can answer."""
    if not compares_vectors(runs):
        return "Does GRU help?"
    if any(runs["rectifier.name"] == "gru"):
        return "Does GRU help, and does TRU keep more than TV?"
    return "Does TRU keep more than TV?"


def write_verdict(
    runs: pd.DataFrame,
    references: pd.DataFrame,
    comparison: pd.DataFrame,
    chosen: pd.DataFrame,
    rule: Selection,
    tests: pd.DataFrame,
) -> list[str]:
    """Return the verdict: on GRU, unless the sweep is about task vectors only, and on TRU against TV.

    The first is the answer as a whole; `tests` are `significance.tests`.
    """
    goals = goals_of_runs(runs)
    about = compare_task_vectors(strength_points(runs, references, rule)) if compares_vectors(runs) else []
    if about and not any(runs["rectifier.name"] == "gru"):
        return about
    if comparison.empty:
        return [*write_headline(comparison, chosen, goals), *about]
    counted = [answer.explain_counting(goals), answer.count_kept(comparison, goals, rule)]
    counted.append(answer.describe_tests(tests, goals))
    found = [answer.summarise(comparison, goals), " ".join(filter(None, counted))]
    found += filter(None, [answer.list_beaten(chosen, references, goals)])
    for sentence, (_, rows) in zip(write_headline(comparison, chosen, goals), comparison.groupby("split"), strict=True):
        found.append(" ".join(filter(None, [sentence, answer.describe_amounts(rows, goals)])))
    found += answer.describe_areas(runs, references, goals)
    return [*found, *answer.compare_at_equal_utility(runs, references, goals, rule), *about]


def write_headline(comparison: pd.DataFrame, chosen: pd.DataFrame, goals: Goals) -> list[str]:
    """Return one sentence a split: for which methods GRU improved which goals."""
    if chosen.empty:
        return ["No trial of this sweep has finished with a result, so nothing can be said yet."]
    if comparison.empty:
        return ["This sweep holds no method both with and without GRU that finished, so GRU cannot be judged from it."]
    sentences = []
    for split, rows in comparison.groupby("split"):
        groups: dict[tuple[int, ...] | None, list[str]] = {}
        for row in rows.to_dict("records"):
            groups.setdefault(change_signs(row, goals), []).append(method_label(row["method"]))
        parts = [
            f"{_describe_kind(kind, goals)} for {len(groups[kind])} of {len(rows)} methods ({', '.join(groups[kind])})"
            for kind in sorted(groups, key=_rank_kind)
        ]
        sentences.append(f"On {split_label(str(split))}, GRU {_join_parts(parts)}.")
    return sentences


def compare_task_vectors(drawn: pd.DataFrame) -> list[str]:
    """Return one sentence a split on TRU against TV, from `strength_points`: who keeps more MU at which FQ."""
    methods = set(drawn.loc[drawn["kind"] == "strength", "method"])
    if not methods:
        return []
    if len(methods) == 1:
        there, absent = ("TRU", "TV") if "tru" in methods else ("TV", "TRU")
        return [f"No trial of {absent} has finished, so {there} cannot be compared with it."]
    return [
        f"On {split_label(str(split))}, {_compare_levels(utility_at_equal_quality(rows, str(split)), _seeds(rows))}."
        for split, rows in drawn.groupby("split")
        if any(rows["kind"] == "strength")
    ]


def _seeds(drawn: pd.DataFrame) -> str:
    """Return how many seeds the strengths of a split rest on: `n = 1`, or `n = 1 to 3`."""
    seeds = drawn.loc[drawn["kind"] == "strength", "n"].astype(int)
    return f"n\u00a0=\u00a0{seeds.min()}" + (f" to {seeds.max()}" if seeds.max() > seeds.min() else "")


def _compare_levels(levels: pd.DataFrame, seeds: str) -> str:
    """Return `of 6 measured FQs that TRU and TV both reach TRU keeps more MU at 4 ...`, compared as printed."""
    if levels.empty:
        return "TRU and TV reach no FQ above the original model's in common, so neither can be said to keep more MU"
    more, less = sum(levels["tru"] > levels["tv"]), sum(levels["tru"] < levels["tv"])
    ties = f" and the same at {len(levels) - more - less}" if more + less < len(levels) else ""
    last = levels.iloc[-1]
    low, high = number(levels["forget_quality"].iloc[0], 2), number(last["forget_quality"], 2)
    return (
        f"of {len(levels)} measured FQs that TRU and TV both reach ({low} to {high}) TRU keeps more MU at {more}, "
        f"TV at {less}{ties}; at FQ {high}, the highest, MU is {number(last['tru'])} for TRU and {number(last['tv'])} "
        f"for TV ({seeds}, lines between measured strengths)"
    )


def _rank_kind(kind: tuple[int, ...] | None) -> tuple[Any, ...]:
    """Return the place of a kind of change in a sentence: the better first, the unknown last."""
    return (True,) if kind is None else (False, -sum(kind), -sum(map(abs, kind)), [-sign for sign in kind])


def _describe_kind(kind: tuple[int, ...] | None, goals: Goals) -> str:
    """Return `improved FQ and did not clearly change MU`."""
    names = [goal.short for goal in goals.compared]
    if kind is None:
        return f"cannot be judged, for want of {' or '.join(names)} on both sides,"
    if not any(kind):
        return f"clearly changed {'neither' if len(names) == 2 else 'none'} of {join_names(names)}"
    if len(set(kind)) == 1:
        return f"{'improved' if kind[0] > 0 else 'worsened'} {'both ' * (len(names) == 2)}{join_names(names)}"
    parts = []
    for sign, text in ((1, "improved {}"), (-1, "worsened {}"), (0, "did not clearly change {}")):
        found = [name for name, one in zip(names, kind, strict=True) if one == sign]
        parts += [text.format(join_names(found))] if found else []
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _join_parts(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"


def write_detail(row: dict[Hashable, Any], goals: Goals) -> dict[str, str]:
    """Return what GRU changes for one method and split: name, the changes, and how many seeds they rest on."""
    return {
        "method": method_label(row["method"]),
        "split": split_label(row["split"]),
        "text": "; ".join([*(_describe_change(row, goal) for goal in goals.compared), f"{_count_pairs(row, goals)}."]),
    }


def _count_pairs(row: dict[Hashable, Any], goals: Goals) -> str:
    """Return `n = 3`, or how many seeds are in common where the sides differ."""
    plain, gru = int(row["n_none"]), int(row["n_gru"])
    shared = min(int(row[f"{goal.metric}_n"]) for goal in goals.compared)
    if shared == plain == gru:
        return f"n\u00a0=\u00a0{shared}"
    of = f"{plain} plain, {gru} w/ GRU"
    if not shared:
        return f"no seed in common, so means of all: n\u00a0=\u00a0{of}"
    return f"over the n\u00a0=\u00a0{shared} seed{'s' * (shared > 1)} in common of {of}"


def _describe_change(row: dict[Hashable, Any], goal: Goal) -> str:
    """Return `FQ rose by 3.2000, from -7.3000 to -4.1000 (95% interval +1.10 to +5.30, adjusted p = 0.01)`.

    Below the seeds that an interval takes, the single seeds' changes stand in its place.
    """
    name = goal.short if goal.best == "highest" else f"{goal.short} (lower is better)"
    plain, gru, difference = (row[f"{goal.metric}_{side}"] for side in ("none", "gru", "difference"))
    if pd.isna(difference):
        return f"{name} is not known on both sides"
    verb = f"{'rose' if difference > 0 else 'fell'} by {number(abs(difference))}, from {number(plain)} to"
    change = f"{name} {verb if difference else 'stayed at'} {number(gru)}"
    low, high, p, gains = (row[f"{goal.metric}_{side}"] for side in ("low", "high", "p", "gains"))
    if not pd.isna(low):
        tested = "" if pd.isna(p) else f", adjusted p {'< 0.0001' if p < 1e-4 else f'= {p:.2g}'}"
        return f"{change} (95% interval {low:+.{goal.digits}f} to {high:+.{goal.digits}f}{tested})"
    if len(gains) > 1 and any(gains):
        return f"{change} (by seed {', '.join(f'{gain:+.{goal.digits}f}' for gain in gains)})"
    return change
