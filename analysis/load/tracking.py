"""A sweep's trials as MLflow has them: results for `load.trials` to make its frame of, where no storage is at hand.

The runs of a sweep (platform.tracking makes them) hold a trial's configuration as params, its metrics, its seconds and
its outcome. What only the storage holds is in `NOT_HELD`.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainables.common.errors import InputError
from trainables.config.settings import Selection
from trainables.config.trial import Trial

NOT_HELD = {
    "steps": "how many were taken; the number of points of train/loss says it",
    "skipped": "how many were skipped; the sum of train/skipped says it",
    "halves": "metrics on halves of the evaluation rows; a sweep whose rule goes by them is refused",
    "calibrated": "UWC's mixtures; calibration/TARGET/... are their numbers at the targets",
    "direction": "the id of a task vector's direction",
    "error.kind": "equal to status but for a damaged file",
    "error.step": "stands in error.message where it matters; that is cut to 500 characters",
    "backbone": "the sweep's name of it; the report's tables are made from storage",
    "versions": "the versions of libraries",
    "topology": "ranks and devices",
}
"""Columns of `analysis.runs.load` that a frame from a tracking server has not, or has empty, and why."""

BESIDE = ("tau", "constants")
"""Params that repeat what the configuration says: for MLflow's charts, and with a preset's numbers."""
NAMES = ("rectifier.name",)
"""Settings of which `none` is a name; of every other it stands for no value."""

EVERY_RUN: dict[str, Any] = {"max_results": 50_000, "order_by": ["attributes.start_time ASC"]}
"""As many runs as MLflow gives at once, the earliest first."""

log = logging.getLogger(__name__)


def load_results(name: str, uri: str) -> tuple[list[dict[str, Any]], Selection]:
    """Return the trials of the sweep NAME or NAME-HASH as documents like result.json, and its selection rule.

    `uri`: an address (`http://127.0.0.1:5000`) or a database (`sqlite:///runs/mlflow.db`). Trials come in the order in
    which they were mirrored; one without a result has no run, and so no document. InputError where the server does not
    answer, holds no such sweep, or the sweep's rule goes by what it does not hold.
    """
    client = _client(uri)
    parent = _parent(client, name, uri)
    tags = parent.data.tags
    label, rule = tags["sweep_id"], Selection(**json.loads(tags.get("selection", "{}")))
    if rule.halves:
        raise InputError(
            f"NAME {name}: its rule chooses on half of the evaluation rows, which MLflow does not hold; load it from "
            "storage"
        )
    wanted = f"tags.sweep_id = '{label}' and tags.trial_id != ''"
    found = client.search_runs([parent.info.experiment_id], wanted, **EVERY_RUN)
    return [_result(run) for run in found if "outcome" in run.data.tags], rule


def _client(uri: str) -> Any:
    """Return a client of a server that is there: MLflow would ask one that is away for minutes, and make a database."""
    from mlflow import MlflowClient

    path = uri.removeprefix("sqlite:///")
    if path != uri and not Path(path).is_file():
        raise InputError(f"tracking {uri}: there is no such file; a sweep makes STORAGE/mlflow.db")
    if "://" not in uri:
        raise InputError(f"tracking {uri}: give an address such as http://127.0.0.1:5000 or sqlite:///runs/mlflow.db")
    return MlflowClient(tracking_uri=uri)


def _parent(client: Any, name: str, uri: str) -> Any:
    """Return the parent run of the sweep NAME-HASH, or of the newest called NAME."""
    from mlflow.exceptions import MlflowException

    try:
        experiments = [item.experiment_id for item in client.search_experiments()]
        parents = client.search_runs(experiments, "tags.role = 'parent'", **EVERY_RUN)
    except MlflowException as error:
        raise InputError(f"tracking {uri}: cannot be read ({str(error).splitlines()[0]})") from error
    found = [run for run in parents if name in (run.data.tags["sweep"], run.data.tags["sweep_id"])]
    if not found:
        known = ", ".join(sorted(run.data.tags["sweep_id"] for run in parents)) or "none"
        raise InputError(f"NAME {name}: {uri} holds no such sweep; there are: {known}")
    if len(found) > 1:
        log.warning("%s has %d sweeps: taking the newest, %s", name, len(found), found[-1].data.tags["sweep_id"])
    return found[-1]


def _result(run: Any) -> dict[str, Any]:
    """Return what a trial's run holds of its result.json."""
    tags, message = run.data.tags, run.data.tags.get("failure")
    found: dict[str, dict[str, float]] = {"eval": {}, "time": {}}
    for name, value in run.data.metrics.items():
        part, _, rest = name.partition("/")
        found.setdefault(part, {})[rest] = value
    return {
        "id": tags["trial_id"],
        "status": tags["outcome"],
        "started": tags["started"],
        "commit": tags["git_commit"],
        "dirty": tags["git_dirty"] == "True",
        "chosen_step": tags.get("chosen_step"),
        "config": _config(run.data.params),
        "metrics": found["eval"],
        "seconds": found["time"],
        "error": {"message": message} if message else None,
    }


def _config(params: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration whose dotted paths are params, every value of the type that it has in result.json."""
    nested: dict[str, Any] = {}
    for path, text in params.items():
        *parts, last = path.split(".")
        if path.partition(".")[0] not in BESIDE:
            reduce(lambda place, part: place.setdefault(part, {}), parts, nested)[last] = _value(path, text)
    try:
        return Trial.model_validate(nested).model_dump(mode="json")
    except ValidationError as error:
        raise InputError(f"MLflow's params are no configuration of a trial: {error}") from error


def _value(path: str, text: str) -> Any:
    """Return none as no value and a list as one; numbers are told from words by the configuration's own types."""
    if text == "none" and path not in NAMES:
        return None
    return ast.literal_eval(text) if text.startswith("[") else text
