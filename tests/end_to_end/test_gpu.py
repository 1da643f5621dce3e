"""On one GPU: the CPU's trajectory, written gradients in bf16, memory that really runs out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import measured_step, ranks
from tests.support.interrupted import configuration
from trainables.config.settings import Resources
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import STEPS
from trainables.storage.folder_storage import Storage
from trainables.training import memory

pytestmark = pytest.mark.gpu

SERIES = ("loss", "retain_loss", "cos_before", "grad_norm", "rectified_norm", "average_norm", "dot")
ROOM = 28 * 2**20
"""Bytes that a part of a GPU has for a trial: less than the 32 MiB of cuBLAS's workspace, whatever its micro-batch."""


@pytest.fixture
def ranks_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start from now on have DeepSpeed use the GPU."""
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")


def on_gpu(trial_inputs: Any, stage: int) -> Trial:
    resources = Resources(zero_stage=stage, gpus=1)
    return configuration(trial_inputs).model_copy(update={"resources": resources})


def steps(trial: Trial, folder: Path, run_module: Callable[..., Any]) -> list[dict[str, Any]]:
    device = "cuda" if trial.resources.gpus else "cpu"
    atomic_files.write_json(folder / "trial.json", trial.model_dump(mode="json"))
    done = run_module("trainables.run", folder / "trial.json", "--storage", folder, DS_ACCELERATOR=device)
    assert done.returncode == 0, done.stderr
    assert (Storage(folder).result(trial.id()) or {})["status"] == "finished"
    return atomic_files.read_parquet_rows(Storage(folder).trial(trial.id()) / STEPS)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gpu_follows_the_cpu(trial_inputs: Any, tmp_path: Path, run_module: Callable[..., Any], stage: int) -> None:
    here = steps(configuration(trial_inputs), tmp_path / "cpu", run_module)
    there = steps(on_gpu(trial_inputs, stage), tmp_path / "gpu", run_module)
    for name in SERIES:
        series = [[record[name] for record in records] for records in (here, there)]
        assert series[1] == pytest.approx(series[0], rel=1e-3, abs=1e-6), name
    assert all(0 < record["peak_memory_bytes"] < torch.cuda.get_device_properties(0).total_memory for record in there)


def test_two_runs_on_the_gpu_are_the_same(trial_inputs: Any, tmp_path: Path, run_module: Callable[..., Any]) -> None:
    """Bit for bit, which needs deterministic kernels and cuBLAS's fixed workspace."""
    runs = [steps(on_gpu(trial_inputs, 2), tmp_path / name, run_module) for name in ("one", "two")]
    assert [[record[name] for name in SERIES] for record in runs[0]] == [
        [record[name] for name in SERIES] for record in runs[1]
    ]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("offload", [False, True], ids=["on the GPU", "offloaded"])
def test_constant_written_over_the_gradient_in_bf16_reaches_the_step(
    trial_inputs: Any, tmp_path: Path, ranks_on_gpu: None, stage: int, offload: bool
) -> None:
    job = {"stage": stage, "precision": "bf16", "offload": offload, "write": True}
    found = ranks.run(1, [job], trial_inputs, tmp_path, backend="nccl")[0]
    assert torch.allclose(found["moved"], torch.full_like(found["moved"], 0.25), atol=1e-6)
    assert found["norms"][0] > 0
    assert found["norms"][1] == pytest.approx(found["norms"][0], rel=1e-6)


def test_memory_that_really_runs_out_is_an_outcome(trial_inputs: Any, tmp_path: Path, ranks_on_gpu: None) -> None:
    part = ROOM / torch.cuda.get_device_properties(0).total_memory / memory.USABLE_SHARE
    trial = on_gpu(trial_inputs, stage=2)
    trial = trial.model_copy(update={"resources": trial.resources.model_copy(update={"gpus": part})})
    job = {"trial": trial.model_dump(), "storage": str(tmp_path / "runs")}
    ranks.run(1, [job], trial_inputs, tmp_path, backend="nccl")
    found = Storage(tmp_path / "runs").result(trial.id()) or {}
    assert found["status"] == "out_of_memory"
    assert found["error"]["message"].startswith("CUDA out of memory")
    assert (found["error"]["step"], found["topology"]["micro_batch"]) == (1, 4)


WIDE = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8}
WIDE["vocab_size"] = 4096
WORDY = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 6}
WORDY |= {"num_key_value_heads": 2, "vocab_size": 32000}
"""About 30 million parameters each, most of them in layers, and in embeddings."""
DEFAULTS: dict[str, Any] = {"family": "Llama", "method": "gd", "lora": None, "precision": "fp32"}
DEFAULTS |= {"sizes": WIDE, "micro_batch": 8, "length": 128, "layer": 5}
WORDS: dict[str, Any] = {"sizes": WORDY, "micro_batch": 4, "length": 64, "layer": 2}
CASES: dict[str, dict[str, Any]] = {
    "npo": {"method": "npo"},
    "phi": {"family": "Phi"},
    "mistral": {"family": "Mistral"},
    "ga_kl-wordy": {"method": "ga_kl", **WORDS},
    "npo_kl-wordy": {"method": "npo_kl", **WORDS},
    "rmu": {"method": "rmu"},
    "lora": {"lora": 8},
    "bf16": {"precision": "bf16"},
}
"""What each has otherwise than DEFAULTS."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_plan_bounds_what_the_gpu_takes(case: dict[str, Any], run_module: Callable[..., Any]) -> None:
    job = DEFAULTS | case
    done = run_module("tests.support.measured_step", json.dumps(job), timeout=600, DS_ACCELERATOR="cuda")
    assert done.returncode == 0, done.stderr
    trial = measured_step.trial_of(job, micro_batch=job["micro_batch"], gpus=1)
    shape = memory.parse_model_shape({**job["sizes"], "model_type": job["family"].lower()})
    assert shape is not None
    predicted = memory.fit_trial_to_memory(trial, shape, job["length"], None).peak.training_bytes
    found = json.loads(done.stdout.splitlines()[-1])["bytes"]
    print(f"predicted {predicted / 1e6:.0f} MB, measured {found / 1e6:.0f} MB")
    assert 0.9 * found <= predicted
    assert job["method"] == "rmu" or predicted <= 1.6 * found
