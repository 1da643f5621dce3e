"""The measurements of evaluations and a GPU run, here small, count what they say they count."""

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
from bench import evaluate, gpu
from trainables.training import memory

Run = Callable[..., Any]
SCRIPTS = sorted(path.stem for path in Path(bench.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_that_cannot_be_written_is_said_before_the_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--json", "/nowhere/rows.json"])
    assert ended.value.code == 2
    assert "--json: no folder /nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_rehearsal_without_a_gpu(trial_inputs: Any, tmp_path: Path, run_module: Run) -> None:
    sizes = ("--device", "cpu", "--size", "tiny", "--rows", 4, "--length", 24, "--repeats", 2)
    rows = ("--data", trial_inputs.data, "--split", trial_inputs.split, "--limit", 2)
    done = run_module("bench.gpu", *sizes, *rows, "--json", tmp_path / "rows.json", timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert {"torch", "transformers", "deepspeed"} <= row["versions"].keys()
    assert row["commit"]
    assert all(name in done.stdout for name in row.keys() - {"versions", "commit", "cores", "code", "dirty"})
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
