"""Curves and maps over gamma, tau and UWC's targets: what is drawn is what the paper's tables, or trials, say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from analysis import paper
from analysis.figures import heatmap, sensitivity, uwc
from analysis.figures.frames import near_chosen
from analysis.stats import tidy
from tests.support.drawn import labels
from tests.support.gridded import FQ, gridded_results, printed, shown
from tests.support.sweep_store import Results

gridded = gridded_results


def test_sensitivity_to_tau_is_the_papers_without_its_misprint() -> None:
    drawn = sensitivity.curve_points(paper.mended("tofu_tau"), "tau")
    numbers = printed("tofu_tau")
    assert len(drawn) == len(numbers) == 54
    different = []
    for row in drawn.to_dict("records"):
        key = ("llama", "forget05", row["method"], "gru", "", row["setting"], "", row["metric"])
        if numbers[key] != row["value"]:
            different.append((numbers[key], row["value"]))
    assert sorted(different) == [(-2.9534, -2.9538), (14.0316, -14.0316)]
    figure = sensitivity.draw(drawn)
    upper, lower = figure.axes
    curve = np.asarray(upper.lines[0].get_xydata())
    assert curve[:, 0].tolist() == list(range(8))
    assert curve[0, 1] == -29.6514
    alone = np.asarray(upper.lines[1].get_xydata())
    assert alone.shape == (1, 2)
    assert alone[0, 0] == 8
    assert alone[0, 1] == numbers["llama", "forget05", "ga", "gru", "", "none", "", FQ]
    ticks = [tick.get_text() for tick in lower.get_xticklabels()]
    assert ticks == ["0.001", "0.01", "0.1", "1", "2", "3", "10", "100", "none"]
    assert (lower.get_ylabel(), "clipping norm" in lower.get_xlabel()) == ("MU ↑", True)


def test_sensitivity_to_gamma_has_the_points_of_the_table() -> None:
    drawn = sensitivity.curve_points(paper.mended("tofu_gamma"), "gamma")
    assert drawn.groupby(["metric", "method"]).size().tolist() == [13, 9, 13] * 2  # GD ends at 0.6
    assert drawn.loc[drawn["setting"] == "none", "method"].unique().tolist() == ["ga", "npo"]


def test_curves_of_runs_hold_all_else_at_the_chosen_setting(gridded: Results) -> None:
    frame = near_chosen(tidy.from_runs(gridded), gridded.runs)
    drawn = sensitivity.curve_points(frame, "gamma")
    curve = drawn.loc[(drawn["method"] == "ga") & (drawn["metric"] == FQ)]  # tau 0.1 is best, and the first rate
    assert curve["value"].tolist() == pytest.approx([-10 * gamma - 0.1 - 0.5 for gamma in (0.05, 0.4, 0.8)])
    assert curve["chosen"].tolist() == [True, False, False]
    assert curve["n"].tolist() == [2, 2, 2]
    assert curve["sd"].tolist() == pytest.approx([np.sqrt(0.5)] * 3)
    over_tau = sensitivity.curve_points(frame, "tau")
    curve = over_tau.loc[(over_tau["method"] == "ga") & (over_tau["metric"] == FQ)]
    assert curve["setting"].tolist() == ["0.1", "1", "none"]
    assert curve["value"].tolist() == pytest.approx([-1.1, -2.0, -4.0])


@pytest.mark.parametrize("knob", ["gamma", "tau"])
def test_hollow_says_without_gru_and_the_chosen_setting_is_framed(gridded: Results, knob: str) -> None:
    """Curves over gamma and tau are all with GRU."""
    frame = near_chosen(tidy.from_runs(gridded), gridded.runs)
    drawn = sensitivity.curve_points(frame, knob)
    figure = sensitivity.draw(drawn)
    for axes in figure.axes:
        shown = [line for line in axes.lines if line.get_marker() not in ("None", "none", None)]
        assert all(to_rgb(line.get_markerfacecolor()) == to_rgb(line.get_color()) for line in shown)
        framed = [line for line in shown if line.get_markeredgecolor() == "black"]
        assert [np.asarray(line.get_ydata()).size for line in framed] == [1, 1]  # GA's and GD's
    (upper, _), best = figure.axes, drawn.loc[drawn["chosen"] & (drawn["metric"] == FQ), "value"]
    framed = [line for line in upper.lines if line.get_markeredgecolor() == "black"]
    assert sorted(float(np.asarray(line.get_ydata())[0]) for line in framed) == sorted(best)
    assert "chosen setting" in labels(figure)


def test_heat_map_of_runs_hatches_what_is_missing(gridded: Results) -> None:
    drawn = heatmap.cell_points(near_chosen(tidy.from_runs(gridded), gridded.runs))
    found = drawn.loc[drawn["metric"] == FQ].set_index(["method", "gamma", "tau"])["value"]
    assert len(found) == 9 + 8
    assert found["gd", "0.4", "none"] == pytest.approx(-4 - 3 - 0.5)
    figure = heatmap.draw(drawn)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert shown(figure)[:4] == ["GA: FQ ↑", "GA: MU ↑", "GD: FQ ↑", "GD: MU ↑"]
    assert [len(axes.texts) for axes in panels] == [9, 9, 8, 8]
    cells = np.ma.getmaskarray(np.ma.asarray(panels[2].images[0].get_array()))
    assert np.argwhere(cells).tolist() == [[1, 2]]  # tau 1, gamma 0.8
    assert all(axes.patches[0].get_hatch() for axes in panels)
    assert [tick.get_text() for tick in panels[2].get_yticklabels()] == ["0.1", "1", "none"]


def test_uwc_is_drawn_over_its_targets() -> None:
    frame = pd.concat([paper.mended("tofu_uwc_ga"), paper.mended("tofu_uwc_npo")])
    drawn = uwc.share_points(frame)
    numbers = printed("tofu_uwc_npo")
    line = drawn.loc[(drawn["split"] == "forget10") & (drawn["method"] == "npo") & (drawn["rectifier"] == "gru")]
    targets = ("0.85", "0.90", "0.95")
    assert line["target"].tolist() == [float(target) for target in targets]
    expected = [numbers["phi", "forget10", "npo", "gru", "", "", target, FQ] for target in targets]
    assert line[FQ].tolist() == expected
    figure = uwc.draw_shares(drawn)
    assert [title.split(":")[0] for title in shown(figure)] == ["GA", "GA", "NPO", "NPO"]
    assert all(len(axes.lines) == 3 for axes in figure.axes)  # alone, w/ GRU, the original model
