"""MLflow as a view of the storage: one experiment a sweep, a parent run, one child run a trial, for ever.

`python -m platform.tracking sync NAME` makes the same runs again from the storage, into an empty server too.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from platform.state.lock import hold
from platform.state.sweep_state import count_outcomes, is_unfinished
from platform.state.weights import weights_folder
from platform.tracking import database, views
from platform.tracking import mlflow_runs as finding
from platform.tracking.database import tracking_uri
from platform.tracking.mlflow_runs import ENDED, STATE_TAG, SWEEP_TAG, TRIAL_TAG, Runs
from trainables import benchmarks
from trainables.config import ids
from trainables.config.settings import Benchmark
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.storage.base import RESULT, STEPS, Storage
from trainables.storage.results import summarise

KEPT_TAG = "checkpoint"
"""Where a trial's weights are, as long as they are kept."""
SERIES = ("loss", "retain_loss", "cos_before", "cos_after", "grad_norm", "rectified_norm", "average_norm", "dot")
SERIES += ("coefficient", "clip_scale", "lr", "tokens_per_second", "peak_memory_bytes")
SERIES += ("observed_cos", "observed_retain_loss", "attempts", "rectified", "skipped")
"""The columns of steps.parquet that become series; yes and no become 1 and 0."""
BY_STEP = "eval_by_step"
"""Of a trial that was evaluated along its training: apart from `eval`, whose column shows what the trial came to, and
whose points are at step 0, which MLflow draws as bars, a run each."""
BATCH, PARAMS = 800, 90
"""So many metrics and parameters a request: MLflow takes 1,000 values of all kinds, 100 of them parameters."""
STATUS = {"finished": "FINISHED", "diverged": "FINISHED", "collapsed": "FINISHED"}


