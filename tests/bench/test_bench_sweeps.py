"""The measurements of whole sweeps: what they reckon from made-up moments, what they would run, and small runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import platform.sweep as platform_sweep
from bench import _script, overhead, sweep
from tests.support.small_sweep import Small
from trainables.storage import files
from trainables.storage.base import RESULT


def test_gaps_are_from_a_trials_end_to_the_next_ones_first_step() -> None:
    """Given in no order, and with one slow start, which the median leaves out."""
    trials = [
        {"taken": 44.0, "first_step": 47.0, "ended": 50.0},
        {"taken": 10.0, "first_step": 19.0, "ended": 20.0},
        {"taken": 30.2, "first_step": 31.0, "ended": 40.0},
        {"taken": 21.0, "first_step": 21.5, "ended": 30.0},
    ]
    found = overhead.figures(trials)
    assert found.pop("gap_range") == pytest.approx([1.0, 7.0])
    assert found == pytest.approx({"trials": 4, "gap_seconds": 1.5, "ours_seconds": 0.8})


def test_a_trials_moments_are_its_first_ones_and_its_results_time(tmp_path: Path) -> None:
    told = {"storage": str(tmp_path), "id": "a1"}
    overhead.note(told, taken=5.0)
    overhead.note(told, taken=6.0, first_step=7.0)
    result = tmp_path / "trials/a1" / RESULT
    files.write_json(result, {})
    os.utime(result, (8.0, 9.0))
    assert overhead.moments(tmp_path) == [{"taken": 5.0, "first_step": 7.0, "ended": 9.0}]


def test_a_noting_step_is_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([3.0, 4.0])
    monkeypatch.setattr(overhead.time, "time", lambda: next(moments))
    step = overhead.noted(lambda a, b: a - b, {"storage": str(tmp_path), "id": "a1"})
    assert (step(5, 2), step(7, 1)) == (3, 6)
    assert files.read_json(tmp_path / overhead.NOTES / "a1.json") == {"first_step": 3.0}


def test_a_sweeps_ratio_is_over_training_and_evaluation_on_all_slots() -> None:
    trials = [
        {"loading": 1.0, "training": 10.0, "evaluation": 4.0, "total": 15.0},
        {"loading": 2.0, "training": 20.0, "evaluation": 6.0, "total": 28.0},
    ]
    found = sweep.figures(trials, wall=24.0, slots=2)
    assert (found["loading"], found["training"], found["evaluation"]) == (3.0, 30.0, 10.0)
    assert (found["trials"], found["slots"], found["slot_seconds"], found["ratio"]) == (2, 2, 20.0, 1.2)


@pytest.mark.parametrize(
    ("script", "command", "trials"),
    [(overhead, ("bench/overhead.py", "--drive"), 10), (sweep, ("-m", "platform.sweep"), 24)],
)
def test_the_sweep_has_as_many_trials_as_the_page_says(
    small: Small, monkeypatch: pytest.MonkeyPatch, script: Any, command: tuple[str, ...], trials: int
) -> None:
    app = typer.Typer(add_completion=False)
    app.command()(platform_sweep.main)

    def planned(*told: object) -> None:
        assert told[: len(command) + 1] == (*command, "tofu_tiny")
        done = CliRunner().invoke(app, [*map(str, told[len(command) :]), "--dry-run", "--json"])
        assert done.exit_code == 0, done.output
        raise SystemExit(f"{len(json.loads(done.stdout)['trials'])} trials")

    monkeypatch.setattr(_script, "run", planned)
    with pytest.raises(SystemExit, match=f"^{trials} trials$"):
        script.main(["--models", str(small.models), "--data", str(small.data)])


def measured(script: Any, tofu_data: Path, tofu_models: Path, place: Path, *more: str) -> dict[str, Any]:
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
    row = measured(overhead, tofu_data, tofu_models, tmp_path, "--seeds", "1", "--ranks", str(ranks))
    assert (row["ranks"], row["trials"]) == (ranks, 2)
    assert 0 < row["ours_seconds"] < row["gap_seconds"]
    assert row["gap_range"] == [row["gap_seconds"]] * 2


@pytest.mark.slow
@pytest.mark.data
def test_two_short_trials_and_what_lies_beside_them(
    tofu_data: Path, tofu_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ("--set", "training.max_steps=2", "--set", "benchmark.limit=2")
    row = measured(sweep, tofu_data, tofu_models, tmp_path, "--seeds", "1", "--methods", "ga", *short)
    assert (row["trials"], row["slots"]) == (2, 2)
    assert row["wall_seconds"] > row["slot_seconds"] > 0
    assert row["ratio"] == pytest.approx(row["wall_seconds"] / row["slot_seconds"])
    assert f"ratio {row['ratio']:.3f} (bar 1.15)" in capsys.readouterr().out
