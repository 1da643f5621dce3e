"""A report's sentences on which rectifier helps."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from analysis.labels import describe_method, join_names, rectifier_label
from analysis.stats.chosen_settings import varied
from analysis.stats.rectifier_comparison import EQUAL, LEVEL, OWN, Comparison, count_least_seeds

SIGNS = {1: "better", -1: "worse"}
MOST_NAMED = 6
"""Rectifiers whose missing seeds are named; rectifiers.csv has all."""


def summarise_rectifiers(comparison: Comparison, basis: str = OWN) -> list[str]:
    """Return which rectifiers are better or worse than none on the first ranked goal, in a sentence."""
    goal, rows = comparison.ranked[0], comparison.differences
    rows = rows.loc[(rows["metric"] == goal.metric) & (rows["basis"] == basis) & (rows["n"] > 0)]
    if rows.empty:
        return []
    most, needed = max(rows["n"]), _count_needed(rows)
    seeds = " to ".join(dict.fromkeys(f"{count}" for count in (min(rows["n"]), most)))
    what = join_names(varied(comparison.results.runs) or ["settings"])
    how = f"each at its own best {what}" if basis == OWN else f"all at the {what} chosen without a rectifier"
    start = f"By {goal.short} over {seeds} seed{'s' * bool(most > 1)}, {how}"
    if most < needed:
        tried = rows["rectifier"].nunique()
        return [f"{start}: no verdict. Among {tried} rectifiers a significant difference takes {needed} seeds."]
    cells = len(rows.drop_duplicates(["split", "method"]))
    each = "one comparison" if cells == 1 else f"{cells} comparisons (an objective on a split each)"
    said = [f"{word} than none {_list_names(rows.loc[rows['sign'] == sign], cells)}" for sign, word in SIGNS.items()]
    return [f"{start}, in {each}: {'; '.join(said)} (p below {LEVEL:g} after Holm)."]


def _list_names(rows: pd.DataFrame, cells: int) -> str:
    """Return `are BLUR and SAGO in 2, GEM in 1`, `is no rectifier` of no rows."""
    by_count: dict[int, list[str]] = defaultdict(list)
    for name, count in rows["rectifier"].value_counts().items():
        by_count[int(count)].append(rectifier_label(str(name)).removeprefix("w/ "))
    parts = [
        f"{join_names(sorted(names))}{f' in {count}' if cells > 1 else ''}"
        for count, names in sorted(by_count.items(), reverse=True)
    ]
    return f"{'is' if len(set(rows['rectifier'])) == 1 else 'are'} {', '.join(parts)}" if parts else "is no rectifier"


def explain_rectifiers(comparison: Comparison) -> list[str]:
    """Return the sentences of the section: at equal settings, costs, models below the floor, seeds without a pair."""
    texts = summarise_rectifiers(comparison)
    if EQUAL in set(comparison.differences["basis"]):
        texts += summarise_rectifiers(comparison, EQUAL)
    costs: Any = comparison.costs.loc[comparison.costs["rectifier"] != "none"].groupby("rectifier")["slower"].median()
    found = sorted((round(float(cost), 2), rectifier_label(str(name))[3:]) for name, cost in costs.dropna().items())
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


def _count_needed(rows: pd.DataFrame) -> int:
    return count_least_seeds(max(rows.groupby(["split", "method"])["rectifier"].nunique()))
