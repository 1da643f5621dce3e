"""Splits that are numbered, request after request: what is kept, what is removed, and what of earlier ones stays so."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.catalog import Picture
from analysis.figures.style import LINES, STYLE, add_legend, dashes, opaque, wrap_panels
from analysis.labels import REFERENCES, describe_method, join_names
from analysis.load.trials import evaluated
from analysis.number_format import DASH, format_number
from analysis.page.detail_sections import Report, Section, TableItem
from analysis.stats.chosen_settings import rank_values
from analysis.stats.row_bootstrap import interval, resample
from analysis.stats.sweep_results import Results
from trainables.benchmarks import every_other, find
from trainables.storage.atomic_files import read_rows
from trainables.storage.names import ROWS

EARLIER, THEN = "earlier", "then"
"""The mean over the rows of all earlier requests, now and as it was right after their own requests."""
CHAIN = ["method", "rectifier"]


def list_points(results: Results) -> pd.DataFrame:
    """Return one row for each method, rectifier and numbered split, means over seeds; the target model's come first.

    Columns: split, number, method, rectifier, `after` (whether a trial goes on from the one before), the goals, of own
    rows `request_01`, ... (the goal of removal on the rows of each request so far), EARLIER and THEN. Empty unless the
    sweep has several such splits and no others.
    """
    goals, runs = results.goals, results.runs.loc[evaluated(results.runs)]
    names = {"benchmark.split": "split", "rectifier.name": "rectifier"}
    models = results.models.loc[results.models["role"] == "original"].assign(method="original", rectifier="")
    rows: Any = pd.concat([models, runs.rename(columns=names)], ignore_index=True)
    rows["number"] = rows["split"].str.extract(r"_([0-9]+)$", expand=False).astype(float)
    if runs.empty or rows["number"].isna().any() or rows["number"].nunique() < 2:
        return pd.DataFrame(columns=CHAIN)
    kind, (removal, *_) = find(goals.benchmark), goals.removals
    rows["after"] = rows["split"].map(kind.split_before).notna()
    measure, requests = removal.metric.removeprefix("forget_"), sorted(set(rows["split"]))
    for split in requests if kind.SEQUENCE + "01" in requests else ():
        own = rows["split"] == split
        for name in (measure, "rows"):
            rows.loc[own, f"{split}_{name}"] = rows.loc[own, f"forget_{name}"]
        rows[split] = rows[f"{split}_{measure}"]
    counts = {split: rows[f"{split}_rows"].max() for split in requests if split in rows}
    metrics = [*(goal.metric for goal in goals.compared), *counts]
    means: Any = rows.groupby(["number", "split", *CHAIN, "after"], as_index=False)[metrics].mean()
    line: Any
    for _, line in means.groupby(CHAIN):
        then = {row["split"]: row[removal.metric] for row in line.to_dict("records")}
        for place, row in line.iterrows():
            before = [split for split in counts if split < row["split"] and split in then]
            weights = sum(counts[split] for split in before)
            for name, value in ((EARLIER, row), (THEN, then)):
                total = sum(counts[split] * value[split] for split in before)
                means.loc[place, name] = total / weights if before else math.nan
    return means.sort_values([*CHAIN, "number"], key=rank_values, ignore_index=True)


def describe_requests(results: Results) -> list[str]:
    """Return what each method keeps and has removed after its last request, as sentences."""
    sentences, points = [], list_points(results)
    line: Any
    for (method, rectifier), line in _trials(points).groupby(CHAIN, sort=False):
        last = line.iloc[-1]
        before = points.loc[(points["method"] == "original") & (points["split"] == last["split"])]
        origin = "before the first" if last["after"] else "original"
        numbers = [
            _describe_change(goal.title, last[goal.metric], before[goal.metric].mean(), origin)
            for goal in reversed(results.goals.compared)
        ]
        where = f"After {last['number']:g} requests in a row" if last["after"] else f"On {last['split']}"
        text = f"{where}, {describe_method(str(method), str(rectifier))}: {', '.join(numbers)}."
        if EARLIER in points and pd.notna(last[EARLIER]):
            text += f" {_describe_earlier(results, last)}"
        sentences.append(text)
    return sentences


def _describe_change(title: str, value: float, before: float, origin: str) -> str:
    now, then = format_number(value), format_number(before)
    return f"{title} {now}" if then in (now, DASH) else f"{title} {now} ({then} {origin})"


def _describe_earlier(results: Results, last: Any) -> str:
    goal = results.goals.removals[0]
    then, now = format_number(last[THEN]), format_number(last[EARLIER])
    if then == now:
        return f"Earlier requests stay as forgotten as they were: {goal.short} {now}."
    low, high = bound_change(results, last)
    back = goal.gain(float(now)) < goal.gain(float(then))
    what = "Some of earlier requests came back" if back else "Earlier requests are forgotten further"
    what = "Rows leave open whether some of earlier requests came back" if low <= 0 <= high else what
    sure = f"95 % interval of the change over rows {low:+.4f} to {high:+.4f}" if low <= high else "no interval: no rows"
    return f"{what}: {goal.short} {then} right after each, {now} now ({sure})."


def bound_change(results: Results, last: Any) -> tuple[float, float]:
    """Return the 95 % interval of EARLIER - THEN over the rows of earlier requests; NaN where a trial has none."""
    runs, measure = results.runs.loc[evaluated(results.runs)], results.goals.removals[0].metric.removeprefix("forget_")
    chain, gains = runs.loc[(runs["method"] == last["method"]) & (runs["rectifier.name"] == last["rectifier"])], []
    try:
        for _, own in chain.groupby("seed"):
            rows = {
                split: _read_rows(results, key, measure) for split, key in own[["benchmark.split", "id"]].to_numpy()
            }
            now = rows[last["split"]]
            earlier = [now[split] - rows[split]["forget"] for split in rows if split < last["split"]]
            gains.append(np.concatenate(earlier))
        return interval(resample([np.mean(gains, axis=0)[:, None]]))  # one number's harmonic mean is that number
    except (KeyError, OSError, ValueError):
        return math.nan, math.nan


def _read_rows(results: Results, trial_id: str, measure: str) -> dict[Any, Any]:
    """Return what a trial's rows have of a measure, by task."""
    if results.store is None:
        raise FileNotFoundError(trial_id)
    path = results.store.trial(trial_id) / ROWS
    results.store.fetch(path)
    records = read_rows(path)
    rows = pd.DataFrame(every_other(records, 1) if results.rule.halves else records)
    return {task: own[measure].to_numpy(dtype=float) for task, own in rows.groupby("task")}


