"""What a reader must know before believing a report's verdict."""

from __future__ import annotations

import math
from typing import Any

from analysis.labels import describe_method, join_names
from analysis.load.trials import evaluated
from analysis.number_format import format_number
from analysis.stats.significance import LEVEL, SIDES
from analysis.stats.sweep_results import Results
from analysis.tables.detail_tables import HALVES
from trainables.common.wording import format_count
from trainables.storage.names import STOPPED


def list_decisive(results: Results) -> list[str]:
    """Return what is to be read before the verdict: models that lost their utility, and too few evaluation rows."""
    runs, notes = results.runs, [*_explain_floor(results), *_explain_forgetting(results)]
    if collapsed := sum(runs["status"] == "collapsed"):
        bar = "training ended at its bar (training.stop_above, stop_below), and they are shown as they were there"
        notes.append(f"{collapsed} of {len(runs)} trials collapsed: {bar}.")
    if limits := sorted(set(runs.reindex(columns=["benchmark.limit"])["benchmark.limit"].dropna())):
        most = f"at most {join_names(f'{limit:g}' for limit in limits)} rows of each task (benchmark.limit)"
        notes.append(f"Evaluated on {most}: this tests the set-up, and its numbers compare with no others.")
    return notes


def _explain_floor(results: Results) -> list[str]:
    """Return how many chosen settings keep the utility that the rule asks for, unless all do."""
    chosen = results.chosen.loc[results.chosen["bar"].notna()]
    if results.rule.rule != "utility_floor" or chosen["kept"].all():
        return []
    what = f"{results.rule.share:.0%} of the original model's {results.goals.retention.short}"
    damage = "below that, forgetting is damage"
    if not chosen["kept"].any():
        return [f"No chosen setting keeps {what}: {damage}."]
    counts = {side: f"{sum(kept)} of {len(kept)}" for side, kept in chosen.groupby("rectifier.name")["kept"]}
    told = f" ({counts['none']} alone, {counts['gru']} with GRU)" if set(SIDES) == set(counts) else ""
    keep = "keeps" if sum(chosen["kept"]) == 1 else "keep"
    return [f"Only {sum(chosen['kept'])} of {len(chosen)} chosen settings {keep} {what}{told}: {damage}."]


def _explain_forgetting(results: Results) -> list[str]:
    """Return how far the best chosen setting is from a retain model, by FQ, unless one cannot be told from it."""
    if results.goals.benchmark != "tofu" or results.chosen["forget_quality"].isna().to_numpy().all():
        return []
    best: Any = results.chosen.loc[results.chosen["forget_quality"].idxmax()]
    if best["forget_quality"] >= (enough := math.log(LEVEL)):
        return []
    original = results.models.loc[results.models["role"] == "original"].set_index("split").get("forget_quality", {})
    start = original.get(best["benchmark.split"], math.nan)
    before = "" if math.isnan(start) else f", the original model's {format_number(start, 2)}"
    others = results.runs.loc[evaluated(results.runs) & (results.runs["forget_quality"] >= enough), "model_utility"]
    most = f" Other trials that reach it: {len(others)}, with an MU of at most {max(others, default=0):.2f}."
    whose = f"{describe_method(best['method'], best['rectifier.name'])}, mean of {format_count(best['n'], 'seed')}"
    return [
        f"No chosen setting forgets enough: the best FQ is {format_number(best['forget_quality'], 2)} ({whose})"
        f"{before}; from {enough:.2f} on (p = {LEVEL:g}) a model cannot be told from one that never saw the rows."
        f"{most if len(others) else ''}"
    ]


def list_caveats(results: Results) -> list[str]:
    """Return the other caveats as sentences, the most general first."""
    runs, chosen, halves = results.runs, results.chosen, results.rule.halves
    seeds = sorted(set(chosen["n"]))
    notes = ["Every number is one seed: a difference of any size may be chance."] if seeds == [1] else []
    if len(seeds) > 1:
        notes.append(f"Rows rest on {seeds[0]} to {seeds[-1]} seeds: see the chosen settings.")
    notes += _explain_tries(results)
    if stopped := sum(runs["status"] == STOPPED):
        why = "others were better in every goal at the same step, or for a low utility (search.stop_dominated)"
        notes.append(f"Trials that the search stopped because {why} are shown at their best step so far: {stopped}.")
    if twins := int(sum(runs["twins"])):
        notes.append(f"Trials that are there both with and without a calibration, one training, count once: {twins}.")
    if results.rule.rule == "utility_floor":
        for split, rows in chosen.loc[chosen["bar"].isna()].groupby("benchmark.split"):
            name, known = results.goals.retention.short, "0" if rows["choice.original"].iloc[0] == 0 else "not known"
            notes.append(
                f"{split}: the original model's {name} is {known}, so the highest {name} was chosen everywhere."
            )
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
