"""figures/tradeoff.html: what it holds of trials, and that texts of results stay texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from analysis.report import interactive
from tests.support import sweep_store
from tests.support.sweep_store import GRU, Results, write_sweep, write_trial

store, results = sweep_store.tiny_store, sweep_store.tiny_results
EVIL = '</script><img src=x onerror="boom()"><!--<script>'


def test_every_trial_with_both_goals_is_there_once_with_its_numbers(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(vl_convert, "vegalite_to_html", lambda picture, bundle: drawn.append(picture) or "")
    (tmp_path / "figures").mkdir()
    assert interactive.write_interactive(results, tmp_path)
    found = {row["id"]: row for row in json.loads(json.dumps(drawn[0]["data"]["values"], allow_nan=False))}
    expected = results.runs.dropna(subset=["forget_quality", "model_utility"])
    expected = expected.loc[expected["status"] == "finished"]
    assert len(found) == len(expected) == 33
    for row in expected.to_dict("records"):
        names = ("forget_quality", "model_utility", "seed")
        assert [found[row["id"]][name] for name in names] == pytest.approx([row[name] for name in names])
    assert {key for key, row in found.items() if row["chosen"]} == set(results.chosen_trials["id"])


def test_texts_of_results_do_not_break_out(tmp_path: Path) -> None:
    given = {"split": EVIL, "fq": -3.0, "mu": 0.5}
    keys = [write_trial(tmp_path, f"{seed}" * 12, EVIL, GRU | {"name": EVIL}, seed=seed, **given) for seed in (0, 1)]
    write_sweep(tmp_path, keys, splits=())
    (tmp_path / "figures").mkdir()
    assert interactive.write_interactive(sweep_store.read(tmp_path), tmp_path)
    page = (tmp_path / "figures" / "tradeoff.html").read_text()
    assert "<img src=x" not in page
    one = sweep_store.read(tmp_path)
    assert not interactive.write_interactive(one.with_runs(one.runs.head(1)), tmp_path)
