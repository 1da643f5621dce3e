"""Splits that are numbered, request after request: what is kept, what is removed, and what of earlier ones stays so."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.labels import MODEL_LABELS, describe_method, format_number
from analysis.load.trials import evaluated
from analysis.report.page import Section, TableItem, save_frame
from analysis.report.sections import Report
from analysis.stats.chosen_settings import SHORT, rank_by_label_order
from analysis.stats.sweep_results import Results
from trainables.benchmarks import get_benchmark

EARLIER, THEN = "earlier", "then"
"""The mean over the rows of all earlier requests, now and as it was right after their own requests."""
METHOD_AND_RECTIFIER_COLUMNS = ["method", "rectifier"]


def tabulate_request_sequence(results: Results) -> pd.DataFrame:
    """Return one row for each method, rectifier and numbered split, means over seeds; the target model's come first.

    Of own rows also `request_01`, ... (removal on the rows of each request so far), EARLIER and THEN. Empty unless
    the sweep has several such splits and no others.
    """
    goals, runs = results.goals, results.runs.loc[evaluated(results.runs)]
    models = results.models.loc[results.models["role"] == "original"].assign(method="original", rectifier="")
    rows: Any = pd.concat([models, runs.rename(columns=SHORT)], ignore_index=True)
    rows["number"] = rows["split"].str.extract(r"_([0-9]+)$", expand=False).astype(float)
    if runs.empty or rows["number"].isna().any() or rows["number"].nunique() < 2:
        return pd.DataFrame(columns=METHOD_AND_RECTIFIER_COLUMNS)
    removal, kind = goals.removals[0], get_benchmark(goals.benchmark)
    measure, requests = removal.metric.removeprefix("forget_"), sorted(set(rows["split"]))
    for split in requests if kind.SEQUENCE + "01" in requests else ():
        own = rows["split"] == split
        for name in (measure, "rows"):
            rows.loc[own, f"{split}_{name}"] = rows.loc[own, f"forget_{name}"]
        rows[split] = rows[f"{split}_{measure}"]
    counts = {split: rows[f"{split}_rows"].max() for split in requests if split in rows}
    metrics = [*(goal.metric for goal in goals.all_goals), *counts]
    means: Any = rows.groupby(["number", "split", *METHOD_AND_RECTIFIER_COLUMNS], as_index=False)[metrics].mean()
    line: Any
    for _, line in means.groupby(METHOD_AND_RECTIFIER_COLUMNS):
        then = {row["split"]: row[removal.metric] for row in line.to_dict("records")}
        for place, row in line.iterrows():
            before = [split for split in counts if split < row["split"] and split in then]
            weights = sum(counts[split] for split in before)
            for name, value in ((EARLIER, row), (THEN, then)):
                total = sum(counts[split] * value[split] for split in before)
                means.loc[place, name] = total / weights if before else math.nan
    return means.sort_values([*METHOD_AND_RECTIFIER_COLUMNS, "number"], key=rank_by_label_order, ignore_index=True)


def write_request_section(report: Report) -> list[Section]:
    """Write tables/requests.csv and return its section; none where the sweep has no numbered splits."""
    points, goals = tabulate_request_sequence(report.results), report.results.goals
    if points.empty:
        return []
    save_frame(report.folder, "requests", points)
    sides = zip(points["method"], points["rectifier"], strict=True)
    labels = [MODEL_LABELS.get(method) or describe_method(method, rectifier) for method, rectifier in sides]
    table = pd.DataFrame({"Method": labels, "Split": points["split"]})
    shown = {goal.metric: goal.short for goal in (goals.retention, *goals.removals)}
    if len(points.dropna(subset=[EARLIER])):
        short = goals.removals[0].short
        shown |= {EARLIER: f"{short} of earlier requests, now", THEN: f"{short} of earlier requests, right after each"}
    for name, head in shown.items():
        table[head] = points[name].map(format_number)
    caption = "Means over seeds. Original: the model before the first request, asked for the same rows."
    return [Section("Request by request", (TableItem(table, caption),))]
