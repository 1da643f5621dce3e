"""figures/tradeoff.html: what it holds of trials, and that texts of results stay texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from analysis.report import interactive
from tests.support.sweep_store import GRU, read, write_sweep, write_trial

EVIL = '</script><img src=x onerror="boom()"><!--<script>'


def test_every_trial_with_both_goals_is_there_and_its_texts_stay_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    write = vl_convert.vegalite_to_html

    def spy(picture: dict[str, Any], bundle: bool) -> str:
        drawn.append(picture)
        return write(picture, bundle=bundle)

    monkeypatch.setattr(vl_convert, "vegalite_to_html", spy)
    given = {"objective": {"preset": EVIL}, "fq": -3.0, "mu": 0.5}
    keys = [write_trial(tmp_path, f"{seed}" * 12, "ga", GRU, seed=seed, **given) for seed in (0, 1)]
    write_sweep(tmp_path, [*keys, write_trial(tmp_path, "2" * 12, fq=-3.0)], splits=())
    (tmp_path / "figures").mkdir()
    results = read(tmp_path)
    assert interactive.write_interactive(results, tmp_path)
    assert "<img src=x" not in (tmp_path / "figures" / "tradeoff.html").read_text()
    found = json.loads(json.dumps(drawn[0]["data"]["values"], allow_nan=False))
    shown = [[row[name] for name in ("id", "forget_quality", "model_utility", "seed", "chosen")] for row in found]
    assert shown == [[key, -3.0, 0.5, seed, True] for seed, key in enumerate(keys)]
    assert not interactive.write_interactive(results.with_runs(results.runs.head(1)), tmp_path)
