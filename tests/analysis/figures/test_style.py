"""What figures look like: methods can be told apart, also in grey, legends show lines, texts do not overlap."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation

from analysis import paper
from analysis.figures import style, tradeoff
from trainables.config.methods import METHODS


def seen(colour: str, lacking: str) -> np.ndarray:
    """Return a colour's linear red, green and blue as eyes without red or green cones see them; `grey`: brightness.

    Vienot, Brettel and Mollon (1999), "Digital video colourmaps for checking the legibility of displays by dichromats".
    """
    linear = np.asarray(to_rgb(colour)) ** 2.2
    if lacking == "grey":
        return linear @ np.asarray([0.2126, 0.7152, 0.0722])
    first, second = {"red": (0.11238, 0.88762), "green": (0.29275, 0.70725)}[lacking]
    third = {"red": 0.00401, "green": -0.02234}[lacking]
    mixed = first * linear[0] + second * linear[1]
    return np.clip([mixed, mixed, third * (linear[0] - linear[1]) + linear[2]], 0, 1) ** (1 / 2.2)


def test_methods_can_be_told_apart() -> None:
    assert set(style.LOOKS) == set(METHODS)
    for one, other in itertools.combinations(METHODS, 2):
        a, b = (style.marker(name, "gru")["marker"] for name in (one, other))
        assert a != b  # without any colour
        drawn = [(style.colour(name), style.dashes(name)) for name in (one, other)]
        assert drawn[0] != drawn[1], (one, other)
        if drawn[0][0] != drawn[1][0]:
            for lacking in ("red", "green"):
                assert np.abs(seen(drawn[0][0], lacking) - seen(drawn[1][0], lacking)).max() > 0.1, (one, other)
    assert "*" not in {look[1] for look in style.LOOKS.values()}  # the reference models' sign
    for colour in {style.colour(name) for name in METHODS}:
        assert 0.05 < seen(colour, "grey") < 0.5, colour  # neither the original model's black nor lost on white


def test_the_legend_shows_a_methods_line() -> None:
    drawn = tradeoff.arrow_points(paper.mended("tofu_main"))
    figure = tradeoff.draw_arrows(drawn)
    legend = figure.legends[0]
    signs = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert signs["NPO+KL"].is_dashed()
    assert not signs["NPO"].is_dashed()
    patches = [text.arrow_patch for text in figure.axes[0].texts if isinstance(text, Annotation)]
    styles = {patch.get_linestyle() for patch in patches if patch is not None}
    assert len(styles) == 2


@pytest.mark.parametrize(("count", "most", "wide"), [(9, 4, 3), (9, 7, 5), (4, 4, 4), (5, 4, 3), (1, 4, 1), (8, 4, 4)])
def test_rows_are_even(count: int, most: int, wide: int) -> None:
    assert style.even_columns(count, most) == wide
