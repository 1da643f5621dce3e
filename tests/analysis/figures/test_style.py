"""Looks of methods in figures: distinct, also without colour."""

import itertools

from analysis.figures import style
from trainables.config.method_tables import METHODS


def test_methods_can_be_told_apart() -> None:
    assert set(style.LOOKS) == set(METHODS)
    for one, other in itertools.combinations(METHODS, 2):
        a, b = (style.marker_style(name, "gru")["marker"] for name in (one, other))
        assert a != b  # without any colour
        looks = [(style.method_colour(name), style.line_style(name)) for name in (one, other)]
        assert looks[0] != looks[1], (one, other)
    assert "*" not in {look[1] for look in style.LOOKS.values()}  # the reference models' sign
