"""The measurements of whole sweeps: what they reckon from made-up moments, what they would run, and small runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import overhead, sweep


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
    assert 0 < row["loading_seconds"] < row["gap_seconds"]
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