class Tracker:
    """One run for each trial; the parent's tag tells what they show.

    `mirrored`: when the attempt that each trial's run shows was started, of runs that are complete. `found`: the same
    of the results that the storage had at first.
    """

    def __init__(self, runs: Runs, sweep: dict[str, Any], store: Storage) -> None:
        self.runs = runs
        self.client = runs.client
        self.parent = runs.parent
        self.sweep = sweep
        self.store = store
        self.found = runs.attempts
        self.mirrored: dict[str, str | None] = {}

    def trial(self, trial_id: str) -> None:
        """Mirror one trial that has a result."""
        if trial_id in self.found and self.found[trial_id] == self.mirrored.get(trial_id):
            return
        result = self.store.result(trial_id)
        if result is None:
            return
        if self.mirrored.get(trial_id) == result["started"]:
            return
        trial = Trial.model_validate(result["config"])
        run = self.runs.of(trial_id, trial.label())
        if run.started not in (None, result["started"]):  # an earlier attempt, whose series would mix with this one's
            run = self.runs.again(trial_id, trial.label())
        self._log(run.id, trial, result)
        self.mirrored[trial_id] = result["started"]

    def look(self) -> None:
        """Learn which trials are mirrored already."""
        found = self.runs.look().items()
        self.mirrored = {trial_id: run.started for trial_id, run in found if run.complete}

    def _log(self, run_id: str, trial: Trial, result: dict[str, Any]) -> None:
        from mlflow.entities import Param, RunTag

        metrics = [*_numbers(trial, result), *self._steps(trial, result)]
        flat = _flatten(result["config"]) | views.axes(trial.rectifier)
        params = [Param(name, "none" if value is None else str(value)) for name, value in flat.items()]
        tags = [RunTag(name, value) for name, value in _tags(trial, result).items()]
        self.client.log_batch(run_id, metrics=metrics[:BATCH], params=params[:PARAMS], tags=tags)
        for start in range(BATCH, len(metrics), BATCH):
            self.client.log_batch(run_id, metrics=metrics[start : start + BATCH])
        for start in range(PARAMS, len(params), PARAMS):
            self.client.log_batch(run_id, params=params[start : start + PARAMS])
        self.client.log_inputs(run_id, datasets=[_dataset(trial)])
        self.client.log_artifact(run_id, str(self.store.trial(trial.id()) / RESULT))
        self.client.set_terminated(run_id, STATUS.get(result["status"], "FAILED"))

    def _steps(self, trial: Trial, result: dict[str, Any]) -> Iterator[Any]:
        """The series along training."""
        from mlflow.entities import Metric

        path, now = self.store.trial(trial.id()) / STEPS, _begun(result)
        for row in files.read_rows(path) if path.is_file() else ():
            known = {name: row[name] for name in SERIES if row.get(name) is not None and math.isfinite(row[name])}
            yield from (Metric(f"train/{name}", float(value), now, row["step"]) for name, value in known.items())

    def finish(self, counts: dict[str, int]) -> None:
        """Close the parent run with the sweep's counts, and tag the runs whose weights are kept with where they are.

        And the experiment with the view that MLflow's UI offers of the trials.
        """
        self._count(counts)
        self.runs.drop_twins(self.mirrored)
        for run in self.runs.tagged(f"tags.{KEPT_TAG} LIKE '%/%'"):
            if not self.store.exists(weights_folder(self.store, run.data.tags[TRIAL_TAG])):
                self.client.delete_tag(run.info.run_id, KEPT_TAG)
        for trial_id in self.sweep["trials"]:
            kept = weights_folder(self.store, trial_id)
            if trial_id in self.mirrored and self.store.exists(kept):
                run = self.runs.of(trial_id, trial_id)
                self.client.set_tag(run.id, KEPT_TAG, self.store.uri(kept))
        self.client.set_experiment_tag(self.runs.experiment, views.TAG, views.value(_benchmark(self.sweep, self.store)))
        self.client.set_tag(self.parent, STATE_TAG, ids.digest(self.mirrored))
        self.client.set_terminated(self.parent, "KILLED" if is_unfinished(self.sweep, counts) else "FINISHED")

    def _count(self, counts: dict[str, int]) -> None:
        """As the next point of a series: MLflow shows the last step's, whatever the clocks of its writers say."""
        from mlflow.entities import Metric

        earlier = self.client.get_metric_history(self.parent, "trials/total")
        step, now = max((point.step for point in earlier), default=-1) + 1, int(time.time() * 1000)
        told = [Metric(f"trials/{name}", float(value), now, step) for name, value in counts.items()]
        self.client.log_batch(self.parent, metrics=told)

    def report(self) -> None:
        """Show the report's page, tables and figures at the parent run."""
        folder = self.store.root / "reports" / self.runs.label
        if (folder / "index.html").is_file():
            self.client.log_artifacts(self.parent, str(folder), "report")


def _begun(result: dict[str, Any]) -> int:
    """The time of every point of a run, in milliseconds: logged again, it is the same point."""
    return int(datetime.fromisoformat(result["started"]).timestamp() * 1000)


def _numbers(trial: Trial, result: dict[str, Any]) -> list[Any]:
    """What the trial came to, and what it was at the steps that were evaluated."""
    from mlflow.entities import Metric

    now = _begun(result)
    found = {f"eval/{name}": value for name, value in result["metrics"].items()}
    found |= {f"time/{name}": value for name, value in result["seconds"].items()}
    for item in (result.get("calibration") or {}).get("targets", []):
        told = ("weight", *(goal.metric for goal in benchmarks.find(trial.benchmark.name).GOALS))
        found |= {f"calibration/{item['target']:g}/{name}": item[name] for name in told}
    metrics = [Metric(name, float(value), now, 0) for name, value in found.items() if value is not None]
    for entry in result.get("evaluations") or ():
        metrics += [
            Metric(f"{BY_STEP}/{name}", float(value), now, entry["step"])
            for name, value in entry.items()
            if name != "step" and value is not None
        ]
    return metrics


