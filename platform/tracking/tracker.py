"""MLflow as a view of the storage: one experiment a sweep, a parent run, one child run a trial, for ever.

MLflow's client repeats a request that was not answered in time, which makes two runs of one: others are deleted again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from platform.state.lock import acquire_lock
from platform.state.trial_outcomes import count_outcomes, is_unfinished, read_trial_results
from platform.tracking import bulk, database, run_content, views
from platform.tracking.run_content import Curves, Point, RunContent
from search_spaces.schema.settings_with_effect import name_trial
from trainables.config.ids import digest
from trainables.config.settings import Benchmark
from trainables.config.trial import Trial
from trainables.robustness.came_back import read_shares
from trainables.storage.folder_storage import Storage
from trainables.storage.names import PROGRESS, RESULT, STEPS, WEIGHTS
from trainables.storage.sweep_file import SweepFile

PARENT_TAG, TRIAL_TAG, SWEEP_TAG = "mlflow.parentRunId", "trial_id", "sweep_id"
STORAGE_TAG = "storage"
"""Of a run that was made while its trial ran: where the trial's progress is."""
KEPT_TAG = "checkpoint"
"""Where a trial's weights are, as long as they are kept."""
WHOLE, ENDED = ("FINISHED", "FAILED"), ("FINISHED", "FAILED", "KILLED")
"""How a trial's run ends that shows a result, and how any run ends."""
ATTACKED_TAG = "attacked"
"""Which shares of a trial's attacks are shown, as a hash."""
AT_ONCE = 100
"""Runs of one transaction."""


@dataclass
class Run:
    """A trial's run: when the attempt that it shows was started, None if not all is shown; where kept weights are.

    `attacked`: which shares of attacks are shown.
    `points`: the curves of a trial that runs, as they are shown; None: not known, or the trial does not run.
    """

    id: str
    started: str | None = None
    weights: str | None = None
    attacked: str | None = None
    points: list[Point] | None = None


