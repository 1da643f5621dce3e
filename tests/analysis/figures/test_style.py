"""Looks of methods in figures: distinct, also without colour."""

import itertools

from matplotlib.markers import MarkerStyle

from analysis.figures import style
from trainables.config.method_tables import METHODS


def test_methods_can_be_told_apart() -> None:
    assert set(style.LOOKS) == set(METHODS)
    for one, other in itertools.combinations(METHODS, 2):
        a, b = (style.marker(name, "gru")["marker"] for name in (one, other))
        assert a != b  # without any colour
        looks = [(style.colour(name), style.dashes(name)) for name in (one, other)]
        assert looks[0] != looks[1], (one, other)
    assert "*" not in {look[1] for look in style.LOOKS.values()}  # the reference models' sign


def test_a_rectified_trial_looks_like_no_other_of_its_method() -> None:
    """Hollow, half full or pale, full: also where a marker has no halves."""
    for method in METHODS:
        looks = [style.opaque(method, rectifier) for rectifier in ("none", "pcgrad", "gru")]
        seen = [(look["fillstyle"], look.get("markerfacecolor")) for look in looks]
        assert len(set(seen)) == 3, method
        drawn = MarkerStyle(looks[1]["marker"], looks[1]["fillstyle"])
        assert (drawn.get_alt_path() is not None) == (looks[1]["fillstyle"] != "full")
