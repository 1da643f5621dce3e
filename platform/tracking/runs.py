"""One sweep's runs in MLflow: a parent, and below it one run for each trial. All by MLflow's client.

Every point of a run has the run's start as its time: MLflow keeps one of two equal points, so that a trial's result
completes the curves that were logged while it ran.
"""

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from filelock import FileLock

from platform.plan.overrides import flatten_settings
from platform.state.trial_outcomes import count_trials_by_outcome
from trainables import benchmarks
from trainables.common.deadlines import ANSWER_TIMEOUT
from trainables.common.wording import escape_markdown
from trainables.config.trial import Trial, setting_has_effect
from trainables.methods.method_constants import resolve_constants
from trainables.storage.atomic_files import parse_json_object, read_json, read_parquet_rows
from trainables.storage.file_names import EVALUATED_STATUSES, LIVE_CURVE_COLUMNS, LOST, PROGRESS, RESULT, STEPS, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile, read_sweep
from trainables.trial.progress import is_progress_writer_running

WHOLE_RESULT_RUN_STATUSES = ("FINISHED", "FAILED")
"""How the run of a trial ends when it shows a whole result."""
MetricPoint = tuple[str, float, int]


@dataclass
class SweepMlflowRuns:
    """The runs of one sweep, written from its storage; `runs`: MLflow's run by trial id; `sweep_id`: a tag of all."""

    client: Any
    experiment: str
    parent: str
    sweep: SweepFile
    store: Storage
    sweep_id: str
    runs: dict[str, Any] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """The part of an address that opens MLflow's page of the trials' runs, the best first."""
        goal = benchmarks.get_benchmark(self.sweep.benchmark or "tofu").GOALS[0]
        search = f"tags.sweep_id='{self.sweep_id}' and tags.trial_id!=''"
        query = {"workflowType": "machine_learning", "searchFilter": search}  # and not GenAI's pages
        query |= {"orderByKey": f"metrics.`eval/{goal.metric}`", "orderByAsc": str(goal.best == "lowest").lower()}
        return f"#/experiments/{self.experiment}/runs?{urlencode(query, quote_via=quote)}"

    def load_and_repair_trial_runs(self) -> None:
        """Find every trial's run. Delete doubled ones and those of no trial of the sweep, end those of interrupted."""
        condition = f"tags.sweep_id = '{self.sweep_id}' and tags.trial_id != ''"
        found = _search_runs(self.client, self.experiment, condition)
        self.runs = {}
        for run in sorted(found, key=lambda one: one.info.status in WHOLE_RESULT_RUN_STATUSES, reverse=True):
            trial_id = run.data.tags["trial_id"]
            if trial_id not in self.sweep.trials or self.runs.setdefault(trial_id, run) is not run:
                self.client.delete_run(run.info.run_id)
        for trial_id, run in self.runs.items():
            if run.info.status == "RUNNING":
                last = (read_json(self.store.trial(trial_id) / PROGRESS) or {}).get("beat", run.info.start_time / 1000)
                self.client.set_terminated(run.info.run_id, "KILLED", int(1000 * last))
                self.runs[trial_id] = self.client.get_run(run.info.run_id)

    def log_result(self, trial_id: str, result: dict[str, Any] | None = None) -> None:
        """Log a trial's result, by default the storage's, unless it has none or its run shows it."""
        from mlflow.entities import RunTag

        result = result or self.store.result(trial_id)
        if result is None:
            return
        trial = Trial.model_validate(result["config"])
        run = self._find_run(trial, result["started"])
        if run.info.status in WHOLE_RESULT_RUN_STATUSES:
            return
        key, start = run.info.run_id, run.info.start_time
        self.store.fetch(steps := self.store.trial(trial_id) / STEPS)
        points: list[tuple[str, Any, int]] = [(f"eval/{name}", value, 0) for name, value in result["metrics"].items()]
        points += [(f"time/{name}", value, 0) for name, value in result.get("seconds", {}).items()]
        goals = [goal.metric for goal in benchmarks.get_benchmark(trial.benchmark.name).GOALS]
        for item in (result.get("calibration") or {}).get("targets", []):
            points += [(f"calibration/{item['target']:g}/{name}", item[name], 0) for name in ("weight", *goals)]
        curves = read_parquet_rows(steps) if steps.is_file() else []
        for group, rows in (("eval_by_step", result.get("evaluations") or ()), ("train", curves)):
            points += [(f"{group}/{name}", row[name], row["step"]) for row in rows for name in row if name != "step"]
        finite = [one for one in points if isinstance(one[1], int | float) and math.isfinite(one[1])]
        tags = {"git_commit": result.get("commit"), "git_dirty": result.get("dirty"), "outcome": result["status"]}
        tags |= {"code": result.get("code", "unknown"), "chosen_step": result.get("chosen_step")}
        tags["failure"] = result["error"]["message"][:500] if result.get("error") else None
        shown = [RunTag(name, str(value)) for name, value in tags.items() if value is not None]
        self._log_points(key, finite, start, shown)
        self.client.log_artifact(key, str(self.store.trial(trial_id) / RESULT))
        status = "FINISHED" if result["status"] in (*EVALUATED_STATUSES, "diverged") else "FAILED"
        end = start + int(1000 * (result.get("seconds", {}).get("total") or 0))
        self.client.set_terminated(key, status, end)
        self.runs[trial_id] = self.client.get_run(key)

    def log_curves(self, trial: Trial) -> None:
        """Log the curves so far of a trial that runs; nothing before its training begins."""
        path = self.store.trial(trial.id()) / PROGRESS
        progress = parse_json_object(self.store.read_current_bytes(path) or b"") or {}
        if not progress.get("points") or is_progress_writer_running(progress) is False:
            return
        run, rows = self._find_run(trial, progress["started"]), progress["points"]
        points = [(f"train/{key}", row[key], row["step"]) for row in rows for key in LIVE_CURVE_COLUMNS if key in row]
        self._log_points(run.info.run_id, points, run.info.start_time)

    def finish(self) -> None:
        """Log how many trials ended how and where weights are kept, and end the parent run."""
        listed = read_sweep(self.store.sweep(self.sweep.name, self.sweep.hash))  # with what Optuna has added meanwhile
        counts = count_trials_by_outcome(listed, self.store)
        points = [(f"trials/{key}", value, 0) for key, value in counts.items()]
        self._log_points(self.parent, points, int(time.time() * 1000))
        self.load_and_repair_trial_runs()
        for trial_id, run in self.runs.items():
            folder = self.store.trial(trial_id) / WEIGHTS
            kept = self.store.uri(folder) if self.store.exists(folder) else ""
            if kept != run.data.tags.get("checkpoint", ""):
                self.client.set_tag(run.info.run_id, "checkpoint", kept)
        ends = [run.info.end_time for run in self.runs.values() if run.info.end_time]
        done = counts["total"] - counts["missing"] - counts[LOST]
        status = "KILLED" if done < self.sweep.planned_trial_count else "FINISHED"
        self.client.set_terminated(self.parent, status, max(ends, default=_milliseconds(self.sweep.created)))

    def log_report(self) -> None:
        """Log the report's page, tables and figures with the parent run."""
        folder = self.store.root / "reports" / self.sweep.label
        if (folder / "index.html").is_file():
            self.client.log_artifacts(self.parent, str(folder), "report")

    def _log_points(self, run_id: str, points: Iterable[MetricPoint], time: int, tags: Sequence[Any] = ()) -> None:
        from mlflow.entities import Metric

        named = ((re.sub(r"[^\w\-. :/]", "_", name), value, step) for name, value, step in points)  # MLflow's signs
        metrics = [Metric(name, float(value), time, int(step)) for name, value, step in named]
        self.client.log_batch(run_id, metrics, (), tags)

    def _find_run(self, trial: Trial, started: str) -> Any:
        """Return the run of a trial's attempt that was started then, a new one if need be; delete another attempt's."""
        from mlflow.entities import Param

        run = self.runs.get(trial.id())
        if run is not None and run.data.tags.get("started") == started and run.info.status != "KILLED":
            return run
        if run is not None:
            self.client.delete_run(run.info.run_id)
        tags = {"sweep": self.sweep.name, "sweep_id": self.sweep_id, "mlflow.parentRunId": self.parent}
        tags |= {"trial_id": trial.id(), "started": started, "method": trial.method}
        tags |= {"rectifier": trial.rectifier.name, "split": trial.benchmark.split, "seed": str(trial.seed)}
        run = self.client.create_run(self.experiment, _milliseconds(started), tags, trial.label(self.sweep.varied_axes))
        numbers = asdict(resolve_constants(trial.method, trial.objective, trial.benchmark.split))
        read = [name for name in numbers if setting_has_effect(f"objective.{name}", trial.method, trial.rectifier.name)]
        flat = flatten_settings(trial.model_dump(mode="json")) | {f"constants.{name}": numbers[name] for name in read}
        settings = {name: "none" if value is None else str(value) for name, value in flat.items()}
        self.client.log_batch(run.info.run_id, params=[Param(*one) for one in settings.items()])
        self.runs[trial.id()] = run
        return run


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def tracking_uri(store: Storage) -> str:
    """Return MLFLOW_TRACKING_URI, else SQLite in the storage."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.root / 'mlflow.db'}"


def open_mlflow_runs(sweep: SweepFile, store: Storage) -> SweepMlflowRuns:
    """Return the runs of a sweep; make its experiment and its parent run if they are missing."""
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # with a traceback for what it raises anyway
    logging.getLogger("alembic").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    uri, file = tracking_uri(store), store.root / "mlflow.db"
    if uri.startswith("http"):
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{ANSWER_TIMEOUT:.0f}")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "4")  # by default eight tries of 120 s
    own = uri == f"sqlite:///{file}"
    if own:  # let MLflow make its tables elsewhere: after a kill amid its migrations it never opens a database again
        made = file.parent / "sweeps" / ".mlflow.db"
        made.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(made.with_suffix(".lock")):  # of two sweeps that begin in a new storage one makes it
            if not file.exists():
                made.unlink(missing_ok=True)
                MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments(max_results=1)
                made.replace(file)
    client = MlflowClient(tracking_uri=uri)
    opened = uri.startswith(("sqlite", "postgresql", "mysql", "mssql"))  # by MLflow's client, as artifacts are written
    folder = str(store.root / "mlartifacts") if opened else None
    known = client.get_experiment_by_name(sweep.name)
    if known is not None and known.lifecycle_stage == "deleted":  # in MLflow's page
        client.restore_experiment(known.experiment_id)
    if known is not None and own and known.artifact_location != folder:  # copied or moved: MLflow moves no files
        name = f"{sweep.name} in {known.artifact_location} ({known.experiment_id})"
        client.rename_experiment(known.experiment_id, name)
        known = None
    experiment = known.experiment_id if known else client.create_experiment(sweep.name, folder)
    sweep_id = sweep.label if own else f"{sweep.label}@{sweep.created}"  # others may write to a server, too
    parent = _open_parent(client, experiment, sweep, sweep_id)
    runs = SweepMlflowRuns(client, experiment, parent, sweep, store, sweep_id)
    runs.load_and_repair_trial_runs()
    return runs


def _search_runs(client: Any, experiment: str, condition: str) -> list[Any]:
    """Return an experiment's runs, without those whose files MLflow would write elsewhere than the experiment's."""
    place = client.get_experiment(experiment).artifact_location.rstrip("/") + "/"
    asked: dict[str, Any] = {"max_results": 50_000, "order_by": ["attributes.start_time ASC"]}  # MLflow gives no more
    found = [(run, run.info.artifact_uri) for run in client.search_runs([experiment], condition, **asked)]
    return [run for run, uri in found if uri.startswith(place) and "/../" not in uri]


def _open_parent(client: Any, experiment: str, sweep: SweepFile, sweep_id: str) -> str:
    """Return the id of the sweep's parent run, which is under way from now on; of several the first."""
    condition = f"tags.sweep_id = '{sweep_id}' and tags.role = 'parent'"
    if not _search_runs(client, experiment, condition):
        tags = {"sweep": sweep.name, "sweep_id": sweep_id, "role": "parent"}
        client.create_run(experiment, _milliseconds(sweep.created), tags, sweep.label)
    parent, *others = _search_runs(client, experiment, condition)
    for other in others:  # of a request that MLflow's client repeated
        client.delete_run(other.info.run_id)
    tags = {"strategy": sweep.strategy, "command": sweep.command, "axes": json.dumps(sweep.axes)}
    tags["mlflow.note.content"] = f"{escape_markdown(sweep.title)}\n\n    {sweep.command}"
    for name, value in tags.items():
        client.set_tag(parent.info.run_id, name, value)
    client.update_run(parent.info.run_id, "RUNNING")
    return parent.info.run_id
