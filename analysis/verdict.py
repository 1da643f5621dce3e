"""A report's sentences: what GRU changes, how far to believe it, and which trials gave no result."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from analysis import selection, strengths
from analysis.printing import DASH, number, split_label
from analysis.tables import METRICS, described, method_label, task_vectors

WORDS = {"out_of_memory": "out of memory", "missing": "without a result yet"}
SETTINGS = {"gamma": "rectifier.gamma", "tau": "rectifier.tau", "strength": "strength"}
KINDS = {
    (1, 1): "improved both FQ and MU",
    (1, 0): "improved FQ and left MU as it was",
    (0, 1): "improved MU and left FQ as it was",
    (1, -1): "improved FQ and worsened MU",
    (-1, 1): "improved MU and worsened FQ",
    (0, 0): "changed neither",
    (-1, 0): "worsened FQ and left MU as it was",
    (0, -1): "worsened MU and left FQ as it was",
    (-1, -1): "worsened both",
    None: "cannot be judged, for want of an FQ on both sides,",
}


def counts(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), WORDS.get(str(status), status)) for status, count in numbers.items() if status != "finished"]
    texts = [f"{-count} {word}" for count, word in sorted(rest)]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def question(runs: pd.DataFrame) -> str:
    """Return what the sweep can answer."""
    if not task_vectors(runs):
        return "Does GRU help?"
    if any(runs["rectifier.name"] == "gru"):
        return "Does GRU help, and does TRU keep more than TV?"
    return "Does TRU keep more than TV?"


def sentences(runs: pd.DataFrame, comparison: pd.DataFrame, chosen: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    """Return the verdict: on GRU, unless the sweep is about task vectors only, and on TRU against TV."""
    about = task_vectors_sentences(drawn)
    only = bool(about) and not any(runs["rectifier.name"] == "gru")
    return [*([] if only else headline(comparison, chosen)), *about]


def headline(comparison: pd.DataFrame, chosen: pd.DataFrame) -> list[str]:
    """Return one sentence a split: for which methods GRU improved what."""
    if chosen.empty:
        return ["No trial of this sweep has finished with a result, so nothing can be said yet."]
    if comparison.empty:
        return ["This sweep holds no method both with and without GRU that finished, so GRU cannot be judged from it."]
    sentences = []
    for split, rows in comparison.groupby("split"):
        groups: dict[tuple[int, int] | None, list[str]] = {}
        for row in rows.to_dict("records"):
            groups.setdefault(signs(row), []).append(method_label(row["method"]))
        parts = [f"{KINDS[kind]} for {_some(groups[kind], len(rows))}" for kind in KINDS if kind in groups]
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


def signs(row: dict[Hashable, Any]) -> tuple[int, int] | None:
    """Return -1, 0 or 1 for FQ and for MU: worse, equal as printed, better with GRU. None without an FQ."""
    fq, mu = row["forget_quality_difference"], row["model_utility_difference"]
    if pd.isna(fq):
        return None
    return (fq > 0) - (fq < 0), (mu > 0) - (mu < 0)


def _some(methods: list[str], total: int) -> str:
    return f"{len(methods)} of {total} methods ({', '.join(methods)})"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"


def detail(row: dict[Hashable, Any]) -> dict[str, str]:
    """Return what GRU changes for one method and split: name, the two changes, and how many seeds they rest on."""
    plain, gru = int(row["n_none"]), int(row["n_gru"])
    seeds = f"n\u00a0=\u00a0{plain}" if plain == gru else f"n\u00a0=\u00a0{plain} plain, {gru} w/ GRU"
    return {
        "method": method_label(row["method"]),
        "split": split_label(row["split"]),
        "text": f"{_change(row, 'forget_quality', 2)}; {_change(row, 'model_utility', 3)}; {seeds}.",
    }


def _change(row: dict[Hashable, Any], metric: str, decimals: int) -> str:
    """Return `FQ rose by 3.2000, from -7.3000 to -4.1000 (95% interval +1.10 to +5.30)`."""
    plain, gru, difference = (row[f"{metric}_{name}"] for name in ("none", "gru", "difference"))
    if pd.isna(difference):
        return f"{METRICS[metric]} is not known on both sides"
    if difference == 0:
        return f"{METRICS[metric]} stayed at {number(gru)}"
    verb = "rose" if difference > 0 else "fell"
    change = f"{METRICS[metric]} {verb} by {number(abs(difference))}, from {number(plain)} to {number(gru)}"
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    if pd.isna(low):
        return change
    chance = ", may be chance" if low <= 0 <= high else ""
    return f"{change} (95% interval {low:+.{decimals}f} to {high:+.{decimals}f}{chance})"


def caveats(comparison: pd.DataFrame, chosen: pd.DataFrame, models: pd.DataFrame) -> list[str]:
    """Return what a reader must know before believing the verdict."""
    notes = []
    seeds = sorted(set(chosen["n"]))
    if seeds == [1]:
        notes.append("Every number is one seed: a difference of any size may be chance.")
    elif len(seeds) > 1:
        notes.append(f"Rows rest on {seeds[0]} to {seeds[-1]} seeds: see the chosen settings.")
    tried = [max(comparison[f"settings_{side}"], default=0) for side in ("none", "gru")] if len(comparison) else [0, 0]
    if tried[1] > tried[0]:
        notes.append(
            f"With GRU the best of up to {tried[1]} settings is shown, without it the best of up to {tried[0]}, "
            "picked on the numbers shown here: this favours GRU, and the intervals do not allow for it."
        )
    if len(comparison):
        notes += [f"{split}: {_clear(rows)}" for split, rows in comparison.groupby("split") if _clear(rows)]
    for split, rows in chosen.groupby("benchmark.split"):
        bar = rows["bar"].iloc[0]
        if pd.isna(bar):
            notes.append(f"{split}: the original model's MU is not known, so the highest MU was chosen everywhere.")
        elif not any(rows["kept"]):
            notes.append(
                f"{split}: no chosen trial keeps {selection.SHARE:.0%} of the original model's MU (at least "
                f"{number(bar)}); a better FQ at a low MU is no useful unlearning."
            )
    for model in models.to_dict("records"):
        if model["status"] != "finished":
            evaluation = f"the {model['role']} model's evaluation {model['evaluation']}"
            notes.append(f"{model['split']}: {evaluation} is {model['status']}.")
    return notes


def _clear(rows: pd.DataFrame) -> str:
    """Return how many of a split's differences are more than seeds explain; nothing where there are no intervals."""
    bounds = [(row[f"{metric}_low"], row[f"{metric}_high"]) for row in rows.to_dict("records") for metric in METRICS]
    known = [(low, high) for low, high in bounds if not pd.isna(low)]
    beyond = sum(low > 0 or high < 0 for low, high in known)
    if not known:
        return ""
    return (
        f"{beyond} of {len(known)} differences with several seeds on both sides are beyond seed noise (95% intervals)."
    )


