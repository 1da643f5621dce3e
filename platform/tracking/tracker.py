"""MLflow as a view of the storage: one experiment a sweep, a parent run, one child run a trial, for ever.

MLflow's client repeats a request that was not answered in time, which makes two runs of one: others are deleted again.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from platform.state.lock import acquire_lock
from platform.state.sweep_state import count_outcomes, is_unfinished, read_trial_results
from platform.state.weights import weights_folder
from platform.tracking import database, run_content, views
from search_spaces.schema.axes import name_trial
from trainables.config.settings import Benchmark
from trainables.config.trial import Trial
from trainables.storage.base import RESULT, STEPS, Storage
from trainables.storage.sweeps import SweepFile

PARENT_TAG, TRIAL_TAG, SWEEP_TAG = "mlflow.parentRunId", "trial_id", "sweep_id"
KEPT_TAG = "checkpoint"
"""Where a trial's weights are, as long as they are kept."""
STATUS = {"finished": "FINISHED", "diverged": "FINISHED", "collapsed": "FINISHED"}
ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass
class Run:
    """A trial's run: when the attempt that it shows was started, whether it shows all, where kept weights are."""

    id: str
    started: str | None = None
    complete: bool = False
    weights: str | None = None


class Tracker:
    """The runs of one sweep, written from its storage. `runs`: by trial id, those that MLflow has."""

    def __init__(self, client: Any, experiment: str, parent: str, sweep: SweepFile, store: Storage) -> None:
        self.client = client
        self.experiment = experiment
        self.parent = parent
        self.sweep = sweep
        self.store = store
        self.runs: dict[str, Run] = {}

    def load_runs(self) -> None:
        """Find every trial's run, a thousand at a time; of several runs of a trial keep one, a complete one if any."""
        condition, token, found = f"tags.{SWEEP_TAG} = '{self.sweep.label}' and tags.{TRIAL_TAG} != ''", None, []
        while token != "":
            page = self.client.search_runs([self.experiment], condition, page_token=token)
            found += page
            token = page.token or ""
        self.runs = {}
        for one in sorted(found, key=lambda one: one.info.status in ENDED, reverse=True):
            tags, run_id = one.data.tags, one.info.run_id
            if tags[TRIAL_TAG] in self.runs:
                self.client.delete_run(run_id)
                continue
            self.runs[tags[TRIAL_TAG]] = Run(run_id, tags.get("started"), one.info.status in ENDED, tags.get(KEPT_TAG))
            if tags.get(PARENT_TAG) != self.parent:
                self.client.set_tag(run_id, PARENT_TAG, self.parent)

    def log_trial(self, trial_id: str) -> None:
        """Mirror a trial where it has a result that its run does not show."""
        result, run = self.store.result(trial_id), self.runs.get(trial_id)
        if result is None or (run and run.complete and run.started == result["started"]):
            return
        trial = Trial.model_validate(result["config"])
        if run and run.started not in (None, result["started"]):  # series of another attempt would mix with this one's
            self.client.delete_run(run.id)
            run = None
        if run is None:
            tags = {"sweep": self.sweep.name, SWEEP_TAG: self.sweep.label}
            tags |= {PARENT_TAG: self.parent, TRIAL_TAG: trial_id}
            run = Run(
                self.client.create_run(
                    self.experiment, tags=tags, run_name=name_trial(trial, self.sweep.varied)
                ).info.run_id
            )
            self.runs[trial_id] = run
        folder = self.store.trial(trial_id)
        self.client.log_batch(
            run.id,
            metrics=run_content.run_metrics(trial, result, folder / STEPS),
            params=run_content.run_params(trial, result["config"]),
            tags=run_content.run_tags(trial, result),
        )
        self.client.log_inputs(run.id, datasets=[run_content.run_dataset(trial)])
        self.client.log_artifact(run.id, str(folder / RESULT))
        self.client.set_terminated(run.id, STATUS.get(result["status"], "FAILED"))
        run.started, run.complete = result["started"], True

    def finish(self, counts: dict[str, int]) -> None:
        """Close the parent run with the sweep's counts, tag runs with their kept weights, and save the trials' view."""
        self._log_counts(counts)
        self.load_runs()
        for trial_id, run in self.runs.items():
            folder = weights_folder(self.store, trial_id)
            weights = self.store.uri(folder) if self.store.exists(folder) else None
            if weights and weights != run.weights:
                self.client.set_tag(run.id, KEPT_TAG, weights)
            elif run.weights and not weights:
                self.client.delete_tag(run.id, KEPT_TAG)
        results = (self.store.result(trial_id) for trial_id in self.sweep.trials)
        benchmark = next((found["config"]["benchmark"]["name"] for found in results if found), Benchmark().name)
        self.client.set_experiment_tag(self.experiment, views.TAG, views.saved_view(benchmark, self.sweep.varied))
        self.client.set_terminated(self.parent, "KILLED" if is_unfinished(self.sweep, counts) else "FINISHED")

    def _log_counts(self, counts: dict[str, int]) -> None:
        """Log the next point of a series: MLflow shows the last step's, whatever the clocks of its writers say."""
        from mlflow.entities import Metric

        earlier = self.client.get_metric_history(self.parent, "trials/total")
        step, now = max((point.step for point in earlier), default=-1) + 1, int(time.time() * 1000)
        metrics = [Metric(f"trials/{name}", float(value), now, step) for name, value in counts.items()]
        self.client.log_batch(self.parent, metrics=metrics)

    def log_report(self) -> None:
        """Show the report's page, tables and figures at the parent run."""
        folder = self.store.root / "reports" / self.sweep.label
        if (folder / "index.html").is_file():
            self.client.log_artifacts(self.parent, str(folder), "report")


