"""Pairs and a report's pictures as a whole: they have the tables' numbers and can be read."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import paper
from analysis.figures import bars, catalog, sensitivity, style, tradeoff
from analysis.figures.panel_data import select_rows_varying_gamma_tau
from tests.support.figure_texts import labels, overlapping, texts
from tests.support.grid_sweep import FQ, grid_results, panel_titles, paper_values
from tests.support.sweep_store import GRU, MODELS, NONE, Results, make_sweep
from trainables.config.settings import Selection

grid_sweep = grid_results


def test_figure_4_is_the_papers() -> None:
    points = bars.bar_points(paper.load_corrected_table("tofu_main"))
    found = points.set_index(["backbone", "split", "metric", "method"])
    numbers = paper_values("tofu_main")
    assert len(numbers) == sum(map(len, (found["none"].dropna(), found["gru"].dropna())))
    for row in points.to_dict("records"):
        backbone, split, metric, method = (row[name] for name in ("backbone", "split", "metric", "method"))
        for side in ("none", "gru"):
            number = numbers.get((backbone, split, method, side, "", "", "", metric))
            assert number == row[side] or (number is None and np.isnan(row[side]))
    figure = bars.draw(points)
    assert panel_titles(figure)[-1] == "(h) Phi-1.5, forget10 (10%)"  # the paper's caption of it is wrong
    bars_of: list[Any] = list(figure.axes[0].patches)  # seven methods alone, these w/ GRU, what lies between
    assert [round(bar.get_height(), 4) for bar in bars_of[:15:7]] == [-16.9281, -3.5161, 13.412]
    changes: list[Any] = sorted(figure.axes[0].texts, key=lambda text: text.xy[0])  # as in Table 2
    assert [text.get_text() for text in changes] == "+13.4 +2.65 +0.956 +1.06 0 +3.74 0".split()


@pytest.mark.parametrize("benchmark", ["tofu", "wmdp", "muse"])
def test_the_papers_pictures_can_be_read(benchmark: str) -> None:
    found = catalog.draw_paper_pictures({table: "" for table in paper.TABLES if table.startswith(benchmark)})
    stems = [picture.stem.removeprefix("paper-") for picture in found]
    more = ["gamma", "tau", "uwc"] if benchmark == "tofu" else []
    assert stems == ["pairs", *more]
    for picture in found:
        assert overlapping(picture.figure) == [], picture.stem
        assert ("chance" in labels(picture.figure)) == (benchmark == "wmdp")
        assert min(float(text.get_fontsize()) for text in texts(picture.figure)) >= 5.5
        assert picture.figure.get_figwidth() <= 7.5  # inches of a page's text


def test_a_sweeps_pictures_can_be_read(grid_sweep: Results) -> None:
    frame = grid_sweep.tidy_frame
    found = catalog.draw_sweep_pictures(dict.fromkeys(catalog.PAPER_TABLES_BY_FIGURE, frame))
    assert [picture.stem for picture in found] == ["pairs", "gamma", "tau"]
    for picture in found:
        assert overlapping(picture.figure) == [], picture.stem
    plain = pd.DataFrame(frame.loc[frame["rectifier"] == "none"])
    assert catalog.draw_sweep_pictures(dict.fromkeys(catalog.PAPER_TABLES_BY_FIGURE, plain)) == []


def test_marks_stand_where_their_values_are_and_far_points_are_named(tmp_path: Path) -> None:
    """The axis is cropped to what is bold, and says what it leaves out."""
    points = [("ga", NONE, -19.0, 0.86), ("ga", GRU, -19.0, 0.87), ("gd", NONE, -20.0, 0.84), ("gd", GRU, -20.0, 0.84)]
    trials: list[Any] = [dict(zip(("method", "rectifier", "fq", "mu"), point, strict=True)) for point in points]
    models = {**MODELS, "retain": {"metrics": {"forget_quality": 0.0, "model_utility": 0.88}}}
    found = tradeoff.tradeoff_points(make_sweep(tmp_path, *trials, splits=("forget05",), models=models))
    figure = tradeoff.draw(found, Selection())
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < -15
    assert axes.get_title() == "forget05 (5%)\noutside: retain model (FQ 0.00, MU 0.88)"
    drawn = {tuple(point) for line in axes.lines for point in np.asarray(line.get_xydata()).tolist()}
    assert {point[2:] for point in points} <= drawn
    assert overlapping(figure) == []


def test_equal_numbers_give_equal_bytes(grid_sweep: Results, tmp_path: Path) -> None:
    points = sensitivity.sensitivity_points(select_rows_varying_gamma_tau(grid_sweep.tidy_frame), "gamma")
    for folder in ("one", "two"):
        style.save_figure(sensitivity.draw(points.loc[points["metric"] == FQ]), tmp_path / folder, "gamma", points)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["gamma.csv", "gamma.pdf", "gamma.png", "gamma.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
