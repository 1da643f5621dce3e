"""What the MLflow run of one trial shows, made from its configuration and result."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from platform.plan.overrides import flatten_settings
from platform.tracking import views
from search_spaces.schema.settings_with_effect import has_effect
from trainables import benchmarks
from trainables.config.trial import Trial
from trainables.methods.method_constants import constants
from trainables.storage import atomic_files
from trainables.storage.names import CURVES, EVALUATED
from trainables.trial.progress import is_running

SERIES = ("loss", "retain_loss", "cos_before", "cos_after", "grad_norm", "rectified_norm", "average_norm", "dot")
SERIES += ("coefficient", "clip_scale", "lr", "tokens_per_second", "peak_memory_bytes")
SERIES += ("observed_cos", "observed_cos_after", "observed_retain_loss", "attempts", "rectified", "skipped")
"""The columns of steps.parquet that become series; yes and no become 1 and 0."""
BY_STEP = "eval_by_step"
"""Metrics along training, apart from those of `eval`, which are at step 0 and drawn as bars."""
STATUS = dict.fromkeys((*EVALUATED, "diverged"), "FINISHED")
Point = tuple[str, float, int]
"""A metric's name, its value and its step."""


@dataclass(frozen=True)
class RunContent:
    """A run. Times are milliseconds since 1970."""

    name: str
    status: str
    start: int
    end: int
    tags: dict[str, str]
    params: dict[str, str]
    points: list[Point]


@dataclass(frozen=True)
class Curves:
    """What a trial tells while it runs: its points, when it began, was seen last (as above), and whether it died."""

    points: list[Point]
    start: int
    seen: int
    dead: bool


def describe_run(trial: Trial, name: str, tags: dict[str, str], result: dict[str, Any], steps: Path) -> RunContent:
    """Return a trial's run; `steps` is its steps.parquet, `tags` are further ones."""
    start = to_milliseconds(result["started"])
    return RunContent(
        name=name,
        status=STATUS.get(result["status"], "FAILED"),
        start=start,
        end=start + int(1000 * (result.get("seconds", {}).get("total") or 0)),
        tags=tags | describe_trial(trial) | _tags(result),
        params=describe_settings(trial, result["config"]),
        points=_points(trial, result, steps),
    )


def to_milliseconds(time: str) -> int:
    """Return a time of ISO 8601 in milliseconds since 1970."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def describe_curves(content: bytes | None) -> Curves | None:
    """Return what progress.json holds; None if the trial has not trained yet, or the file is missing or damaged."""
    progress = atomic_files.parse_object(content or b"") or {}
    try:
        rows = [(row, int(row["step"])) for row in progress["points"]]
        points = [(f"train/{name}", float(row[name]), step) for row, step in rows for name in CURVES if name in row]
        start, seen = to_milliseconds(progress["started"]), int(1000 * float(progress["beat"]))
        return Curves(points, start, seen, is_running(progress) is False) if points else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def describe_attacks(shares: list[dict[str, Any]]) -> list[Point]:
    """Return what attacks brought back and left (`came_back.list_attacks`): `stress/nf4`, `stress/nf4_after`."""
    points = [(f"stress/{row['attack']}", row["share"], row["step"]) for row in shares if row["share"] is not None]
    return points + [(f"stress/{row['attack']}_after", row["after"], row["step"]) for row in shares]


def describe_settings(trial: Trial, config: dict[str, Any]) -> dict[str, str]:
    """Return the configuration, flat, the objective's numbers with its preset's, and what the view's charts need."""
    numbers = asdict(constants(trial.method, trial.objective, trial.benchmark.split))
    read = [name for name in numbers if has_effect(f"objective.{name}", trial.method, trial.rectifier.name)]
    flat = flatten_settings(config) | {f"constants.{name}": numbers[name] for name in read}
    flat |= views.chart_params(trial.rectifier)
    return {name: "none" if value is None else str(value) for name, value in flat.items()}


def _points(trial: Trial, result: dict[str, Any], steps: Path) -> list[Point]:
    """Return the final and stepwise evaluations and steps.parquet, each point once."""
    points: list[tuple[str, Any, int]] = [(f"eval/{name}", value, 0) for name, value in result["metrics"].items()]
    points += [(f"time/{name}", value, 0) for name, value in result.get("seconds", {}).items()]
    goals = [goal.metric for goal in benchmarks.find(trial.benchmark.name).GOALS]
    for item in (result.get("calibration") or {}).get("targets", []):
        points += [(f"calibration/{item['target']:g}/{name}", item[name], 0) for name in ("weight", *goals)]
    for entry in result.get("evaluations") or ():
        points += [
            (f"{BY_STEP}/{name}", value, entry["step"])
            for name, value in entry.items()
            if name not in ("step", "halves")
        ]
    for row in atomic_files.read_rows(steps) if steps.is_file() else ():
        points += [(f"train/{name}", row.get(name), row["step"]) for name in SERIES]
    known = ((name, float(value), step) for name, value, step in points if value is not None)
    return list(dict.fromkeys(point for point in known if math.isfinite(point[1])))


def describe_trial(trial: Trial) -> dict[str, str]:
    """Return the tags that runs are found by."""
    split, seed = trial.benchmark.split, str(trial.seed)
    return {"method": trial.method, "rectifier": trial.rectifier.name, "split": split, "seed": seed}


def _tags(result: dict[str, Any]) -> dict[str, str]:
    """Return what a result was made with, and how it ended."""
    tags = {
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
    return tags
