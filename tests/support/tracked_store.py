"""A small invented sweep whose configurations are real ones, for tests of what MLflow shows of it."""

import math
from pathlib import Path
from typing import Any

from trainables.config.settings import Benchmark, Model, Training
from trainables.config.trial import Rectifier, Trial
from trainables.storage import atomic_files, file_names
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import FILE_FORMAT_VERSION, SweepFile, read_sweep

STEPS = 3


def make_trial(**given: Any) -> Trial:
    return Trial(
        benchmark=Benchmark(data="data", fingerprint="files:0"),
        target=Model(path="models/full", fingerprint="files:1"),
        training=Training(lr=4e-4, max_steps=STEPS),
        **given,
    )


TRIALS = {
    "finished": make_trial(method="ga"),
    "rectified": make_trial(method="npo", rectifier=Rectifier(name="gru", gamma=0.8, tau=1.0)),
    "diverged": make_trial(method="gd", seed=1),
    "failed": make_trial(method="npo", seed=1),
    "missing": make_trial(method="ga", seed=2),
}


def step_row(step: int, rectified: bool) -> dict[str, Any]:
    retain = {"retain_loss": 1.0 + step if rectified else math.nan, "rectified": rectified, "coefficient": None}
    skipped = {"skipped": step == 2, "attempts": 10 if step == 2 else 1}
    numbers = dict.fromkeys(("cos_before", "cos_after", "grad_norm", "lr"), 0.25)
    return {"step": step, "loss": -0.5 * step, **retain, **skipped, **numbers}


def write_result(store: Storage, trial: Trial, status: str, **given: Any) -> None:
    """A trial's files; `started` and `error` may be given."""
    folder, finished, chosen = store.trial(trial.id()), status == "finished", trial == TRIALS["finished"]
    if status != "failed":
        rows = [step_row(step, trial.rectifier.name == "gru") for step in range(1, STEPS + 1)]
        atomic_files.write_parquet_rows(folder / file_names.STEPS, rows)
    metrics = {"forget_quality": -2.5, "model_utility": 0.6, "forget_quality_ks": None} if finished else {}
    result = {
        "id": trial.id(),
        "status": status,
        "config": trial.model_dump(mode="json"),
        "metrics": metrics,
        "training": {"steps": STEPS, "skipped": 0},
        "seconds": {"total": 9.5, "training": 6.0},
        "started": given.get("started", "2026-11-20T10:00:00+00:00"),
        "commit": "abc1234",
        "dirty": False,
        "error": given.get("error"),
        "chosen_step": 2 if chosen else None,
        "evaluations": [{"step": k, "model_utility": k / 10} for k in (1, 2, 3)] if chosen else None,
    }
    atomic_files.write_json(folder / RESULT, result)


def write_sweep(store: Storage) -> SweepFile:
    sweep = {
        "format": FILE_FORMAT_VERSION,
        "command": "python -m platform.sweep tiny",
        "commands": ["python -m platform.sweep tiny"],
        "name": "tiny",
        "hash": "0a1b2c3d",
        "title": "An invented sweep",
        "benchmark": "tofu",
        "created": "2026-11-20T09:00:00+00:00",
        "strategy": "paper",
        "axes": {"training.lr": [4e-4], "rectifier.tau": [None, 1.0], "task_vector.stg": [4.0, 8.0]},
        "trials": [trial.id() for trial in TRIALS.values()],
    }
    atomic_files.write_json(store.sweep("tiny", "0a1b2c3d"), sweep)
    return read_sweep(store.sweep("tiny", "0a1b2c3d"))


def write_store(folder: Path) -> Storage:
    """Four trials with a result and one without."""
    place = Storage(folder)
    write_result(place, TRIALS["finished"], "finished")
    write_result(place, TRIALS["rectified"], "finished")
    error = {"kind": "diverged", "message": "loss is nan at step 3", "step": 3}
    write_result(place, TRIALS["diverged"], "diverged", error=error)
    write_result(place, TRIALS["failed"], "failed", error={"kind": "failed", "message": "no space", "step": 0})
    write_sweep(place)
    return place


def all_runs(client: Any) -> list[Any]:
    return client.search_runs([client.get_experiment_by_name("tiny").experiment_id])


def run_of(client: Any, name: str) -> Any:
    return next(run for run in all_runs(client) if run.data.tags.get("trial_id") == TRIALS[name].id())


def parent_of(client: Any) -> Any:
    return next(run for run in all_runs(client) if run.data.tags.get("role") == "parent")


def series(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    """Return the steps and values of a run's metric."""
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
