"""The view of a sweep's trials that MLflow's UI offers under "Views": their columns, and charts of the trade-off.

MLflow keeps a view as a tag of the experiment (3.17: name, times, the page's state as JSON). It has no parent run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trainables import benchmarks
from trainables.config.method_tables import RECTIFIERS
from trainables.config.settings import Rectifier
from trainables.storage.names import CURVES

TAG = "mlflow.sharedViewState.{sweep}"
LINK = "#/experiments/{experiment}/runs?viewStateShareKey={sweep}&compareRunsMode=CHART"
"""The part of an address that opens MLflow at the charts of a sweep's view; `sweep`: NAME-HASH."""
NAME = "{sweep}: gamma, tau and the trade-off"
TAU = "tau"
"""A param that repeats `rectifier.tau` as words: MLflow leaves out runs where an axis mixes numbers and words."""
AXES = ("rectifier.gamma", TAU)
COLUMNS = ("method", "rectifier.name", "rectifier.gamma", "rectifier.tau", "benchmark.split", "seed")
RUNS_PER_CHART = 100
"""How many runs a chart draws at most; MLflow's default is 10."""


def saved_view(sweep: str, benchmark: str, varied: Iterable[str] = ()) -> str:
    """Return the tag's value for the trials of a sweep, NAME-HASH, the goals of its benchmark and its axes."""
    others = tuple(path for path in varied if path not in COLUMNS)
    goals = [f"eval/{goal.metric}" for goal in benchmarks.find(benchmark).GOALS]
    state = _page_state(goals, others) | {"searchFilter": f"tags.sweep_id = '{sweep}' and tags.trial_id != ''"}
    return json.dumps({"name": NAME.format(sweep=sweep), "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)})


def chart_params(rectifier: Rectifier) -> dict[str, str]:
    """Return what a trial's run needs for `AXES` beside its configuration."""
    if TAU not in RECTIFIERS[rectifier.name].takes:
        return {}
    return {TAU: "none" if rectifier.tau is None else f"≤ {rectifier.tau:g}"}


def _page_state(goals: list[str], others: tuple[str, ...]) -> dict[str, Any]:
    """Return the page: a row a trial, the most removal first. `others`: axes beside those that every sweep has."""
    shown = [*(f"metrics.`{goal}`" for goal in goals), *(f"params.`{name}`" for name in (*COLUMNS, *others))]
    sections = [("tradeoff", "Trade-off", 2), ("steps", "Along training", 3)]
    return {
        "orderByKey": f"metrics.`{goals[0]}`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*shown, "tags.`outcome`", "metrics.`time/total`"],
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": _charts(goals, others),
        "compareRunSections": [
            {"uuid": key, "name": name, "display": True, "isReordered": False, "columns": columns}
            for key, name, columns in sections
        ],
        "isAccordionReordered": True,  # else MLflow sorts sections by name
    }


def _charts(goals: list[str], others: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return parallel coordinates of axes and goals; removal against retention; series by step."""
    sides = {"xaxis": {"key": goals[0], "type": "METRIC"}, "yaxis": {"key": goals[-1], "type": "METRIC"}}
    parallel = _chart("PARALLEL", "parallel", "tradeoff", selectedParams=[*AXES, *others], selectedMetrics=goals)
    scatter = _chart("SCATTER", "scatter", "tradeoff", **sides, tooltipDataKeys=[])
    scales = {"lineSmoothness": 0, "scaleType": "linear", "xAxisKey": "step", "xAxisScaleType": "linear"}
    metrics = {name: f"train/{name}" for name in CURVES}
    lines = [_chart("LINE", n, "steps", metricKey=m, selectedMetricKeys=[m], **scales) for n, m in metrics.items()]
    return [parallel, scatter, *lines]


def _chart(kind: str, key: str, section: str, **given: Any) -> dict[str, Any]:
    base = {"deleted": False, "isGenerated": False, "runsCountToCompare": RUNS_PER_CHART, "metricSectionId": section}
    return {**base, "type": kind, "uuid": key, **given}
