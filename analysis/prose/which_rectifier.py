"""A report's sentences on which rectifier helps."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from analysis.labels import describe_method, join_names, method_label, rectifier_name
from analysis.stats.chosen_settings import varied
from analysis.stats.rectifier_comparison import EQUAL, OWN, Comparison
from analysis.stats.significance import LEVEL, count_least_seeds

SIGNS = {1: "better", -1: "worse"}
MOST_NAMED = 6
"""Rectifiers whose missing seeds are named; rectifiers.csv has all."""
MOST_CELLS = 4
"""Comparisons that are named; of more only their number is told."""


def summarise_rectifiers(comparison: Comparison, basis: str = OWN) -> list[str]:
    """Return which rectifiers are better or worse than none on each ranked goal, in a sentence."""
    goals = {goal.metric: goal for goal in comparison.ranked}
    rows = comparison.differences
    rows = rows.loc[rows["metric"].isin(list(goals)) & (rows["basis"] == basis) & (rows["n"] > 0)]
    if rows.empty:
        return []
    most, cells = max(rows["n"]), rows.groupby(["split", "method"])
    needed = count_least_seeds(max(cells["rectifier"].nunique()))
    seeds = " to ".join(dict.fromkeys(f"{count}" for count in (min(rows["n"]), most)))
    what = join_names(varied(comparison.results.runs) or ["settings"])
    how = f"each at its own best {what}" if basis == OWN else f"all at the {what} chosen without a rectifier"
    start = f"Over {seeds} seed{'s' * bool(most > 1)}, {how}"
    if most < needed:
        tried = rows["rectifier"].nunique()
        return [f"{start}: no verdict. Among {tried} rectifiers a significant difference takes {needed} seeds."]
    each = "" if len(cells) == 1 else f", in {len(cells)} comparisons (an objective on a split each)"
    said = [
        f"{goals[str(metric)].short} is {_list_changes(one, len(cells))}"
        for metric, one in rows.groupby("metric", sort=False)
    ]
    return [f"{start}{each}, against none: {'; '.join(said)} (p below {LEVEL:g} after Holm)."]


def _list_changes(rows: pd.DataFrame, cells: int) -> str:
    """Return `better with SAGO for GA and NPO, with GEM for GA, worse with GRU for GA` of one goal."""
    texts = []
    for sign, word in SIGNS.items():
        by_cells: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, own in rows.loc[rows["sign"] == sign].groupby("rectifier", sort=False):
            by_cells[tuple(own["split"] + " " + own["method"])].append(rectifier_name(str(name)))
        ordered = sorted(by_cells.items(), key=lambda one: -len(one[0]))
        parts = [f"with {join_names(sorted(names))}{_name_cells(where, rows, cells)}" for where, names in ordered]
        texts += [f"{word} {', '.join(parts)}"] * bool(parts)
    return ", ".join(texts) or "clearly changed by none of them"


def _name_cells(where: tuple[str, ...], rows: pd.DataFrame, cells: int) -> str:
    if cells == 1:
        return ""
    if cells > MOST_CELLS:
        return f" in {len(where)}"
    several = len(set(rows["split"])) > 1
    pairs = [one.split(" ") for one in where]
    names = [f"{method_label(method)}{f' on {split}' if several else ''}" for split, method in pairs]
    return f" for {join_names(names)}"


def explain_rectifiers(comparison: Comparison) -> list[str]:
    """Return the sentences of the section: at equal settings, costs, models below the floor, seeds without a pair."""
    texts = summarise_rectifiers(comparison)
    if EQUAL in set(comparison.differences["basis"]):
        texts += summarise_rectifiers(comparison, EQUAL)
    costs: Any = comparison.costs.loc[comparison.costs["rectifier"] != "none"].groupby("rectifier")["slower"].median()
    found = sorted((round(float(cost), 2), rectifier_name(str(name))) for name, cost in costs.dropna().items())
    if found:
        least, most = found[0], found[-1]
        ends = f"{least[0]:g} ({least[1]}) to {most[0]:g} ({most[1]})" if least[0] < most[0] else f"{most[0]:g}"
        texts.append(f"A training step takes {ends} times as long as without a rectifier.")
    return [*texts, *_count_below(comparison), *_name_lacking(comparison)]


def _count_below(comparison: Comparison) -> list[str]:
    values = comparison.values.drop_duplicates("id")
    values = values.loc[values[comparison.results.goals.retention.metric].notna()]
    if not (below := int(values["below"].sum())):
        return []
    rule, name = comparison.results.rule, comparison.results.goals.retention.short
    what = f"keep less than {rule.share:.0%} of the original model's {name}"
    return [f"{below} of the {len(values)} models {what}: below that, forgetting is damage (tables/rectifiers.csv)."]


def _name_lacking(comparison: Comparison) -> list[str]:
    """Return the seeds of the first ranked goal that no pair has, with the reason."""
    rows = comparison.differences
    rows = rows.loc[(rows["metric"] == comparison.ranked[0].metric) & (rows["lacking"] != "")]
    found: dict[str, None] = {}
    for row in rows.to_dict("records"):
        found[f"{describe_method(row['method'], row['rectifier'])} on {row['split']}: seeds {row['lacking']}"] = None
    if not found:
        return []
    rest = f"; and {len(found) - MOST_NAMED} more, in tables/rectifiers.csv" if len(found) > MOST_NAMED else ""
    return [f"Without a pair: {'; '.join(list(found)[:MOST_NAMED])}{rest}."]
