"""Which setting matters: a goal that one setting decides."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import runs
from analysis.stats import importance
from tests.support.sweep_store import GRU, write_sweep, write_trial


def make_runs(store: Path, count: int, failed: int = 0) -> pd.DataFrame:
    """NPO with GRU over rates, gammas and taus: the rate decides FQ, best at 1e-4, and gamma alone MU."""
    random = np.random.default_rng(0)
    for place in range(count):
        lr, gamma = float(10 ** random.uniform(-6, -3)), float(random.uniform(0.05, 0.95))
        rectifier = GRU | {"gamma": gamma, "tau": (None, 1.0)[place % 2]}
        given = {"lr": lr, "fq": -10 * abs(math.log10(lr) + 4), "mu": 1 - gamma}
        status = "failed" if place < failed else "finished"
        write_trial(store, f"{place:012x}", "npo", rectifier, status=status, **given)
    write_sweep(store, [f"{place:012x}" for place in range(count)], splits=())
    return runs.load("tiny", store)


def test_the_setting_that_decides_a_goal_has_most_of_its_importance(tmp_path: Path) -> None:
    found = importance.measure_importance(make_runs(tmp_path, 30))
    for metric, decides in (("forget_quality", "training.lr"), ("model_utility", "rectifier.gamma")):
        rows = found.loc[found["metric"] == metric]
        shares = dict(zip(rows["setting"], rows["importance"], strict=True))
        assert shares[decides] > 0.6
        assert sum(shares.values()) == pytest.approx(1)
        assert set(shares) == {"training.lr", "rectifier.gamma", "rectifier.tau"}
    assert set(found["settings"]) == {30}


@pytest.mark.parametrize(("count", "failed", "settings"), [(9, 0, set()), (14, 5, set()), (15, 5, {10}), (3, 3, set())])
def test_few_settings_and_failures_say_nothing(tmp_path: Path, count: int, failed: int, settings: set[int]) -> None:
    assert set(importance.measure_importance(make_runs(tmp_path, count, failed))["settings"]) == settings
