"""The measurements of steps, evaluations, sweeps and a GPU run, here small, count what they say they count."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

import bench
from bench import evaluate, gpu, overhead, sweep
from trainables.training import memory

Run = Callable[..., Any]
SCRIPTS = sorted(path.stem for path in Path(bench.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_that_cannot_be_written_is_said_before_the_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--json", "/nowhere/rows.json"])
    assert ended.value.code == 2
    assert "--json: no folder /nowhere" in capsys.readouterr().err


def measured(run_module: Run, folder: Path, name: str, *arguments: object) -> dict[str, Any]:
    """The only row that `bench/NAME.py` writes; it prints the same."""
    done = run_module(f"bench.{name}", *arguments, "--json", folder / "rows.json", timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((folder / "rows.json").read_text())
    assert {"torch", "transformers", "deepspeed"} <= row["versions"].keys()
    assert row["commit"]
    assert all(name in done.stdout for name in row.keys() - {"versions", "commit", "cores", "code", "dirty"})
    return row


@pytest.mark.slow
def test_both_ways_to_train_take_the_same_steps(trial_inputs: Any, tmp_path: Path, run_module: Run) -> None:
    arguments = ("--model", trial_inputs.target, "--data", trial_inputs.data, "--split", trial_inputs.split)
    small = ("--batch-size", 4, "--repeats", 2, "--steps", 2, "--threads", 1)
    row = measured(run_module, tmp_path, "step", *arguments, *small)
    assert row["update_difference"] < 1e-3
    assert all(rate > 0 for rate in row["answer_tokens_per_second"].values())
    least, most = row["over_trainer_range"]
    assert least <= row["over_trainer"] <= most


@pytest.mark.slow
def test_rehearsal_without_a_gpu(trial_inputs: Any, tmp_path: Path, run_module: Run) -> None:
    sizes = ("--device", "cpu", "--size", "tiny", "--rows", 4, "--length", 24, "--repeats", 2)
    row = measured(
        run_module, tmp_path, "gpu", *sizes, "--data", trial_inputs.data, "--split", trial_inputs.split, "--limit", 2
    )
    assert row["tokens_per_step"] == 2 * 4 * 24
    assert row["projected_steps"] == row["clipped_steps"] == 2
    assert row["evaluation_seconds"] > 0
    assert row["evaluation_rows"] == 8
    assert (row["peak_bytes"], row["utilisation"]) == (None, None)


@pytest.mark.parametrize("tied", [True, False])
def test_operations_are_those_that_pytorch_counts(tied: bool) -> None:
    """Of a forward and a backward pass: products of matrices alone, so norms and activations are not in them."""
    config = LlamaConfig(**gpu.SIZES["tiny"] | {"tie_word_embeddings": tied}, attn_implementation="eager")  # pyright: ignore[reportCallIssue]
    network, shape = LlamaForCausalLM(config), memory.shape_of(config.to_dict())
    assert shape is not None
    batch = torch.randint(0, shape.vocabulary, (3, 40))
    with FlopCounterMode(display=False) as counted:
        network(input_ids=batch, use_cache=False).logits.sum().backward()
    assert gpu.flops(shape, batch.numel(), 40) == pytest.approx(counted.get_total_flops(), rel=0.01)


def test_both_ways_give_the_same_numbers_and_texts(
    trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").symlink_to(trial_inputs.target)
    monkeypatch.setattr(evaluate, "ASCENT_STEPS", 2)
    given = ["--models", str(tmp_path), "--data", str(trial_inputs.data), "--split", trial_inputs.split]
    given += ["--limit", "3", "--repeats", "2", "--threads", "1", "--json", str(tmp_path / "rows.json")]
    evaluate.main(given)
    found = json.loads((tmp_path / "rows.json").read_text())
    assert [row["model"] for row in found] == ["full", "collapsed"]
    for row in found:
        assert row["rows"] == 12
        assert row["loss_difference"] < evaluate.CLOSE
        assert row["generations_differing"] == 0
        assert row["ratio"] == pytest.approx(row["plain_seconds"] / row["ours_seconds"])
        assert 0 < row["ratio_range"][0] <= row["ratio_range"][1]
    assert "generations_differing" in capsys.readouterr().out


def test_a_difference_of_either_kind_is_told() -> None:
    one = {"generation": "a", "answer_loss": 2.0, "paraphrase_loss": 1.0, "perturbed_loss": [1.0, 4.0]}
    other = one | {"generation": "b", "perturbed_loss": [1.0, 2.0]}
    assert evaluate.differences([one, one], [other, one]) == {"loss_difference": 1.0, "generations_differing": 1}


def test_gaps_are_from_a_trials_end_to_the_next_ones_first_step() -> None:
    """Given in no order, and with one slow start, which the median leaves out."""
    trials = [
        (50.0, {"total": 6.0, "loading": 3.0}),  # first step at 47
        (20.0, {"total": 10.0, "loading": 9.0}),
        (40.0, {"total": 9.8, "loading": 0.8}),  # at 31
        (30.0, {"total": 9.0, "loading": 0.5}),  # at 21.5
    ]
    found = overhead.figures(trials)
    assert found.pop("gap_range") == pytest.approx([1.0, 7.0])
    assert found == pytest.approx({"trials": 4, "gap_seconds": 1.5, "loading_seconds": 0.8})


def test_a_sweeps_ratio_is_over_training_and_evaluation_on_all_slots() -> None:
    trials = [
        {"loading": 1.0, "training": 10.0, "evaluation": 4.0, "total": 15.0},
        {"loading": 2.0, "training": 20.0, "evaluation": 6.0, "total": 28.0},
    ]
    found = sweep.figures(trials, wall=24.0, slots=2)
    assert (found["loading"], found["training"], found["evaluation"]) == (3.0, 30.0, 10.0)
    assert (found["trials"], found["slots"], found["slot_seconds"], found["ratio"]) == (2, 2, 20.0, 1.2)


def measured_here(script: Any, tofu_data: Path, tofu_models: Path, place: Path, *more: str) -> dict[str, Any]:
    """The only row that a script writes of the shared rows and models."""
    script.main(["--models", str(tofu_models), "--data", str(tofu_data), "--json", str(place / "rows.json"), *more])
    (row,) = json.loads((place / "rows.json").read_text())
    return row


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_trials_one_after_the_other(
    tofu_data: Path, tofu_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setattr(overhead, "STRATEGY", "paper")
    row = measured_here(overhead, tofu_data, tofu_models, tmp_path, "--seeds", "1", "--ranks", str(ranks))
    assert (row["ranks"], row["trials"]) == (ranks, 2)
    assert 0 < row["loading_seconds"] < row["gap_seconds"]
    assert row["gap_range"] == [row["gap_seconds"]] * 2


@pytest.mark.slow
@pytest.mark.data
def test_two_short_trials_and_what_lies_beside_them(tofu_data: Path, tofu_models: Path, tmp_path: Path) -> None:
    short = ("--set", "training.max_steps=2", "--set", "benchmark.limit=2")
    row = measured_here(sweep, tofu_data, tofu_models, tmp_path, "--seeds", "1", "--methods", "ga", *short)
    assert (row["trials"], row["slots"]) == (2, 2)
    assert row["wall_seconds"] > row["slot_seconds"] > 0
    assert row["ratio"] == pytest.approx(row["wall_seconds"] / row["slot_seconds"])