class Tracker:
    """The runs of one sweep, written from its storage. `runs`: by trial id, those that MLflow has."""

    def __init__(self, client: Any, experiment: str, parent: str, sweep: SweepFile, store: Storage) -> None:
        self.client = client
        self.experiment = experiment
        self.parent = parent
        self.sweep = sweep
        self.store = store
        self.own = database.is_own(client.tracking_uri, store)
        self.runs: dict[str, Run] = {}

    def load_runs(self) -> None:
        """Find every trial's run, a thousand at a time; of several runs of a trial keep one, a complete one if any.

        End those whose trial or driver was killed.
        """
        condition, token, found = f"tags.{SWEEP_TAG} = '{self.sweep.label}' and tags.{TRIAL_TAG} != ''", None, []
        while token != "":
            page = self.client.search_runs([self.experiment], condition, page_token=token)
            found += page
            token = page.token or ""
        self.runs = {}
        for one in sorted(found, key=lambda one: one.info.status in WHOLE, reverse=True):
            tags, run_id = one.data.tags, one.info.run_id
            if not self.own and "started" not in tags and tags.get(STORAGE_TAG) != self.store.location:
                continue  # of a trial that another driver runs
            if tags[TRIAL_TAG] in self.runs:
                self.client.delete_run(run_id)
                continue
            shown = tags.get("started") if one.info.status in WHOLE else None
            if one.info.status not in ENDED:
                curves = self._read_curves(tags[TRIAL_TAG])
                self.client.set_terminated(run_id, "KILLED", curves and curves.seen)
            self.runs[tags[TRIAL_TAG]] = Run(run_id, shown, tags.get(KEPT_TAG), tags.get(ATTACKED_TAG))
            if tags.get(PARENT_TAG) != self.parent:
                self.client.set_tag(run_id, PARENT_TAG, self.parent)

    def log_trial(self, trial_id: str) -> None:
        """Mirror a trial if it has a result."""
        if (result := self.store.result(trial_id)) is not None:
            self.log_trials({trial_id: result})

    def log_trials(self, results: Mapping[str, dict[str, Any]]) -> None:
        """Mirror the trials whose runs do not show these results."""
        news = [key for key in results if key not in self.runs or self.runs[key].started != results[key]["started"]]
        for first in range(0, len(news), AT_ONCE):
            runs = {key: self._describe(key, results[key]) for key in news[first : first + AT_ONCE]}
            for key, run_id in zip(runs, self._insert(runs) if self.own else self._send(runs), strict=True):
                old, self.runs[key] = self.runs.get(key), Run(run_id, results[key]["started"])
                if old and old.id != run_id:  # of another attempt, or a part
                    self.client.delete_run(old.id)

    def log_curves(self, trial: Trial) -> None:
        """Show the curves of a trial that runs. Its run shows one attempt: of another one, a new run is made."""
        from mlflow.entities import Metric, Param

        trial_id = trial.id()
        curves, run = self._read_curves(trial_id), self.runs.get(trial_id)
        shown = run.points if run else None
        if curves is None or curves.dead or curves.points == shown:
            return
        if run is None or shown is None or curves.points[: len(shown)] != shown:
            tags = self._tags(trial_id) | run_content.describe_trial(trial) | {STORAGE_TAG: self.store.location}
            name, old, shown = name_trial(trial, self.sweep.varied), run, []
            run = Run(self.client.create_run(self.experiment, curves.start, tags, name).info.run_id)
            self.runs[trial_id] = run
            if old:
                self.client.delete_run(old.id)
        run.points = None  # not known, should the request fail
        params = {} if shown else run_content.describe_settings(trial, trial.model_dump(mode="json"))
        metrics = [Metric(name, value, curves.start, step) for name, value, step in curves.points[len(shown) :]]
        self.client.log_batch(run.id, metrics, [Param(*one) for one in params.items()])
        run.points = curves.points

    def _read_curves(self, trial_id: str) -> Curves | None:
        return run_content.describe_curves(self.store.read_newest(self.store.trial(trial_id) / PROGRESS))

    def _tags(self, trial_id: str) -> dict[str, str]:
        return {"sweep": self.sweep.name, SWEEP_TAG: self.sweep.label, PARENT_TAG: self.parent, TRIAL_TAG: trial_id}

    def _describe(self, trial_id: str, result: dict[str, Any]) -> RunContent:
        trial = Trial.model_validate(result["config"])
        name, tags = name_trial(trial, self.sweep.varied), self._tags(trial_id)
        self.store.fetch(steps := self.store.trial(trial_id) / STEPS)
        return run_content.describe_run(trial, name, tags, result, steps)

    def _insert(self, runs: Mapping[str, RunContent]) -> Iterable[str]:
        """Copy results to where their runs have them, then write the runs into the storage's own database.

        Return the runs' ids. What fails leaves nothing, for it is tried again.
        """
        artifacts, ids = self.store.root / database.ARTIFACTS, {}
        for trial_id in runs:  # a run that shows a part becomes whole
            part = trial_id in self.runs and self.runs[trial_id].started is None
            ids[trial_id] = self.runs[trial_id].id if part else uuid.uuid4().hex
        try:
            for trial_id, run_id in ids.items():
                place = artifacts / run_id / "artifacts"
                place.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.store.trial(trial_id) / RESULT, place / RESULT)
            written = dict(zip(ids.values(), runs.values(), strict=True))
            bulk.insert_runs(self.client._tracking_client.store, int(self.experiment), str(artifacts), written)
        except Exception:
            for run_id in ids.values():
                shutil.rmtree(artifacts / run_id, ignore_errors=True)
            raise
        return ids.values()

    def _send(self, runs: Mapping[str, RunContent]) -> Iterator[str]:
        """Write runs by MLflow's client, each complete when it has ended there; yield their ids.

        A run that shows a part of the result's points is completed.
        """
        from mlflow.entities import Metric, Param, RunTag

        for trial_id, run in runs.items():
            params, tags = [Param(*one) for one in run.params.items()], [RunTag(*one) for one in run.tags.items()]
            old = self.runs.get(trial_id)
            shown = set(old.points or ()) if old else set()
            part = bool(shown) and shown.issubset(run.points)
            if old and part and self.client.get_run(old.id).info.lifecycle_stage == "active":  # nobody deleted it
                made, params, old.points = old.id, [], None  # not known, should a request fail
            else:
                made, shown = self.client.create_run(self.experiment, run.start, run.tags, run.name).info.run_id, set()
            points = [point for point in run.points if point not in shown]
            metrics = [Metric(name, value, run.start, step) for name, value, step in points]
            self.client.log_batch(made, metrics, params, tags)
            self.client.log_artifact(made, str(self.store.trial(trial_id) / RESULT))
            self.client.set_terminated(made, run.status, run.end)
            yield made

    def finish(self, counts: dict[str, int]) -> None:
        """Close the parent run with the sweep's counts and save the trials' view.

        Runs are told where weights are kept, and what attacks on them brought back.
        """
        from mlflow.entities import Metric

        now, earlier = int(time.time() * 1000), self.client.get_metric_history(self.parent, "trials/total")
        step = max((point.step for point in earlier), default=-1) + 1  # MLflow shows the last, whatever clocks say
        told = [Metric(f"trials/{name}", value, now, step) for name, value in counts.items()]
        self.client.log_batch(self.parent, told)
        if not self.own or any(run.started is None for run in self.runs.values()):
            self.load_runs()  # without those that a repeated request made or a person deleted
        for trial_id, run in self.runs.items():
            folder = self.store.trial(trial_id) / WEIGHTS
            weights = self.store.uri(folder) if self.store.exists(folder) else None
            if weights and weights != run.weights:
                self.client.set_tag(run.id, KEPT_TAG, weights)
            elif run.weights and not weights:
                self.client.delete_tag(run.id, KEPT_TAG)
            if weights and (shares := read_shares(trial_id, self.store)) and digest(shares)[:12] != run.attacked:
                points = run_content.describe_attacks(shares)
                self.client.log_batch(run.id, [Metric(name, value, now, step) for name, value, step in points])
                self.client.set_tag(run.id, ATTACKED_TAG, digest(shares)[:12])
        results = filter(None, map(self.store.result, self.sweep.trials))  # older sweep files name no benchmark
        named = (Trial.model_validate(result["config"]).benchmark.name for result in results)
        benchmark = self.sweep.benchmark or next(named, Benchmark().name)
        view = views.saved_view(self.sweep.label, benchmark, self.sweep.varied)
        self.client.set_experiment_tag(self.experiment, views.TAG.format(sweep=self.sweep.label), view)
        self.client.set_terminated(self.parent, "KILLED" if is_unfinished(self.sweep, counts) else "FINISHED")

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
    database.place_artifacts(uri, store, sweep.name)
    known = client.get_experiment_by_name(sweep.name)
    location = str(store.root / database.ARTIFACTS) if database.is_database(uri) else None
    experiment = known.experiment_id if known else client.create_experiment(sweep.name, location)
    tracker = Tracker(client, experiment, _ensure_parent(client, experiment, sweep), sweep, store)
    tracker.load_runs()
    return tracker


