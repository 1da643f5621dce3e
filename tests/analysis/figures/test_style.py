"""A method is a colour and a rectifier a mark: no two share one, and each can be seen on white."""

from itertools import combinations

from matplotlib.colors import to_hex, to_rgb

from analysis.figures import style
from trainables.config.method_tables import METHODS, RECTIFIERS


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
    assert min(contrast(colour) for colour in (style.GREY, style.GAIN, style.LOSS)) >= 4.5, "they are of texts, too"
    for one, other in combinations([*colours.values(), style.GAIN, style.LOSS], 2):
        assert sum((a - b) ** 2 for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) ** 0.5 > 0.12, (one, other)
