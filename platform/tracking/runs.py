"""One sweep's runs in MLflow: a parent, and below it one run for each trial. All by MLflow's client.

Every point of a run has the run's start as its time: MLflow keeps one of two equal points, so that a trial's result
completes the curves that were logged while it ran.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from platform.plan.overrides import flatten_settings
from platform.state.trial_outcomes import is_unfinished
from search_spaces.schema.settings_with_effect import has_effect, name_trial
from trainables import benchmarks
from trainables.config.trial import Trial
from trainables.methods.method_constants import constants
from trainables.robustness.came_back import read_shares
from trainables.storage.atomic_files import parse_object, read_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CURVES, EVALUATED, PROGRESS, RESULT, STEPS, WEIGHTS
from trainables.storage.sweep_file import SweepFile
from trainables.trial.progress import is_running

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""What MLflow's client opens itself. It then writes artifacts where the experiment says, here into the storage."""
ENDED = ("FINISHED", "FAILED")
"""How the run of a trial ends when it shows a whole result."""
ALL: dict[str, Any] = {"max_results": 50_000, "order_by": ["attributes.start_time ASC"]}
"""As many runs as MLflow gives at once, the earliest first."""
Point = tuple[str, float, int]
"""A metric's name, its value and its step."""


class Runs:
    """The runs of one sweep, written from its storage; `runs`: MLflow's run by trial id."""

    def __init__(self, client: Any, experiment: str, parent: str, sweep: SweepFile, store: Storage) -> None:
        self.client = client
        self.experiment = experiment
        self.parent = parent
        self.sweep = sweep
        self.store = store
        self.runs: dict[str, Any] = {}

    def load(self) -> None:
        """Find every trial's run, and delete what a repeated request doubled: the complete one stays, if any."""
        condition = f"tags.sweep_id = '{self.sweep.label}' and tags.trial_id != ''"
        found = self.client.search_runs([self.experiment], condition, **ALL)
        self.runs = {}
        for run in sorted(found, key=lambda one: one.info.status in ENDED, reverse=True):
            if run.info.status == "RUNNING" and run.data.tags.get("storage") != self.store.location:
                continue  # of a driver of another storage
            if self.runs.setdefault(run.data.tags["trial_id"], run) is not run:
                self.client.delete_run(run.info.run_id)

    def end_running(self) -> None:
        """Mark the runs of trials that were interrupted as killed, when they were last seen."""
        for trial_id, run in self.runs.items():
            if run.info.status == "RUNNING":
                seen = self._read_progress(trial_id).get("beat")
                self.client.set_terminated(run.info.run_id, "KILLED", seen and int(1000 * seen))
                self.runs[trial_id] = self.client.get_run(run.info.run_id)

    def log_result(self, trial_id: str, result: dict[str, Any] | None = None) -> None:
        """Log a trial's result, by default the storage's, unless it has none or its run shows it."""
        from mlflow.entities import Metric, RunTag

        result = result or self.store.result(trial_id)
        if result is None:
            return
        trial, run = Trial.model_validate(result["config"]), self._find_run(trial_id, result["started"])
        if run is not None and run.info.status in ENDED:
            return
        run = run or self._create_run(trial, result["started"])
        key, start = run.info.run_id, run.info.start_time
        self.store.fetch(steps := self.store.trial(trial_id) / STEPS)
        points = list_points(trial, result, read_rows(steps) if steps.is_file() else [])
        tags = [RunTag(name, value) for name, value in describe_result(result).items()]
        self.client.log_batch(key, [Metric(name, value, start, step) for name, value, step in points], (), tags)
        self.client.log_artifact(key, str(self.store.trial(trial_id) / RESULT))
        status = "FINISHED" if result["status"] in (*EVALUATED, "diverged") else "FAILED"
        end = start + int(1000 * (result.get("seconds", {}).get("total") or 0))
        self.client.set_terminated(key, status, end)
        self.runs[trial_id] = self.client.get_run(key)

    def log_curves(self, trial: Trial) -> None:
        """Log the curves so far of a trial that runs; nothing before its training begins."""
        from mlflow.entities import Metric

        progress = self._read_progress(trial.id())
        if not progress.get("points") or is_running(progress) is False:
            return
        started = progress["started"]
        run = self._find_run(trial.id(), started) or self._create_run(trial, started)
        start, rows = run.info.start_time, progress["points"]
        points = [(name, row[name], row["step"]) for row in rows for name in CURVES if name in row]
        metrics = [Metric(f"train/{name}", float(value), start, int(step)) for name, value, step in points]
        self.client.log_batch(run.info.run_id, metrics)

    def finish(self, counts: Mapping[str, int]) -> None:
        """Log the sweep's counts, where weights are kept and what attacks brought back, and end the parent run."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        step = len(self.client.get_metric_history(self.parent, "trials/total"))
        self.client.log_batch(self.parent, [Metric(f"trials/{key}", value, now, step) for key, value in counts.items()])
        self.load()
        self.end_running()
        for trial_id, run in self.runs.items():
            folder = self.store.trial(trial_id) / WEIGHTS
            kept = self.store.uri(folder) if self.store.exists(folder) else ""
            if kept != run.data.tags.get("checkpoint", ""):
                self.client.set_tag(run.info.run_id, "checkpoint", kept)
            points = list_attack_points(read_shares(trial_id, self.store)) if kept else []
            if any(run.data.metrics.get(name) != value for name, value, _ in points):
                metrics = [Metric(name, value, now, at) for name, value, at in points]
                self.client.log_batch(run.info.run_id, metrics)
        self.client.set_terminated(self.parent, "KILLED" if is_unfinished(self.sweep, counts) else "FINISHED")

    def log_report(self) -> None:
        """Log the report's page, tables and figures with the parent run."""
        folder = self.store.root / "reports" / self.sweep.label
        if (folder / "index.html").is_file():
            self.client.log_artifacts(self.parent, str(folder), "report")

    def _read_progress(self, trial_id: str) -> dict[str, Any]:
        """Return progress.json of a trial that runs, empty if there is none."""
        return parse_object(self.store.read_newest(self.store.trial(trial_id) / PROGRESS) or b"") or {}

    def _find_run(self, trial_id: str, started: str) -> Any | None:
        """Return the run of the trial's attempt that was started then; delete that of another attempt."""
        run = self.runs.get(trial_id)
        if run is None or (run.data.tags.get("started") == started and run.info.status != "KILLED"):
            return run
        self.client.delete_run(run.info.run_id)
        del self.runs[trial_id]
        return None

    def _create_run(self, trial: Trial, started: str) -> Any:
        """Return a new run of a trial with its configuration."""
        from mlflow.entities import Param

        tags = {"sweep": self.sweep.name, "sweep_id": self.sweep.label, "mlflow.parentRunId": self.parent}
        tags |= {"trial_id": trial.id(), "storage": self.store.location, "started": started}
        tags |= {"method": trial.method, "rectifier": trial.rectifier.name}
        tags |= {"split": trial.benchmark.split, "seed": str(trial.seed)}
        start = int(datetime.fromisoformat(started).timestamp() * 1000)
        run = self.client.create_run(self.experiment, start, tags, name_trial(trial, self.sweep.varied))
        self.client.log_batch(run.info.run_id, params=[Param(*one) for one in describe_settings(trial).items()])
        self.runs[trial.id()] = run
        return run