def _tags(trial: Trial, result: dict[str, Any]) -> dict[str, str]:
    """What runs are found by, and what a result was made with."""
    tags = {
        "method": trial.method,
        "rectifier": trial.rectifier.name,
        "split": trial.benchmark.split,
        "seed": str(trial.seed),
        "git_commit": str(result["commit"]),
        "git_dirty": str(result["dirty"]),
        "code": str(result.get("code", "unknown")),
        "started": result["started"],
        "outcome": result["status"],
    }
    if result.get("chosen_step"):
        tags["chosen_step"] = str(result["chosen_step"])
    if result["error"]:
        tags["failure"] = result["error"]["message"][:500]
    return tags


def _dataset(trial: Trial) -> Any:
    """The rows that a trial forgot, retained and was measured on, by their fingerprint."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    rows = trial.benchmark
    digest = (rows.fingerprint or "unknown").rpartition(":")[2][-36:]  # MLflow takes no more
    source = json.dumps({"data": rows.data, "sources": rows.sources, "revision": rows.revision})
    made = Dataset(name=f"{rows.name}/{rows.split}", digest=digest, source_type="benchmark", source=source)
    return DatasetInput(made, [InputTag("mlflow.data.context", "unlearning")])


def connect(sweep: dict[str, Any], store: Storage, *, fresh: bool = False) -> Tracker:
    """A tracker of one sweep; makes the experiment and the parent run where they are not there.

    `fresh`: look at every run, also where the parent says that all of them are there.
    """
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # with a traceback for what it raises anyway
    logging.getLogger("alembic").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    uri = tracking_uri(store)
    database.ensure(uri)
    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(sweep["name"])
    if known is None:
        place = str(store.root / "mlartifacts") if database.is_database(uri) else None
        experiment = client.create_experiment(sweep["name"], artifact_location=place)
    else:
        experiment = known.experiment_id
    name = f"{sweep['name']}-{sweep['hash']}"
    tags = {"sweep": sweep["name"], SWEEP_TAG: name, "role": "parent", "mlflow.note.content": sweep["title"]}
    parent, alone = finding.parent(client, experiment, tags, name)
    client.set_tag(parent.info.run_id, "selection", json.dumps(sweep.get("selection") or {}))
    if parent.info.status in ENDED:  # by an earlier start
        client.update_run(parent.info.run_id, "RUNNING")
    attempts = {key: brief.started for key in sweep["trials"] if (brief := summarise(store, key))}
    runs = Runs(client, experiment, parent.info.run_id, name, {"sweep": sweep["name"]}, attempts)
    tracker = Tracker(runs, sweep, store)
    if parent.data.tags.get(STATE_TAG) == ids.digest(tracker.found) and alone and not fresh:
        tracker.mirrored = dict(tracker.found)
    else:
        tracker.look()
    return tracker


def _benchmark(sweep: dict[str, Any], store: Storage) -> str:
    """The benchmark of a sweep: of its first result, else the one that is taken where none is named."""
    results = (store.result(trial_id) for trial_id in sweep["trials"])
    return next((found["config"]["benchmark"]["name"] for found in results if found), Benchmark().name)


def sync(sweep: dict[str, Any], store: Storage) -> int:
    """Mirror every finished trial of a sweep; returns how many. Raises InputError while its driver runs."""
    command = f"python -m platform.tracking sync {sweep['name']}-{sweep['hash']}"
    with hold(store, store.lock(sweep["name"], sweep["hash"]), command):
        store.download_trials(sweep["trials"])
        tracker = connect(sweep, store, fresh=True)
        done = [trial_id for trial_id in sweep["trials"] if store.result(trial_id)]
        for trial_id in done:
            tracker.trial(trial_id)
        tracker.finish(count_outcomes(sweep, store))
        tracker.report()
    return len(done)


def _flatten(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
