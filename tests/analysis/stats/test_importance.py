"""Which setting matters: a goal that one setting decides, and what is drawn of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from analysis.figures import sensitivity
from analysis.load.goal_columns import find_goals
from analysis.stats import importance
from analysis.stats.chosen_settings import average


def make_runs(count: int, *, failed: int = 0) -> pd.DataFrame:
    """NPO with GRU over rates, gammas and optimizers: the rate decides FQ, best at 1e-4, and gamma alone MU."""
    random, rows = np.random.default_rng(0), []
    for place in range(count):
        lr, gamma = float(10 ** random.uniform(-6, -3)), float(random.uniform(0.05, 0.95))
        tau, optimizer = (None, 1.0)[place % 2], ("adamw", "sgd")[place // 2 % 2]
        config = {
            "method": "npo",
            "benchmark": {"split": "forget05", "name": "tofu"},
            "rectifier": {"name": "gru", "gamma": gamma, "tau": tau},
            "training": {"lr": lr, "optimizer": optimizer, "epochs": 5},
        }
        quality, utility = -10 * abs(math.log10(lr) + 4), 1 - gamma
        rows.append(
            {
                "id": f"{place:012x}",
                "status": "failed" if place < failed else "finished",
                "configuration": json.dumps(config, sort_keys=True),
                "method": "npo",
                "benchmark.split": "forget05",
                "benchmark.name": "tofu",
                "rectifier.name": "gru",
                "rectifier.gamma": gamma,
                "rectifier.tau": tau,
                "forget_quality": quality,
                "model_utility": utility,
                "choice.removal": quality,
                "choice.utility": utility,
                "seed": 0,
            }
        )
    return pd.DataFrame(rows).assign(strength=math.nan, chosen_step=math.nan, relative_change=math.nan)


def test_the_setting_that_decides_a_goal_has_most_of_its_importance() -> None:
    found = importance.measure_importance(make_runs(30))
    for metric, decides in (("forget_quality", "training.lr"), ("model_utility", "rectifier.gamma")):
        rows = found.loc[found["metric"] == metric]
        shares = dict(zip(rows["setting"], rows["importance"], strict=True))
        assert shares[decides] > 0.6
        assert sum(shares.values()) == pytest.approx(1)
        assert set(shares) == {"training.lr", "rectifier.gamma", "rectifier.tau", "training.optimizer"}
    assert set(found["settings"]) == {30}


def test_stopped_trials_say_nothing_and_are_no_seed_of_finished_ones() -> None:
    runs = make_runs(14)
    runs.loc[:3, "status"] = "stopped"
    assert set(importance.measure_importance(runs)["settings"]) == {10}
    second = runs.iloc[[4, 0]].assign(id=["a", "b"], seed=1, status="stopped", model_utility=9.0)
    means = average(pd.concat([runs, second], ignore_index=True)).set_index("configuration")
    pooled = means.loc[runs["configuration"].iloc[[4, 0]]]
    assert pooled["n"].tolist() == [1, 2]
    assert pooled["planned"].tolist() == [2, 2]
    assert pooled["model_utility"].iloc[0] == runs["model_utility"].iloc[4]


def test_few_settings_and_failures_say_nothing() -> None:
    assert len(importance.measure_importance(make_runs(9))) == 0
    assert len(importance.measure_importance(make_runs(14, failed=5))) == 0
    assert set(importance.measure_importance(make_runs(15, failed=5))["settings"]) == {10}
    assert len(importance.measure_importance(make_runs(3, failed=3))) == 0


def test_slices_show_each_goal_over_each_setting() -> None:
    runs = make_runs(24)
    ((_, points),) = importance.list_points(runs)
    panels = sensitivity.draw_slices(points, find_goals("tofu"), importance.measure_importance(runs)).axes
    names = [axes.get_xlabel() for axes in panels]
    assert set(names[:2]) == {"training.lr", "rectifier.gamma"}  # those that matter come first
    assert names[4:] == names[:4]
    rate, words = (panels[names.index(name)] for name in ("training.lr", "rectifier.tau"))
    assert rate.get_xscale() == "log"
    assert sorted(rate.lines[0].get_xdata()) == sorted(points["training.lr"])  # type: ignore[arg-type]
    assert [text.get_text() for text in words.get_xticklabels()] == ["1", "none"]
