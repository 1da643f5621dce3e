"""The forest plot of rectifiers and their mean ranks: what is drawn, and that all of it can be read."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from analysis.figures import catalog, rectifiers
from analysis.labels import rectifier_name
from analysis.stats.rectifier_comparison import Comparison, compare
from tests.support.arena_store import write_arena
from tests.support.figure_texts import labels, overlapping

SHIFTS = {"none": 0.0, "gru": 3.0, "sago": -2.0, "blur": 0.05, "clip": 1.0}


def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
    dice = np.random.default_rng([seed, *name.encode()])
    tuned = 2.0 if lr == (2e-3 if name == "gru" else 1e-3) else 0.0
    return -22 + SHIFTS[name] + tuned + dice.normal(0, 0.3), 0.85 - 0.02 * SHIFTS[name] / 10


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    methods = {"ga": ("none", "gru", "sago", "blur"), "npo": ("none", "gru", "sago", "blur")}
    seeds = {1e-3: range(8), 2e-3: range(8)}
    store = tmp_path_factory.mktemp("arena")
    return compare(write_arena(store, value, methods=methods, seeds=seeds, extraction=True))


def marks(axes: Axes) -> list[tuple[float, str, bool]]:
    """Return x, colour and fullness of each mark of a panel."""
    found = [line for line in axes.lines if line.get_marker() == "o"]
    return [(line.get_xdata()[0], line.get_color(), line.get_markerfacecolor() != "white") for line in found]  # type: ignore[index,misc]


def test_forest_plot(comparison: Comparison) -> None:
    forest, *_ = catalog.draw_rectifiers(comparison)
    assert forest.stem == "rectifiers-forget05"
    panels = forest.figure.axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [f"{method}\n{goal}" for method in ("GA", "NPO") for goal in ("FQ", "MU", "ES")]
    rows = comparison.differences
    for axes, (method, metric) in zip(
        panels, [(m, goal.metric) for m in ("ga", "npo") for goal in comparison.goals], strict=True
    ):
        own = rows.loc[(rows["method"] == method) & (rows["metric"] == metric)]
        drawn = sorted(x for x, _, _ in marks(axes))
        assert drawn == pytest.approx(sorted(own["difference"]))
        assert sum(full for _, _, full in marks(axes)) == sum(own["basis"] == "own best") == 3
    colours = dict(zip([1.0, -1.0], ["#0072B2", "#D55E00"], strict=True))
    for x, colour, _ in marks(panels[0]):
        sign = rows.loc[np.isclose(rows["difference"], x) & (rows["metric"] == "forget_quality"), "sign"].iloc[0]
        assert colour == colours.get(sign, "#666666")
    assert panels[2].xaxis_inverted(), "less can be extracted: better is to the right everywhere"
    assert not panels[0].xaxis_inverted()
    assert labels(forest.figure) == {*rectifiers.WORDS.values(), "each at its own best", "at the settings of none"}
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["BLUR", "SAGO", "GRU"]
    assert not overlapping(forest.figure)


def test_below_five_seeds_lines_are_from_the_lowest_to_the_highest(tmp_path: Path) -> None:
    found = compare(write_arena(tmp_path, value, names=("none", "gru", "clip"), seeds={1e-3: range(3)}))
    figure = next(catalog.draw_rectifiers(found)).figure
    gains = found.differences.loc[found.differences["metric"] == "forget_quality"].set_index("rectifier")["gains"]
    lines = [sorted(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) == 2][1:]  # type: ignore[arg-type]
    assert np.array(sorted(lines)) == pytest.approx(np.array(sorted([min(one), max(one)] for one in gains)), rel=1e-3)
    assert labels(figure) == set()
    ranks = list(catalog.draw_rectifiers(found))[1]
    assert "CD" not in ranks.figure.axes[0].texts[0].get_text(), "three seeds are not tested"


def test_ranks_are_in_order_and_joined_where_the_distance_is_not_reached(comparison: Comparison) -> None:
    _, quality, *_ = catalog.draw_rectifiers(comparison)
    assert quality.stem == "ranks-forget05-forget_quality"
    for axes, method in zip(quality.figure.axes, ("ga", "npo"), strict=True):
        own = quality.points.loc[quality.points["method"] == method].sort_values("rank")
        names = [text.get_text() for text in axes.get_yticklabels()]
        assert names == [rectifier_name(name) for name in own["rectifier"]]
        assert [x for x, _, _ in marks(axes)] == own["rank"].tolist()
        assert axes.get_yticklabels()[names.index("none")].get_fontweight() == "bold"
        assert axes.texts[0].get_text().startswith(f"8 seeds, CD {own['distance'].iloc[0]:.1f}, Friedman p < 0.001")
        joined = [line for line in axes.lines if line.get_linewidth() == 1.6]
        assert len(joined) == len(rectifiers.find_groups(own["rank"].tolist(), own["distance"].iloc[0])) > 0
    assert not overlapping(quality.figure)


@pytest.mark.parametrize(
    ("ranks", "distance", "groups"),
    [
        ([1.0, 2.0, 3.0, 4.0], 1.5, [(0, 1), (1, 2), (2, 3)]),
        ([1.0, 1.5, 4.0, 4.2], 1.0, [(0, 1), (2, 3)]),
        ([1.0, 2.0, 3.0], 5.0, [(0, 2)]),
        ([1.0, 3.0], 2.0, []),
        ([1.0, 1.1], math.nan, []),
    ],
)
def test_groups(ranks: list[float], distance: float, groups: list[tuple[int, int]]) -> None:
    assert rectifiers.find_groups(ranks, distance) == groups


def test_fourteen_rectifiers_can_be_read(tmp_path: Path) -> None:
    names = ("none", "gru", "sago", *(f"a_long_name_{place}" for place in range(11)))
    seeds = {1e-3: range(10)}

    def spread(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
        place = names.index(name)
        return -20 + place / 2 + np.random.default_rng([seed, place]).normal(0, 2), 0.85

    methods = {"ga": names, "npo": names, "simnpo": names}
    found = compare(write_arena(tmp_path, spread, methods=methods, seeds=seeds, mixed=True))
    for picture in catalog.draw_rectifiers(found):
        assert not overlapping(picture.figure), picture.stem
        assert isinstance(picture.points, pd.DataFrame)
        assert len(picture.points)
