"""The view of a sweep's trials that MLflow's UI opens: a chart of their settings and goals, and a table of both.

MLflow keeps a saved view as a tag of the experiment (3.17): its name, times, and the page's state as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trainables import benchmarks
from trainables.storage.sweep_file import SweepFile

TAG = "mlflow.sharedViewState.{sweep}"
PAGE = "#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={sweep}"
"""The part of an address that opens a view's table, by NAME-HASH of the sweep, and not GenAI's pages."""
CHART = "&compareRunsMode=CHART"
"""What opens the view's chart in place of its table."""


def describe_view(sweep: SweepFile, runs: Sequence[Any]) -> str:
    """Return the tag's value. It names settings that all runs have: MLflow draws no chart with another one."""
    paths = dict.fromkeys(("method", "rectifier.name", *sweep.varied_axes))
    settings = [path for path in paths if all(path in run.data.params for run in runs)]
    goals = benchmarks.get_benchmark(sweep.benchmark or "tofu").GOALS
    metrics = [f"eval/{goal.metric}" for goal in goals]
    chart = {"type": "PARALLEL", "uuid": "chart", "metricSectionId": "section", "runsCountToCompare": 1000}
    chart |= {"selectedParams": settings, "selectedMetrics": metrics, "deleted": False, "isGenerated": False}
    state = {
        "searchFilter": f"tags.sweep_id = '{sweep.label}' and tags.trial_id != ''",
        "orderByKey": f"metrics.`{metrics[0]}`",
        "orderByAsc": goals[0].best == "lowest",
        "selectedColumns": [*(f"metrics.`{name}`" for name in metrics), *(f"params.`{path}`" for path in settings)],
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": [chart],
        "compareRunSections": [{"uuid": "section", "name": sweep.label, "display": True, "columns": 1}],
        "isAccordionReordered": True,  # else MLflow sorts sections by name
    }
    return json.dumps({"name": sweep.label, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)})
