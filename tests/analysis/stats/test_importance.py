"""Which setting matters: a goal that one setting decides, and what is drawn of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import runs
from analysis.figures import sensitivity
from analysis.load.goal_columns import find_goals
from analysis.stats import importance
from analysis.stats.chosen_settings import average
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


def test_stopped_trials_say_nothing_and_are_no_seed_of_finished_ones(tmp_path: Path) -> None:
    made = make_runs(tmp_path, 14)
    made.loc[:3, "status"] = "stopped"
    assert set(importance.measure_importance(made)["settings"]) == {10}
    second = made.iloc[[4, 0]].assign(id=["a", "b"], seed=1, status="stopped", model_utility=9.0)
    means = average(pd.concat([made, second], ignore_index=True)).set_index("configuration")
    pooled = means.loc[made["configuration"].iloc[[4, 0]]]
    assert pooled["n"].tolist() == [1, 2]
    assert pooled["planned"].tolist() == [2, 2]
    assert pooled["model_utility"].iloc[0] == made["model_utility"].iloc[4]


@pytest.mark.parametrize(("count", "failed", "settings"), [(9, 0, set()), (14, 5, set()), (15, 5, {10}), (3, 3, set())])
def test_few_settings_and_failures_say_nothing(tmp_path: Path, count: int, failed: int, settings: set[int]) -> None:
    assert set(importance.measure_importance(make_runs(tmp_path, count, failed))["settings"]) == settings


def test_slices_show_each_goal_over_each_setting(tmp_path: Path) -> None:
    made = make_runs(tmp_path, 24)
    ((_, points),) = importance.list_points(made)
    panels = sensitivity.draw_slices(points, find_goals("tofu"), importance.measure_importance(made)).axes
    names = [axes.get_xlabel() for axes in panels]
    assert set(names[:2]) == {"training.lr", "rectifier.gamma"}  # those that matter come first
    assert names[3:] == names[:3]
    rate, words = (panels[names.index(name)] for name in ("training.lr", "rectifier.tau"))
    assert rate.get_xscale() == "log"
    assert sorted(np.asarray(rate.lines[0].get_xdata())) == sorted(points["training.lr"])
    assert [text.get_text() for text in words.get_xticklabels()] == ["1", "none"]
