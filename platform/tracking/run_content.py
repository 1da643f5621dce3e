"""What the MLflow run of one trial shows, made from its configuration and result."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from platform.plan.overrides import flatten_settings
from platform.tracking import views
from trainables import benchmarks
from trainables.config.trial import Trial
from trainables.storage import files

SERIES = ("loss", "retain_loss", "cos_before", "cos_after", "grad_norm", "rectified_norm", "average_norm", "dot")
SERIES += ("coefficient", "clip_scale", "lr", "tokens_per_second", "peak_memory_bytes")
SERIES += ("observed_cos", "observed_cos_after", "observed_retain_loss", "attempts", "rectified", "skipped")
"""The columns of steps.parquet that become series; yes and no become 1 and 0."""
BY_STEP = "eval_by_step"
"""Metrics along training, apart from those of `eval`, which are at step 0 and drawn as bars."""


def run_params(trial: Trial, config: dict[str, Any]) -> list[Any]:
    """Return the configuration, flat, and what the saved view's charts need beside it."""
    from mlflow.entities import Param

    flat = flatten_settings(config) | views.chart_params(trial.rectifier)
    return [Param(name, "none" if value is None else str(value)) for name, value in flat.items()]


def run_metrics(trial: Trial, result: dict[str, Any], steps: Path) -> list[Any]:
    """Return the final and stepwise evaluations and steps.parquet, timed by the attempt's start: the same each time."""
    from mlflow.entities import Metric

    points: list[tuple[str, Any, int]] = [(f"eval/{name}", value, 0) for name, value in result["metrics"].items()]
    points += [(f"time/{name}", value, 0) for name, value in result.get("seconds", {}).items()]
    goals = [goal.metric for goal in benchmarks.find(trial.benchmark.name).GOALS]
    for item in (result.get("calibration") or {}).get("targets", []):
        points += [(f"calibration/{item['target']:g}/{name}", item[name], 0) for name in ("weight", *goals)]
    for entry in result.get("evaluations") or ():
        points += [(f"{BY_STEP}/{name}", value, entry["step"]) for name, value in entry.items() if name != "step"]
    for row in files.read_rows(steps) if steps.is_file() else ():
        logged = {name: row[name] for name in SERIES if row.get(name) is not None and math.isfinite(row[name])}
        points += [(f"train/{name}", value, row["step"]) for name, value in logged.items()]
    now = int(datetime.fromisoformat(result["started"]).timestamp() * 1000)
    return [Metric(name, float(value), now, step) for name, value, step in points if value is not None]


def run_tags(trial: Trial, result: dict[str, Any]) -> list[Any]:
    """Return what runs are found by, and what a result was made with."""
    from mlflow.entities import RunTag

    tags = {
        "method": trial.method,
        "rectifier": trial.rectifier.name,
        "split": trial.benchmark.split,
        "seed": str(trial.seed),
        "git_commit": str(result.get("commit")),
        "git_dirty": str(result.get("dirty")),
        "code": str(result.get("code", "unknown")),
        "started": result["started"],
        "outcome": result["status"],
    }
    if result.get("chosen_step"):
        tags["chosen_step"] = str(result["chosen_step"])
    if result.get("error"):
        tags["failure"] = result["error"]["message"][:500]
    return [RunTag(name, value) for name, value in tags.items()]


def run_dataset(trial: Trial) -> Any:
    """Return the rows that a trial forgot, retained and was measured on, by their fingerprint."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    rows = trial.benchmark
    digest = (rows.fingerprint or "unknown").rpartition(":")[2][-36:]  # MLflow takes no more
    source = json.dumps({"data": rows.data, "sources": rows.sources, "revision": rows.revision})
    dataset = Dataset(name=f"{rows.name}/{rows.split}", digest=digest, source_type="benchmark", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "unlearning")])
