"""The bench of an evaluation runs, on rows and a model that take no time, and finds both ways of the same mind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import evaluate as bench


def test_both_ways_give_the_same_numbers_and_texts(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").symlink_to(house.target)
    monkeypatch.setattr(bench, "ASCENT_STEPS", 2)
    given = ["--models", str(tmp_path), "--data", str(house.data), "--split", house.split]
    given += ["--limit", "3", "--repeats", "2", "--threads", "1", "--json", str(tmp_path / "rows.json")]
    bench.main(given)
    found = json.loads((tmp_path / "rows.json").read_text())
    assert [row["model"] for row in found] == ["full", "collapsed"]
    for row in found:
        assert row["rows"] == 12
        assert row["loss_difference"] < bench.CLOSE
        assert row["generations_differing"] == 0
        assert row["ratio"] == pytest.approx(row["plain_seconds"] / row["ours_seconds"])
        assert 0 < row["ratio_range"][0] <= row["ratio_range"][1]
    assert "0 of 12" in capsys.readouterr().out


def test_a_difference_of_either_kind_is_told() -> None:
    one = {"generation": "a", "answer_loss": 2.0, "paraphrase_loss": 1.0, "perturbed_loss": [1.0, 4.0]}
    other = one | {"generation": "b", "perturbed_loss": [1.0, 2.0]}
    assert bench.differences([one, one], [other, one]) == {"loss_difference": 1.0, "generations_differing": 1}
