"""The measurements of evaluations and a GPU run, here small, count what they say they count."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bench
from bench import evaluate

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
    assert row["flops_per_step"] == pytest.approx(2 * 4 * 24 * 6 * row["parameters"], rel=0.1), "6 N D"
    assert row["projected_steps"] == row["clipped_steps"] == 2
    assert row["evaluation_seconds"] > 0
    assert row["evaluation_rows"] == 8
    assert (row["peak_bytes"], row["utilisation"]) == (None, None)


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