def write_section(report: Report) -> Section | None:
    """Write tables/requests.csv and the picture; None: the sweep has no numbered splits."""
    points, goals = list_points(report.results), report.results.goals
    if points.empty:
        return None
    report.save_frame("requests", points)
    requests = [name for name in points if str(name) in set(points["split"])]
    labels = [
        REFERENCES.get(method) or describe_method(method, rectifier)
        for method, rectifier in zip(points["method"], points["rectifier"], strict=True)
    ]
    table = pd.DataFrame({"Method": labels, "Split": points["split"]})
    shown = {goals.retention.metric: goals.retention.short}
    shown |= {name: f"{goals.removals[0].short} {name}" for name in requests}
    shown |= {} if requests else {goal.metric: goal.short for goal in goals.removals}
    for name, head in shown.items():
        table[head] = points[name].map(format_number)
    subject = f"{join_names(goal.title for goal in reversed(goals.compared))}, request by request"
    origin = "the one before the first request, " if any(points["after"]) else ""
    caption = f"Means over seeds. The original model is {origin}asked for the same rows."
    picture = Picture("requests", draw(points, report.results), points, subject, caption)
    return Section("Request by request", (TableItem(table),), (report.save_picture(picture),))


@mpl.rc_context(STYLE)
def draw(points: Any, results: Results) -> Figure:
    """Draw `list_points`: a panel for each goal over the requests, and one for the rows of earlier requests."""
    line: Any
    goals = results.goals
    panels = {goal.metric: goal.title for goal in reversed(goals.compared)}
    if EARLIER in points and points[EARLIER].notna().any():
        panels[EARLIER] = f"{goals.removals[0].short} on the rows of earlier requests"
    figure, grid = wrap_panels(len(panels), 3, 2.4, 1.8, sharex=True)
    for axes, (metric, title) in zip(grid, panels.items(), strict=True):
        original = points.loc[points["method"] == "original"].dropna(subset=[metric])
        axes.plot(original["number"], original[metric], **LINES["original"])
        for (method, rectifier), line in _trials(points).groupby(CHAIN, sort=False):
            look: dict[str, Any] = opaque(str(method), str(rectifier)) | {"linestyle": dashes(str(method))}
            axes.plot(line["number"], line[metric], **look, label=describe_method(str(method), str(rectifier)))
        axes.set_title(title)
        axes.set_xlabel("requests so far" if points["after"].any() else "forget set")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(figure)
    return figure


def _trials(points: pd.DataFrame) -> Any:
    return points.loc[points["method"] != "original"]
