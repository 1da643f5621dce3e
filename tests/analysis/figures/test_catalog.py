"""Pairs and a report's pictures as a whole: they have the tables' numbers and can be read."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb

from analysis import paper
from analysis.figures import changes, style, tradeoff
from analysis.report import sections
from analysis.stats.rectifier_comparison import compare_rectifiers
from tests.support.figure_texts import labels, overlapping, texts
from tests.support.ruled_sweeps import NAMES, grid_results, paper_values, write_arena
from tests.support.sweep_store import GRU, MODELS, NONE, SweepResults, make_sweep
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Selection

grid_sweep = grid_results


def test_figure_4_is_the_papers() -> None:
    points = changes.tabulate_gru_pairs(paper.load_table("tofu_main", corrected=True))
    found = points.set_index(["backbone", "split", "metric", "method"])
    numbers = paper_values("tofu_main")
    assert len(numbers) == sum(map(len, (found["none"].dropna(), found["gru"].dropna())))
    for row in points.to_dict("records"):
        backbone, split, metric, method = (row[name] for name in ("backbone", "split", "metric", "method"))
        for side in ("none", "gru"):
            number = numbers.get((backbone, split, method, side, "", "", "", metric))
            assert number == row[side] or (number is None and np.isnan(row[side]))
    figure = changes.draw_gru_bar_pairs(points)
    assert [axes.get_title() for axes in figure.axes if axes.axison][
        -1
    ] == "(h) Phi-1.5, forget10 (10%)"  # the paper's caption of it is wrong
    bars_of: list[Any] = list(figure.axes[0].patches)  # seven methods alone, these w/ GRU, what lies between
    assert [round(bar.get_height(), 4) for bar in bars_of[:15:7]] == [-16.9281, -3.5161, 13.412]
    numbered: list[Any] = sorted(figure.axes[0].texts, key=lambda text: text.xy[0])  # as in Table 2
    assert [text.get_text() for text in numbered] == "+13.4 +2.65 +0.956 +1.06 0 +3.74 0".split()


@pytest.mark.parametrize("benchmark", ["tofu", "wmdp", "muse"])
def test_the_papers_pictures_can_be_read(benchmark: str) -> None:
    tables = [name for name in sections.PAPER_FIGURE_KINDS["pairs"][0] if name.startswith(benchmark)]
    frame = pd.concat(paper.load_table(table, corrected=True) for table in tables)
    figure = changes.draw_gru_bar_pairs(changes.tabulate_gru_pairs(frame))
    assert overlapping(figure) == []
    assert ("chance" in labels(figure)) == (benchmark == "wmdp")
    assert min(float(text.get_fontsize()) for text in texts(figure)) >= 5.5
    assert figure.get_figwidth() <= 7.5  # inches of a page's text


def test_a_sweeps_pictures_can_be_read(grid_sweep: SweepResults) -> None:
    frame = grid_sweep.tidy_frame
    found = {kind: figure for kind, figure, *_ in sections.draw_paper_figures({"grid": frame})}
    assert list(found) == ["pairs", "gamma", "tau"]
    assert [kind for kind, figure in found.items() if overlapping(figure)] == []
    plain = pd.DataFrame(frame.loc[frame["rectifier"] == "none"])
    assert list(sections.draw_paper_figures({"grid": plain})) == []


def test_marks_stand_where_their_values_are_and_far_points_are_named(tmp_path: Path) -> None:
    """The axis is cropped to what is bold, and says what it leaves out."""
    points = [("ga", NONE, -19.0, 0.86), ("ga", GRU, -19.0, 0.87), ("gd", NONE, -20.0, 0.84), ("gd", GRU, -20.0, 0.84)]
    trials: list[Any] = [dict(zip(("method", "rectifier", "fq", "mu"), point, strict=True)) for point in points]
    models = {**MODELS, "retain": {"metrics": {"forget_quality": 0.0, "model_utility": 0.88}}}
    found = tradeoff.tabulate_tradeoff(make_sweep(tmp_path, *trials, splits=("forget05",), models=models))
    figure = tradeoff.draw_tradeoff(found, Selection())
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < -15
    assert axes.get_title() == "forget05 (5%)\nnot shown: retain model (FQ 0.00, MU 0.88)"
    drawn = {tuple(point) for line in axes.lines for point in np.asarray(line.get_xydata()).tolist()}
    assert {point[2:] for point in points} <= drawn
    assert overlapping(figure) == []


def contrast(colour: str) -> float:
    """Against white, by WCAG 2.2: 1.05 over the relative luminance and 0.05."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 1.05 / (sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)) + 0.05)


