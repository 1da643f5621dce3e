"""A report's sentences: what GRU changes, how far to believe it, and which trials gave no result."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from analysis.figures import strengths
from analysis.load import goals
from analysis.load.goals import Goals, listed
from analysis.prose import answer
from analysis.prose.answer import signs
from analysis.prose.caveats import HALVES
from analysis.stats.selection import DEFAULT, STUDY, in_order
from analysis.tables.format import DASH, number, split_label
from analysis.tables.main import WITH, described, method_label, task_vectors
from trainables.benchmarks import Goal
from trainables.config.methods import RECTIFIERS
from trainables.config.settings import Selection
from trainables.storage.base import EVALUATED

WORDS = {"out_of_memory": "out of memory", "missing": "without a result yet"}
SETTINGS = {"gamma": "rectifier.gamma", "tau": "rectifier.tau", "strength": "strength"}


def counts(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), WORDS.get(str(status), status)) for status, count in numbers.items() if status != "finished"]
    texts = [f"{-count} {word}" for count, word in sorted(rest)]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def held(runs: pd.DataFrame) -> str:
    """Return what the trials are of: `GA and NPO, alone and w/ GRU, on forget05 (5%)`; empty before any has started."""
    known = runs[STUDY].dropna().drop_duplicates()
    if known.empty:
        return ""
    splits = listed(map(split_label, sorted(set(known[STUDY[0]]))))
    ordered = in_order(known.assign(**{STUDY[0]: ""}))
    there = sorted(map(str, set(known[STUDY[2]])), key=[*RECTIFIERS, *known[STUDY[2]]].index)
    kinds = [{"none": "alone", **WITH}.get(kind, kind) for kind in there]
    return f"{listed(map(method_label, ordered['method'].unique()))}, {listed(kinds)}, on {splits}"


def compares_vectors(runs: pd.DataFrame) -> bool:
    """Return whether TRU is to be compared with TV: they are over FQ, which only TOFU has."""
    return goals.of(runs).benchmark == "tofu" and task_vectors(runs)


def question(runs: pd.DataFrame) -> str:
    """Return what the sweep can answer."""
    if not compares_vectors(runs):
        return "Does GRU help?"
    if any(runs["rectifier.name"] == "gru"):
        return "Does GRU help, and does TRU keep more than TV?"
    return "Does TRU keep more than TV?"


def sentences(
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
    what = goals.of(runs)
    about = task_vectors_sentences(strengths.points(runs, references, rule)) if compares_vectors(runs) else []
    if about and not any(runs["rectifier.name"] == "gru"):
        return about
    if comparison.empty:
        return [*headline(comparison, chosen, what), *about]
    held = [answer.counted(what), answer.kept(comparison, what, rule), answer.significant(tests, what)]
    told = [answer.overall(comparison, what), " ".join(filter(None, held))]
    told += filter(None, [answer.beaten(chosen, references, what)])
    for sentence, (_, rows) in zip(headline(comparison, chosen, what), comparison.groupby("split"), strict=True):
        told.append(" ".join(filter(None, [sentence, answer.amounts(rows, what)])))
    told += answer.areas(runs, references, what)
    return [*told, *answer.equal_utility(runs, references, what, rule), *about]


def headline(comparison: pd.DataFrame, chosen: pd.DataFrame, what: Goals) -> list[str]:
    """Return one sentence a split: for which methods GRU improved which goals."""
    if chosen.empty:
        return ["No trial of this sweep has finished with a result, so nothing can be said yet."]
    if comparison.empty:
        return ["This sweep holds no method both with and without GRU that finished, so GRU cannot be judged from it."]
    sentences = []
    for split, rows in comparison.groupby("split"):
        groups: dict[tuple[int, ...] | None, list[str]] = {}
        for row in rows.to_dict("records"):
            groups.setdefault(signs(row, what), []).append(method_label(row["method"]))
        parts = [f"{_kind(kind, what)} for {_some(groups[kind], len(rows))}" for kind in sorted(groups, key=_rank)]
        sentences.append(f"On {split_label(str(split))}, GRU {_and(parts)}.")
    return sentences


def task_vectors_sentences(drawn: pd.DataFrame) -> list[str]:
    """Return one sentence a split on TRU against TV, from `strengths.points`: who keeps more MU at which FQ."""
    methods = set(drawn.loc[drawn["kind"] == "strength", "method"])
    if not methods:
        return []
    if len(methods) == 1:
        there, absent = ("TRU", "TV") if "tru" in methods else ("TV", "TRU")
        return [f"No trial of {absent} has finished, so {there} cannot be compared with it."]
    return [
        f"On {split_label(str(split))}, {_against(strengths.at_equal_quality(rows, str(split)), _seeds(rows))}."
        for split, rows in drawn.groupby("split")
        if any(rows["kind"] == "strength")
    ]


def _seeds(drawn: pd.DataFrame) -> str:
    """Return how many seeds the strengths of a split rest on: `n = 1`, or `n = 1 to 3`."""
    seeds = drawn.loc[drawn["kind"] == "strength", "n"].astype(int)
    return f"n\u00a0=\u00a0{seeds.min()}" + (f" to {seeds.max()}" if seeds.max() > seeds.min() else "")


def _against(levels: pd.DataFrame, seeds: str) -> str:
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


def _rank(kind: tuple[int, ...] | None) -> tuple[Any, ...]:
    """Return the place of a kind of change in a sentence: the better first, the unknown last."""
    return (True,) if kind is None else (False, -sum(kind), -sum(map(abs, kind)), [-sign for sign in kind])


def _kind(kind: tuple[int, ...] | None, what: Goals) -> str:
    """Return `improved FQ and did not clearly change MU`."""
    names = [goal.short for goal in what.compared]
    if kind is None:
        return f"cannot be judged, for want of {' or '.join(names)} on both sides,"
    if not any(kind):
        return f"clearly changed {'neither' if len(names) == 2 else 'none'} of {listed(names)}"
    if len(set(kind)) == 1:
        return f"{'improved' if kind[0] > 0 else 'worsened'} {'both ' * (len(names) == 2)}{listed(names)}"
    parts = []
    for sign, text in ((1, "improved {}"), (-1, "worsened {}"), (0, "did not clearly change {}")):
        found = [name for name, one in zip(names, kind, strict=True) if one == sign]
        parts += [text.format(listed(found))] if found else []
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _some(methods: list[str], total: int) -> str:
    return f"{len(methods)} of {total} methods ({', '.join(methods)})"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"


def detail(row: dict[Hashable, Any], what: Goals) -> dict[str, str]:
    """Return what GRU changes for one method and split: name, the changes, and how many seeds they rest on."""
    return {
        "method": method_label(row["method"]),
        "split": split_label(row["split"]),
        "text": "; ".join([*(_change(row, goal) for goal in what.compared), f"{_pairs(row, what)}."]),
    }


def _pairs(row: dict[Hashable, Any], what: Goals) -> str:
    """Return `n = 3`, or how many seeds are in common where the sides differ."""
    plain, gru = int(row["n_none"]), int(row["n_gru"])
    shared = min(int(row[f"{goal.metric}_n"]) for goal in what.compared)
    if shared == plain == gru:
        return f"n\u00a0=\u00a0{shared}"
    of = f"{plain} plain, {gru} w/ GRU"
    if not shared:
        return f"no seed in common, so means of all: n\u00a0=\u00a0{of}"
    return f"over the n\u00a0=\u00a0{shared} seed{'s' * (shared > 1)} in common of {of}"


def _change(row: dict[Hashable, Any], goal: Goal) -> str:
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


def failures(runs: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return, as texts, every trial without a usable result and why; those that have not run come last."""
    metrics = [goal.metric for goal in goals.of(runs).compared]
    rows, hidden = [], [] if task_vectors(runs) else ["strength"]
    for trial in runs.sort_values("status", key=lambda column: column == "missing", kind="stable").to_dict("records"):
        if trial["status"] in EVALUATED and not any(pd.isna(trial[metric]) for metric in metrics):
            continue
        fields = {"Trial": trial["id"], "Split": text(trial["benchmark.split"])}
        known = dict.fromkeys(("Method", *SETTINGS), DASH)  # nothing is known of a trial that was never started
        if not pd.isna(trial["method"]):
            known = described(trial["method"], trial["rectifier.name"], *(trial[field] for field in SETTINGS.values()))
        end = {
            "Seed": text(trial["seed"]),
            "Status": trial["status"].replace("_", " "),
            "Cause": _cause(trial, goals.of(runs), rule),
        }
        rows.append(fields | known | end)
    return pd.DataFrame(rows, dtype="str").drop(columns=hidden, errors="ignore")


def unlisted(failed: pd.DataFrame) -> str:
    """Return `and 1950 more: 1900 missing, 50 failed` of the rows of `failures` that a page does not list."""
    numbers = failed["Status"].value_counts()
    return f"and {len(failed):,} more: {', '.join(f'{count:,} {status}' for status, count in numbers.items())}"


def _cause(trial: dict[Hashable, Any], what: Goals, rule: Selection) -> str:
    if trial["status"] == "missing":
        return (
            "no result.json: not run yet, running or interrupted; the command that started it, with --resume, runs it"
        )
    if trial["status"] in EVALUATED:
        if rule.halves and not trial["halves"]:
            return f"{trial['status']} without {HALVES}"
        return f"{trial['status']} without {listed(g.short for g in what.compared if pd.isna(trial[g.metric]))}"
    step = "" if pd.isna(trial["error.step"]) else f" at step {trial['error.step']:g}"
    return f"{'no message' if pd.isna(trial['error.message']) else trial['error.message']}{step}"


def text(value: Any) -> str:
    """Return a setting as a person writes it; a dash where there is none."""
    if pd.isna(value):
        return DASH
    return f"{value:.12g}" if isinstance(value, float) else str(value)
