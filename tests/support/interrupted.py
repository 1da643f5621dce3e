"""A trial that can be dropped amid its steps, and what two runs of it have to have in common: for several tests."""

from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from safetensors.torch import load_file

from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.trial import Rectifier, Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import ROWS, STEPS, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun

TIMING = ["tokens_per_second", "peak_memory_bytes"]


def configuration(trial_inputs: Any, ranks: int = 1, stage: int = 1, every: int | None = 2, **training: Any) -> Trial:
    """NPO with GRU on a few rows; `training`: settings other than here."""
    settings = {"lr": 2e-3, "max_steps": 7, "epochs": 100, "batch_size": 8, "max_length": 192} | training
    return Trial(
        method="npo",
        rectifier=Rectifier(name="gru", gamma=0.5, tau=1.0),
        benchmark=Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=2, fingerprint="of-the-tests"),
        target=Model(path=str(trial_inputs.target), fingerprint="of-the-tests"),
        training=Training.model_validate(settings),
        resources=Resources(ranks=ranks, zero_stage=stage, checkpoint_every=every),
    )


def finish(
    config: Trial, folder: Path, stop_after: int | None = None, keep: bool = True
) -> tuple[dict[str, Any], Storage]:
    """Run a trial, or begin one and drop it after some steps."""
    store = Storage(folder)
    found: dict[str, Any] = {}
    for event in TrialRun(config, store, keep_weights=keep).run_and_yield_events():
        if event["phase"] == "training" and event["step"] == stop_after:
            break
        found = event
    return found.get("result", {}), store


def same(one: Storage, other: Storage, config: Trial, kept: bool = True) -> None:
    """Metrics, steps, rows and, where they were kept, weights are equal, bit for bit."""
    results = [store.result(config.id()) or {} for store in (one, other)]
    assert [result["status"] for result in results] == ["finished"] * 2
    assert results[0]["metrics"] == results[1]["metrics"]
    folders = [store.trial(config.id()) for store in (one, other)]
    for file, timing in ((STEPS, TIMING), (ROWS, [])):
        first, second = (pandas.read_parquet(folder / file).drop(columns=timing) for folder in folders)
        pandas.testing.assert_frame_equal(first, second, check_exact=True)
    if kept:
        weights = [load_file(folder / WEIGHTS / "model.safetensors") for folder in folders]
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def alike(one: Path, other: Path, target: Path, tolerance: float = 1e-4) -> None:
    """The same series and the same update, relative."""
    records = [atomic_files.read_parquet_rows(folder / STEPS) for folder in (one, other)]
    for name in ("loss", "retain_loss", "cos_before", "grad_norm", "rectified_norm"):
        series = [[record[name] for record in found] for found in records]
        assert series[1] == pytest.approx(series[0], rel=tolerance, abs=1e-6), name
    weights = [load_file(folder / WEIGHTS / "model.safetensors") for folder in (one, other)]
    origin = load_file(target / "model.safetensors")
    update = sum(float((weights[0][name] - origin[name]).double().norm() ** 2) for name in origin)
    error = sum(float((weights[0][name] - weights[1][name]).double().norm() ** 2) for name in origin)
    assert (error / update) ** 0.5 <= tolerance