def test_every_pair_of_method_and_rectifier_has_its_own_colour_and_mark() -> None:
    looks = {}
    for method in METHODS:
        for rectifier in RECTIFIERS:
            look = style.marker_style(method, rectifier)
            face = to_hex(look.get("markerfacecolor", look["color"]))
            looks[method, rectifier] = (to_hex(look["color"]), str(look["marker"]), face == "#ffffff")
    assert len(set(looks.values())) == len(METHODS) * len(RECTIFIERS)
    colours = {method: style.method_colour(method) for method in METHODS}
    assert len(set(colours.values())) == len(METHODS)
    assert min(contrast(colour) for colour in colours.values()) >= 3
    assert min(contrast(colour) for colour in (style.GREY, style.GAIN_COLOUR, style.LOSS_COLOUR)) >= 4.5, "texts, too"
    for one, other in combinations([*colours.values(), style.GAIN_COLOUR, style.LOSS_COLOUR], 2):
        assert sum((a - b) ** 2 for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) ** 0.5 > 0.12, (one, other)


SHIFTS = {"none": 0.0, "gru": 3.0, "sago": -2.0, "blur": 0.05, "clip": 1.0}


def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
    dice = np.random.default_rng([seed, *name.encode()])
    tuned = 2.0 if lr == (2e-3 if name == "gru" else 1e-3) else 0.0
    return -22 + SHIFTS[name] + tuned + dice.normal(0, 0.3), 0.85 - 0.02 * SHIFTS[name] / 10


def marks(axes: Axes) -> list[tuple[float, str]]:
    """Return x and colour of each mark of a panel."""
    return [(line.get_xdata()[0], line.get_color()) for line in axes.lines if len(line.get_xdata()) == 1]  # type: ignore[index,misc]


def test_forest_plot(tmp_path: Path) -> None:
    methods, seeds = {"ga": NAMES, "npo": NAMES}, {1e-3: range(8), 2e-3: range(8)}
    comparison = compare_rectifiers(write_arena(tmp_path, value, methods=methods, seeds=seeds, extraction=True))
    forest = changes.draw_rectifier_forest_plot(changes.list_forest_plot_points(comparison), comparison.goals)
    panels = forest.axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [f"{method}\n{goal}" for method in ("GA", "NPO") for goal in ("FQ", "MU", "ES")]
    rows = comparison.differences
    for axes, (method, metric) in zip(
        panels, [(m, goal.metric) for m in ("ga", "npo") for goal in comparison.goals], strict=True
    ):
        own = rows.loc[(rows["method"] == method) & (rows["metric"] == metric)]
        assert sorted(x for x, _ in marks(axes)) == pytest.approx(sorted(own["difference"]))
        assert len(own) == 3
    colours = {1.0: "#004488", -1.0: "#BB5566"}
    for x, colour in marks(panels[0]):
        sign = rows.loc[np.isclose(rows["difference"], x) & (rows["metric"] == "forget_quality"), "sign"].iloc[0]
        assert colour == colours.get(sign, "#666666")
    assert panels[2].xaxis_inverted(), "less can be extracted: better is to the right everywhere"
    assert not panels[0].xaxis_inverted()
    assert labels(forest) == set(changes.CHANGE_LEGEND_WORDS.values())
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["BLUR", "SAGO", "GRU"]
    assert not overlapping(forest)
