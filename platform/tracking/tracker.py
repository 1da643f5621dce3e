"""MLflow as a view of the storage: one experiment a sweep, a parent run, one child run a trial, for ever.

`python -m platform.tracking sync NAME` makes the same runs again from the storage, into an empty server too.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

from platform.state.lock import hold
from platform.state.sweep_state import count_outcomes, is_unfinished
from platform.state.weights import weights_folder
from platform.tracking import database, run_content, views
from platform.tracking.mlflow_runs import ENDED, STATE_TAG, SWEEP_TAG, TRIAL_TAG, TrialRuns, ensure_parent
from trainables.config import ids
from trainables.config.settings import Benchmark
from trainables.config.trial import Trial
from trainables.storage.base import RESULT, STEPS, Storage
from trainables.storage.results import summarise

KEPT_TAG = "checkpoint"
"""Where a trial's weights are, as long as they are kept."""
STATUS = {"finished": "FINISHED", "diverged": "FINISHED", "collapsed": "FINISHED"}


class Tracker:
    """The runs of one sweep, written from its storage.

    `mirrored`: when the attempt that each trial's run shows was started, of runs that are complete. The parent's
    STATE_TAG is its digest.
    """

    def __init__(self, runs: TrialRuns, sweep: dict[str, Any], store: Storage) -> None:
        self.runs = runs
        self.client = runs.client
        self.parent = runs.parent
        self.sweep = sweep
        self.store = store
        self.mirrored: dict[str, str | None] = {}

    def log_trial(self, trial_id: str) -> None:
        """Mirror a trial where it has a result that its run does not show."""
        brief = summarise(self.store, trial_id)
        if brief is None or self.mirrored.get(trial_id) == brief.started:
            return
        result = self.store.result(trial_id)
        if result is None:
            return
        trial = Trial.model_validate(result["config"])
        run = self.runs.get_or_create(trial_id, trial.label())
        if run.started not in (None, result["started"]):  # an earlier attempt, whose series would mix with this one's
            run = self.runs.replace(trial_id, trial.label())
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
        self.mirrored[trial_id] = result["started"]

    def load_mirrored(self) -> None:
        """Ask MLflow which trials are mirrored already."""
        found = self.runs.load().items()
        self.mirrored = {trial_id: run.started for trial_id, run in found if run.complete}

    def finish(self, counts: dict[str, int]) -> None:
        """Close the parent run with the sweep's counts, tag runs with their kept weights, and save the trials' view."""
        self._log_counts(counts)
        self.runs.delete_duplicates(self.mirrored)
        for run in self.runs.search(f"tags.{KEPT_TAG} LIKE '%/%'"):
            if not self.store.exists(weights_folder(self.store, run.data.tags[TRIAL_TAG])):
                self.client.delete_tag(run.info.run_id, KEPT_TAG)
        for trial_id in self.sweep["trials"]:
            kept = weights_folder(self.store, trial_id)
            if trial_id in self.mirrored and self.store.exists(kept):
                run = self.runs.get_or_create(trial_id, trial_id)
                self.client.set_tag(run.id, KEPT_TAG, self.store.uri(kept))
        results = (self.store.result(trial_id) for trial_id in self.sweep["trials"])
        benchmark = next((found["config"]["benchmark"]["name"] for found in results if found), Benchmark().name)
        self.client.set_experiment_tag(self.runs.experiment, views.TAG, views.saved_view(benchmark))
        self.client.set_tag(self.parent, STATE_TAG, ids.digest(self.mirrored))
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
        folder = self.store.root / "reports" / self.runs.label
        if (folder / "index.html").is_file():
            self.client.log_artifacts(self.parent, str(folder), "report")


def connect(sweep: dict[str, Any], store: Storage, *, fresh: bool = False) -> Tracker:
    """Return a tracker of one sweep; make the experiment and the parent run where they are missing.

    `fresh`: ask for every run, also where the parent says that all of them are there.
    """
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # with a traceback for what it raises anyway
    logging.getLogger("alembic").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    uri = database.tracking_uri(store)
    database.create_database(uri)
    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(sweep["name"])
    if known is None:
        artifacts = str(store.root / "mlartifacts") if database.is_database(uri) else None
        experiment = client.create_experiment(sweep["name"], artifact_location=artifacts)
    else:
        experiment = known.experiment_id
    label = f"{sweep['name']}-{sweep['hash']}"
    tags = {"sweep": sweep["name"], SWEEP_TAG: label, "role": "parent", "mlflow.note.content": sweep["title"]}
    parent, alone = ensure_parent(client, experiment, tags, label)
    client.set_tag(parent.info.run_id, "selection", json.dumps(sweep.get("selection") or {}))
    if parent.info.status in ENDED:  # by an earlier start
        client.update_run(parent.info.run_id, "RUNNING")
    attempts = {key: brief.started for key in sweep["trials"] if (brief := summarise(store, key))}
    runs = TrialRuns(client, experiment, parent.info.run_id, label, {"sweep": sweep["name"]}, attempts)
    tracker = Tracker(runs, sweep, store)
    if parent.data.tags.get(STATE_TAG) == ids.digest(attempts) and alone and not fresh:
        tracker.mirrored = dict(attempts)
    else:
        tracker.load_mirrored()
    return tracker


def sync(sweep: dict[str, Any], store: Storage) -> int:
    """Mirror every finished trial of a sweep; return how many. Raises InputError while its driver runs."""
    command = f"python -m platform.tracking sync {sweep['name']}-{sweep['hash']}"
    with hold(store, store.lock(sweep["name"], sweep["hash"]), command):
        store.download_trials(sweep["trials"])
        tracker = connect(sweep, store, fresh=True)
        done = [trial_id for trial_id in sweep["trials"] if store.result(trial_id)]
        for trial_id in done:
            tracker.log_trial(trial_id)
        tracker.finish(count_outcomes(sweep, store))
        tracker.log_report()
    return len(done)
