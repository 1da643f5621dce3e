"""What a reader must know before believing a report's verdict."""

from __future__ import annotations

import pandas as pd

from analysis.labels import format_number
from analysis.load.trials import evaluated
from analysis.stats.sweep_results import Results
from analysis.tables.detail_tables import HALVES
from trainables.storage.base import STOPPED


def list_caveats(results: Results) -> list[str]:
    """Return them as sentences, the most general first."""
    runs, chosen, halves = results.runs, results.chosen, results.rule.halves
    seeds = sorted(set(chosen["n"]))
    notes = ["Every number is one seed: a difference of any size may be chance."] if seeds == [1] else []
    if len(seeds) > 1:
        notes.append(f"Rows rest on {seeds[0]} to {seeds[-1]} seeds: see the chosen settings.")
    notes += _explain_tries(results)
    if stopped := sum(runs["status"] == "collapsed"):
        bar = "a bar (training.stop_above, stop_below) ended the training"
        notes.append(f"Collapsed trials are shown as measured where {bar}: {stopped}.")
    if stopped := sum(runs["status"] == STOPPED):
        why = "others were better in every goal at the same step, or for a low utility (search.stop_dominated)"
        notes.append(f"Trials that the search stopped because {why} are shown at their best step so far: {stopped}.")
    if twins := int(sum(runs["twins"])):
        asked = "a calibration or observations"
        notes.append(f"Trials that are there both with and without {asked}, one training, count once: {twins}.")
    if results.rule.rule == "utility_floor":
        for split, rows in chosen.groupby("benchmark.split"):
            notes += _explain_bar(split, rows, results)
    if halves and (without := sum(evaluated(runs) & ~runs["halves"])):
        notes.append(f"Evaluated trials without {HALVES}, are left out: {without}.")
    for model in results.models.to_dict("records"):
        evaluation = f"{model['split']}: the {model['role']} model's evaluation {model['evaluation']}"
        if model["status"] != "finished":
            notes.append(f"{evaluation} is {model['status']}.")
        elif halves and not model["halves"]:
            notes.append(f"{evaluation} has no {HALVES}.")
    return notes


def _explain_tries(results: Results) -> list[str]:
    """Return that more settings were tried with GRU than without it."""
    most = {side: max(rows["settings"]) for side, rows in results.pairs.groupby("rectifier.name")}
    if not most or most["gru"] <= most["none"]:
        return []
    how = "picked on the numbers shown here: this favours GRU, and the intervals do not allow for it."
    if results.rule.halves:
        how = "picked on other rows than those shown here: more settings may still hold a better one."
    start = f"With GRU the best of up to {most['gru']} settings is shown"
    return [f"{start}, without it the best of up to {most['none']}, {how}"]


def _explain_bar(split: object, rows: pd.DataFrame, results: Results) -> list[str]:
    """Return where the rule's bar is not known, or nobody is above it."""
    bar, name = rows["bar"].iloc[0], results.goals.retention.short
    if pd.isna(bar):
        known = "0" if rows["choice.original"].iloc[0] == 0 else "not known"
        return [f"{split}: the original model's {name} is {known}, so the highest {name} was chosen everywhere."]
    if any(rows["kept"]):
        return []
    removal = " or ".join(goal.short for goal in results.goals.removals)
    return [
        f"{split}: no chosen trial keeps {results.rule.share:.0%} of the original model's {name} (at least "
        f"{format_number(bar)}); a better {removal} at a low {name} is no useful unlearning."
    ]
