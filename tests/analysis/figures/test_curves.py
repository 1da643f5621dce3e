"""Curves over gamma, tau, strengths and UWC's targets: they have the numbers of the paper's tables, or of trials."""

import numpy as np
import pandas as pd
import pytest

from analysis import paper
from analysis.figures import sensitivity
from analysis.figures.panel_data import select_rows_varying_gamma_tau
from tests.support import sweep_store
from tests.support.grid_sweep import FQ, grid_results, paper_values
from tests.support.sweep_store import Results

grid_sweep = grid_results
store, vectors = sweep_store.vectors_store, sweep_store.vectors_results


def test_sensitivity_to_tau_is_the_papers_without_its_misprint() -> None:
    points = sensitivity.sensitivity_points(paper.load_corrected_table("tofu_tau"), "tau")
    numbers = paper_values("tofu_tau")
    assert len(points) == len(numbers) == 54
    different = []
    for row in points.to_dict("records"):
        key = ("Llama-2-7B-chat", "forget05", row["method"], "gru", "", row["setting"], "", row["metric"])
        if numbers[key] != row["value"]:
            different.append((numbers[key], row["value"]))
    assert sorted(different) == [(-2.9534, -2.9538), (14.0316, -14.0316)]
    upper, lower = sensitivity.draw(points).axes
    curve, alone = (np.asarray(line.get_xydata()).tolist() for line in upper.lines[:2])
    assert (len(curve), curve[0]) == (8, [0, -29.6514])
    assert alone == [[8, numbers["Llama-2-7B-chat", "forget05", "ga", "gru", "", "none", "", FQ]]]
    ticks = [tick.get_text() for tick in lower.get_xticklabels()]
    assert ticks == ["0.001", "0.01", "0.1", "1", "2", "3", "10", "100", "none"]


def test_curves_of_runs_hold_all_else_at_the_chosen_setting(grid_sweep: Results) -> None:
    frame = select_rows_varying_gamma_tau(grid_sweep.tidy_frame)
    points = sensitivity.sensitivity_points(frame, "gamma")
    curve = points.loc[(points["method"] == "ga") & (points["metric"] == FQ)]  # tau 0.1 is best, and the first rate
    assert curve["value"].tolist() == pytest.approx([-10 * gamma - 0.1 - 0.5 for gamma in (0.05, 0.4, 0.8)])
    assert curve["chosen"].tolist() == [True, False, False]
    assert curve["n"].tolist() == [2, 2, 2]
    assert curve["sd"].tolist() == pytest.approx([np.sqrt(0.5)] * 3)
    over_tau = sensitivity.sensitivity_points(frame, "tau")
    curve = over_tau.loc[(over_tau["method"] == "ga") & (over_tau["metric"] == FQ)]
    assert curve["setting"].tolist() == ["0.1", "1", "none"]
    assert curve["value"].tolist() == pytest.approx([-1.1, -2.0, -4.0])


def test_task_vectors_are_drawn_over_their_strengths(vectors: Results) -> None:
    points = sensitivity.strength_points(vectors.tidy_frame)
    chosen = points.loc[points["chosen"] & points["setting"].notna(), ["method", "setting"]].drop_duplicates()
    assert sorted(chosen.to_numpy().tolist()) == [["tru", 12.0], ["tv", 1.0]]
    quality, utility = sensitivity.draw(points).axes
    ticks = [float(tick.get_text()) for tick in utility.get_xticklabels()]
    assert ticks == [1, 4, 8, 10, 12, 24, 40]
    for axes, metric in ((quality, FQ), (utility, "model_utility")):
        drawn = [np.asarray(line.get_xydata()).tolist() for line in axes.lines if line.get_linestyle() == "--"]
        for method in ("tru", "tv"):
            rows = points.loc[(points["method"] == method) & (points["metric"] == metric)]
            assert [[ticks.index(x), y] for x, y in zip(rows["setting"], rows["value"], strict=True)] in drawn


def test_uwc_is_drawn_over_its_targets() -> None:
    frame = pd.concat([paper.load_corrected_table("tofu_uwc_ga"), paper.load_corrected_table("tofu_uwc_npo")])
    points = sensitivity.uwc_target_points(frame)
    numbers = paper_values("tofu_uwc_npo")
    line = points.loc[(points["split"] == "forget10") & (points["method"] == "npo") & (points["rectifier"] == "gru")]
    targets = ("0.85", "0.90", "0.95")
    assert line["setting"].tolist() == [float(target) for target in targets]
    expected = [numbers["Phi-1.5", "forget10", "npo", "gru", "", "", target, FQ] for target in targets]
    assert line["value"].tolist() == expected
    left, right = sensitivity.draw(points).axes
    curves = [np.asarray(line.get_ydata()).tolist() for line in right.lines if np.size(line.get_xdata()) == 3]
    assert len(curves) == 4  # GA and NPO, alone and w/ GRU
    assert expected in curves
    original = numbers["Phi-1.5", "forget05", "original", "none", "", "", "", FQ]
    assert np.asarray(left.lines[0].get_ydata()).tolist() == [original, original]
    assert sensitivity.uwc_target_points(pd.DataFrame(frame.loc[frame["target"].isna()])).empty