def describe_settings(trial: Trial) -> dict[str, str]:
    """Return the configuration, flat, and the objective's numbers with those of its preset."""
    numbers = asdict(constants(trial.method, trial.objective, trial.benchmark.split))
    read = [name for name in numbers if has_effect(f"objective.{name}", trial.method, trial.rectifier.name)]
    flat = flatten_settings(trial.model_dump(mode="json")) | {f"constants.{name}": numbers[name] for name in read}
    return {name: "none" if value is None else str(value) for name, value in flat.items()}


def describe_result(result: Mapping[str, Any]) -> dict[str, str]:
    """Return as tags what a result was made with, and how it ended."""
    tags = {"git_commit": str(result.get("commit")), "git_dirty": str(result.get("dirty"))}
    tags |= {"code": str(result.get("code", "unknown")), "outcome": result["status"]}
    if result.get("chosen_step"):
        tags["chosen_step"] = str(result["chosen_step"])
    if result.get("error"):
        tags["failure"] = result["error"]["message"][:500]
    return tags


def list_points(trial: Trial, result: Mapping[str, Any], steps: list[dict[str, Any]]) -> list[Point]:
    """Return the final numbers, at step 0, the evaluations along training and the columns of steps.parquet."""
    return [
        (name, float(value), step)
        for name, value, step in _list_all_points(trial, result, steps)
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def _list_all_points(
    trial: Trial, result: Mapping[str, Any], steps: list[dict[str, Any]]
) -> Iterator[tuple[str, Any, int]]:
    yield from ((f"eval/{name}", value, 0) for name, value in result["metrics"].items())
    yield from ((f"time/{name}", value, 0) for name, value in result.get("seconds", {}).items())
    goals = [goal.metric for goal in benchmarks.find(trial.benchmark.name).GOALS]
    for item in (result.get("calibration") or {}).get("targets", []):
        yield from ((f"calibration/{item['target']:g}/{name}", item[name], 0) for name in ("weight", *goals))
    for entry in result.get("evaluations") or ():
        yield from ((f"eval_by_step/{name}", value, entry["step"]) for name, value in entry.items() if name != "step")
    for row in steps:
        yield from ((f"train/{name}", value, row["step"]) for name, value in row.items() if name != "step")


def list_attack_points(shares: list[dict[str, Any]]) -> list[Point]:
    """Return what attacks brought back and left (`came_back.list_attacks`): `stress/nf4`, `stress/nf4_after`."""
    points = [(f"stress/{row['attack']}", row["share"], row["step"]) for row in shares if row["share"] is not None]
    return points + [(f"stress/{row['attack']}_after", row["after"], row["step"]) for row in shares]


def tracking_uri(store: Storage) -> str:
    """Return MLFLOW_TRACKING_URI, else SQLite in the storage."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.root / 'mlflow.db'}"


def open_runs(sweep: SweepFile, store: Storage) -> Runs:
    """Return the runs of a sweep; make its experiment and its parent run if they are missing."""
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # with a traceback for what it raises anyway
    logging.getLogger("alembic").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    uri, file = tracking_uri(store), store.root / "mlflow.db"
    own = uri == f"sqlite:///{file}"
    if own:
        _make_database(file)
    client = MlflowClient(tracking_uri=uri)
    folder = str(store.root / "mlartifacts") if uri.startswith(DATABASES) else None
    known = client.get_experiment_by_name(sweep.name)
    if known is not None and own and known.artifact_location != folder:  # copied or moved: MLflow moves no files
        name = f"{sweep.name} in {known.artifact_location} ({known.experiment_id})"
        client.rename_experiment(known.experiment_id, name)
        known = None
    experiment = known.experiment_id if known else client.create_experiment(sweep.name, folder)
    runs = Runs(client, experiment, _open_parent(client, experiment, sweep), sweep, store)
    runs.load()
    runs.end_running()
    return runs


def _make_database(file: Path) -> None:
    """Let MLflow make its tables, elsewhere: after a kill amid its migrations it never opens a database again."""
    from mlflow import MlflowClient

    made = file.parent / "sweeps" / ".mlflow.db"
    made.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(made.with_suffix(".lock")):  # of two sweeps that begin in a new storage one makes it
        if not file.exists():
            made.unlink(missing_ok=True)
            MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments(max_results=1)
            made.replace(file)


def _open_parent(client: Any, experiment: str, sweep: SweepFile) -> str:
    """Return the id of the sweep's parent run, which is under way from now on; of several the first."""
    condition = f"tags.sweep_id = '{sweep.label}' and tags.role = 'parent'"
    if not client.search_runs([experiment], condition, max_results=1):
        tags = {"sweep": sweep.name, "sweep_id": sweep.label, "role": "parent"}
        client.create_run(experiment, tags=tags, run_name=sweep.label)
    parent, *others = client.search_runs([experiment], condition, **ALL)
    for other in others:  # of a request that MLflow's client repeated
        client.delete_run(other.info.run_id)
    tags = {"strategy": sweep.strategy, "command": sweep.command, "axes": json.dumps(sweep.axes)}
    tags["mlflow.note.content"] = f"{sweep.title}\n\n    {sweep.command}"
    for name, value in tags.items():
        client.set_tag(parent.info.run_id, name, value)
    client.update_run(parent.info.run_id, "RUNNING")
    return parent.info.run_id
