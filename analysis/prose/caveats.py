"""What a reader must know before believing a report's verdict."""

from __future__ import annotations

import pandas as pd

from analysis.labels import number
from analysis.load.goals import Goals, goals_of_runs
from analysis.load.trials import evaluated
from analysis.tables.lists import HALVES
from trainables.config.settings import Selection


def list_caveats(
    runs: pd.DataFrame, models: pd.DataFrame, comparison: pd.DataFrame, chosen: pd.DataFrame, rule: Selection
) -> list[str]:
    """Return them as sentences, the most general first. `comparison` and `chosen` are selection's."""
    goals = goals_of_runs(runs)
    notes = [*_seeds(chosen), *_tries(comparison, rule), *_collapsed(runs), *_twins(runs)]
    if rule.rule == "utility_floor":
        for split, rows in chosen.groupby("benchmark.split"):
            notes += _floor(split, rows, goals, rule)
    if rule.halves:
        notes += _whole(runs)
    for model in models.to_dict("records"):
        evaluation = f"{model['split']}: the {model['role']} model's evaluation {model['evaluation']}"
        if model["status"] != "finished":
            notes.append(f"{evaluation} is {model['status']}.")
        elif rule.halves and not model["halves"]:
            notes.append(f"{evaluation} has no {HALVES}.")
    return notes


def _seeds(chosen: pd.DataFrame) -> list[str]:
    seeds = sorted(set(chosen["n"]))
    if seeds == [1]:
        return ["Every number is one seed: a difference of any size may be chance."]
    return [f"Rows rest on {seeds[0]} to {seeds[-1]} seeds: see the chosen settings."] if len(seeds) > 1 else []


def _tries(comparison: pd.DataFrame, rule: Selection) -> list[str]:
    """Return that more settings were tried with GRU than without it."""
    if comparison.empty:
        return []
    plain, gru = (max(comparison[f"settings_{side}"]) for side in ("none", "gru"))
    if gru <= plain:
        return []
    how = "picked on the numbers shown here: this favours GRU, and the intervals do not allow for it."
    if rule.halves:
        how = "picked on other rows than those shown here: more settings may still hold a better one."
    return [f"With GRU the best of up to {gru} settings is shown, without it the best of up to {plain}, {how}"]


def _collapsed(runs: pd.DataFrame) -> list[str]:
    """Return how many trials did not train to their end, and yet have a place among the others."""
    stopped = int(sum(runs["status"] == "collapsed"))
    if not stopped:
        return []
    what = "trial collapsed: it is" if stopped == 1 else "trials collapsed: they are"
    return [f"{stopped} {what} shown as measured where a bar (training.stop_above, stop_below) ended the training."]


def _twins(runs: pd.DataFrame) -> list[str]:
    """Return how many trials count once although the sweep holds them twice."""
    twins = int(sum(runs["twins"]))
    if not twins:
        return []
    several = "1 trial is" if twins == 1 else f"{twins} trials are"
    return [f"{several} there both with and without a calibration, one training each time: only one of them counts."]


def _floor(split: object, rows: pd.DataFrame, goals: Goals, rule: Selection) -> list[str]:
    """Return where the rule's bar is not known, or nobody is above it."""
    bar, name = rows["bar"].iloc[0], goals.retention.short
    if pd.isna(bar):
        known = "0" if rows["choice.original"].iloc[0] == 0 else "not known"
        return [f"{split}: the original model's {name} is {known}, so the highest {name} was chosen everywhere."]
    if any(rows["kept"]):
        return []
    removal = " or ".join(goal.short for goal in goals.removal)
    return [
        f"{split}: no chosen trial keeps {rule.share:.0%} of the original model's {name} (at least {number(bar)}); a "
        f"better {removal} at a low {name} is no useful unlearning."
    ]


def _whole(runs: pd.DataFrame) -> list[str]:
    """Return how many evaluated trials cannot be chosen for want of halves."""
    without = int(sum(evaluated(runs) & ~runs["halves"]))
    verb = "trial has" if without == 1 else "trials have"
    return [f"{without} evaluated {verb} no {HALVES}: left out."] if without else []
