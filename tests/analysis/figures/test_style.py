"""Looks of methods in figures: distinct, also in grey."""

import itertools

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from analysis.figures import style
from trainables.config.method_tables import METHODS


def simulate(colour: str, lacking: str) -> np.ndarray:
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
        looks = [(style.colour(name), style.dashes(name)) for name in (one, other)]
        assert looks[0] != looks[1], (one, other)
        if looks[0][0] != looks[1][0]:
            for lacking in ("red", "green"):
                assert np.abs(simulate(looks[0][0], lacking) - simulate(looks[1][0], lacking)).max() > 0.1, (one, other)
    assert "*" not in {look[1] for look in style.LOOKS.values()}  # the reference models' sign
    for colour in {style.colour(name) for name in METHODS}:
        assert 0.05 < simulate(colour, "grey") < 0.5, colour  # neither the original model's black nor lost on white


def test_a_rectified_trial_looks_like_no_other_of_its_method() -> None:
    """Hollow, half full or pale, full: also where a marker has no halves."""
    for method in METHODS:
        looks = [style.opaque(method, rectifier) for rectifier in ("none", "pcgrad", "gru")]
        seen = [(look["fillstyle"], look.get("markerfacecolor")) for look in looks]
        assert len(set(seen)) == 3, method
        drawn = MarkerStyle(looks[1]["marker"], looks[1]["fillstyle"])
        assert (drawn.get_alt_path() is not None) == (looks[1]["fillstyle"] != "full")
