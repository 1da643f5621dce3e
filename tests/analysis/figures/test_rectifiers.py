"""The forest plot of rectifiers: what is drawn, and that all of it can be read."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import rectifiers
from analysis.stats.rectifier_comparison import Comparison, compare_rectifiers
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
    return compare_rectifiers(write_arena(store, value, methods=methods, seeds=seeds, extraction=True))


def draw(found: Comparison) -> Figure:
    return rectifiers.draw_differences(rectifiers.difference_points(found), found.goals)


def marks(axes: Axes) -> list[tuple[float, str]]:
    """Return x and colour of each mark of a panel."""
    return [(line.get_xdata()[0], line.get_color()) for line in axes.lines if line.get_marker() == "o"]  # type: ignore[index,misc]


def test_forest_plot(comparison: Comparison) -> None:
    forest = draw(comparison)
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
    assert labels(forest) == set(rectifiers.SIGN_WORDS.values())
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["BLUR", "SAGO", "GRU"]
    assert not overlapping(forest)


def test_below_five_seeds_lines_are_from_the_lowest_to_the_highest(tmp_path: Path) -> None:
    found = compare_rectifiers(write_arena(tmp_path, value, names=("none", "gru", "clip"), seeds={1e-3: range(3)}))
    figure = draw(found)
    gains = found.differences.loc[found.differences["metric"] == "forget_quality"].set_index("rectifier")["gains"]
    lines = [sorted(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) == 2][1:]  # type: ignore[arg-type]
    assert np.array(sorted(lines)) == pytest.approx(np.array(sorted([min(one), max(one)] for one in gains)), rel=1e-3)
    assert labels(figure) == set()