def failures(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, as texts, every trial without a usable result and why."""
    rows, hidden = [], [] if task_vectors(runs) else ["strength"]
    for trial in runs.to_dict("records"):
        if trial["status"] == "finished" and not any(pd.isna(trial[metric]) for metric in METRICS):
            continue
        fields = {"Trial": trial["id"], "Split": text(trial["benchmark.split"])}
        known = dict.fromkeys(("Method", *SETTINGS), DASH)  # nothing is known of a trial that was never started
        if not pd.isna(trial["method"]):
            known = described(trial["method"], trial["rectifier.name"], *(trial[field] for field in SETTINGS.values()))
        end = {"Seed": text(trial["seed"]), "Status": trial["status"].replace("_", " "), "Cause": _cause(trial)}
        rows.append(fields | known | end)
    return pd.DataFrame(rows, dtype="str").drop(columns=hidden, errors="ignore")


def _cause(trial: dict[Hashable, Any]) -> str:
    if trial["status"] == "missing":
        return "no result.json: not run yet, running or interrupted; the sweep's command with --resume runs it"
    if trial["status"] == "finished":
        names = [label for metric, label in METRICS.items() if pd.isna(trial[metric])]
        return f"finished without {' and '.join(names)}"
    step = "" if pd.isna(trial["error.step"]) else f" at step {trial['error.step']:g}"
    return f"{'no message' if pd.isna(trial['error.message']) else trial['error.message']}{step}"


def text(value: Any) -> str:
    """Return a setting as a person writes it; a dash where there is none."""
    if pd.isna(value):
        return DASH
    return f"{value:.12g}" if isinstance(value, float) else str(value)