def _ensure_parent(client: Any, experiment: str, sweep: SweepFile) -> str:
    """Return the id of the sweep's parent run, made if it is missing, under way from now on. Of several the first."""
    condition, order = f"tags.{SWEEP_TAG} = '{sweep.label}' and tags.role = 'parent'", ["attributes.start_time ASC"]
    found = client.search_runs([experiment], condition, order_by=order)
    if not found:
        tags = {"sweep": sweep.name, SWEEP_TAG: sweep.label, "role": "parent"}
        client.create_run(experiment, tags=tags, run_name=sweep.label)
        found = client.search_runs([experiment], condition, order_by=order)
    parent, *others = found
    for other in others:
        client.delete_run(other.info.run_id)
    told = {"strategy": sweep.strategy, "command": sweep.command, "axes": json.dumps(sweep.axes)}
    told |= {"selection": sweep.selection.model_dump_json()}
    told |= {"mlflow.note.content": "\n\n".join([sweep.title, *sweep.settings, f"    {sweep.command}"])}
    for name, value in told.items():
        client.set_tag(parent.info.run_id, name, value)
    if parent.info.status in ENDED:  # by an earlier start
        client.update_run(parent.info.run_id, "RUNNING")
    return parent.info.run_id


def sync(sweep: SweepFile, store: Storage) -> int:
    """Mirror every finished trial of a sweep and make its journal anew; return how many trials.

    Raises InputError while its driver runs.
    """
    from platform.schedule.dashboard_journal import sync_journal

    command = f"python -m platform.tracking sync {sweep.label}"
    with acquire_lock(store, store.lock(sweep.name, sweep.hash), command):
        store.sync_trials(sweep.trials)
        tracker = open_tracker(sweep, store)
        done, damaged = read_trial_results(sweep.trials, store)
        for path in damaged:
            print(f"damaged: {path}; its trial is not shown", flush=True)
        tracker.log_trials(done)
        tracker.finish(count_outcomes(sweep, store))
        tracker.log_report()
        if journal := sync_journal(sweep, store):
            print(f"Optuna's journal: {journal.path}")
    return len(done)