def open_tracker(sweep: SweepFile, store: Storage) -> Tracker:
    """Return a tracker of one sweep; make the experiment and the parent run where they are missing."""
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # with a traceback for what it raises anyway
    logging.getLogger("alembic").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    uri = database.tracking_uri(store)
    database.prepare_database(uri, store)
    client = MlflowClient(tracking_uri=uri)
    known, artifacts = client.get_experiment_by_name(sweep.name), str(store.root / database.ARTIFACTS)
    if known is None:
        location = artifacts if database.is_database(uri) else None
        experiment = client.create_experiment(sweep.name, artifact_location=location)
    else:
        database.move_artifacts_of_server(uri, known, artifacts)
        experiment = known.experiment_id
    tracker = Tracker(client, experiment, _ensure_parent(client, experiment, sweep), sweep, store)
    tracker.load_runs()
    return tracker


def _ensure_parent(client: Any, experiment: str, sweep: SweepFile) -> str:
    """Return the id of the sweep's parent run, made if it is missing, under way from now on. Of several the first."""
    condition, order = f"tags.{SWEEP_TAG} = '{sweep.label}' and tags.role = 'parent'", ["attributes.start_time ASC"]
    found = client.search_runs([experiment], condition, order_by=order)
    if not found:
        tags = {
            "sweep": sweep.name,
            SWEEP_TAG: sweep.label,
            "role": "parent",
        }
        client.create_run(experiment, tags=tags, run_name=sweep.label)
        found = client.search_runs([experiment], condition, order_by=order)
    parent, *others = found
    for other in others:
        client.delete_run(other.info.run_id)
    client.set_tag(parent.info.run_id, "mlflow.note.content", "\n\n".join([sweep.title, *sweep.settings]))
    client.set_tag(parent.info.run_id, "selection", sweep.selection.model_dump_json())
    if parent.info.status in ENDED:  # by an earlier start
        client.update_run(parent.info.run_id, "RUNNING")
    return parent.info.run_id


def sync(sweep: SweepFile, store: Storage) -> int:
    """Mirror every finished trial of a sweep and make its journal anew; return how many trials.

    Raises InputError while its driver runs.
    """
    from platform.schedule.journal import sync_journal

    command = f"python -m platform.tracking sync {sweep.label}"
    with acquire_lock(store, store.lock(sweep.name, sweep.hash), command):
        store.download_trials(sweep.trials)
        tracker = open_tracker(sweep, store)
        done, damaged = read_trial_results(sweep.trials, store)
        for path in damaged:
            print(f"damaged: {path}; its trial is not shown", flush=True)
        for trial_id in done:
            tracker.log_trial(trial_id)
        tracker.finish(count_outcomes(sweep, store))
        tracker.log_report()
        if journal := sync_journal(sweep, store):
            print(f"Optuna's journal: {journal.path}")
    return len(done)
