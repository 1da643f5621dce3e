"""Runs written into the storage's own database many at a time: MLflow's client takes 0.1 s of a processor for each.

The rows are those that its client writes (mlflow.store.tracking.sqlalchemy_store, 3.17).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from platform.tracking.run_content import RunContent

Row = tuple[str, dict[str, Any]]
"""A table's name, and values by column."""


def insert_runs(store: Any, experiment: int, artifacts: str, runs: Mapping[str, RunContent]) -> None:
    """Insert runs, by their ids, with all that they show, in one transaction.

    Of a run that is there already, what others wrote (tags such as a person's note) stays.

    `store`: MLflow's. The artifacts of a run lie in ARTIFACTS/ID/artifacts.
    """
    from mlflow.store.db.base_sql_model import Base

    rows = defaultdict(list)
    for key, run in runs.items():
        place = {"experiment_id": experiment, "artifact_uri": f"{artifacts}/{key}/artifacts"}
        for table, row in _make_run(run, key, place):
            rows[table].append(row)
    with store.ManagedSessionMaker(read_only=False) as session:
        for table in map(Base.metadata.tables.__getitem__, ("metrics", "latest_metrics")):
            session.execute(table.delete().where(table.c.run_uuid.in_(runs)))
        for table, found in rows.items():
            session.execute(Base.metadata.tables[table].insert().prefix_with("OR REPLACE"), found)


def _make_run(run: RunContent, key: str, place: dict[str, Any]) -> Iterator[Row]:
    """Yield a run, its tags, parameters, metrics and the last one of each metric. Raises MlflowException."""
    from mlflow.entities import Param, RunTag
    from mlflow.utils.validation import _validate_batch_log_data

    times = {"start_time": run.start, "end_time": run.end, "status": run.status, "lifecycle_stage": "active"}
    source = {"source_type": "UNKNOWN", "source_name": "", "entry_point_name": "", "source_version": ""}
    yield "runs", {"run_uuid": key, "name": run.name, "user_id": "unknown", **place, **times, **source}
    tags = [RunTag(name, value) for name, value in (run.tags | {"mlflow.runName": run.name}).items()]
    params = [Param(name, value) for name, value in run.params.items()]
    _, params, tags = _validate_batch_log_data([], params, tags)  # long ones are cut
    for table, found in (("tags", tags), ("params", params)):
        yield from ((table, {"run_uuid": key, "key": one.key, "value": one.value}) for one in found)
    same, latest = {"run_uuid": key, "timestamp": run.start, "is_nan": False}, {}
    for name, value, step in run.points:
        row = {"key": name, "value": value, "step": step, **same}
        yield "metrics", row
        latest[name] = max(latest.get(name, row), row, key=lambda one: (one["step"], one["value"]))
    yield from (("latest_metrics", row) for row in latest.values())
