"""A small sweep that was sent to MLflow once, and what is read of its runs there."""

from __future__ import annotations

from typing import Any

import pytest

from platform.tracking import tracker
from tests.support.tracked_store import TRIALS, write_store, write_sweep
from trainables.storage.base import Storage


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return write_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture(scope="module")
def client(store: Storage) -> Any:
    """The tracking store after one sync."""
    from mlflow import MlflowClient

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert tracker.sync(write_sweep(store), store) == 4
    return MlflowClient(tracking_uri=f"sqlite:///{store.root / 'mlflow.db'}")


def all_runs(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("tiny")
    return client.search_runs([experiment.experiment_id])


def run_of(client: Any, name: str) -> Any:
    return next(run for run in all_runs(client) if run.data.tags.get("trial_id") == TRIALS[name].id())


def parent_of(client: Any) -> Any:
    return next(run for run in all_runs(client) if run.data.tags.get("role") == "parent")


def everything(client: Any) -> dict[str, Any]:
    """All that a person can see of the runs, every point of every series included."""
    found = {}
    for run in all_runs(client):
        series = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        points = {name: [(point.step, point.value) for point in history] for name, history in series.items()}
        found[run.info.run_id] = (run.info.status, run.data.params, run.data.tags, points)
    return found
