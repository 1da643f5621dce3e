"""Self-contained pages: a template of `templates/` filled, and figures put into it as elements."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.figures.catalog import Picture

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Return the template of this name with these values; jinja2.UndefinedError where it asks for another."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string((TEMPLATES / template).read_text(encoding="utf-8")).render(values)


def figures(drawn: Iterable[Picture], folder: Path) -> list[dict[str, Any]]:
    """Return figures, which lie in this folder, as templates take them."""
    return [{"svg": inline(folder / f"{one.stem}.svg", one.text), "caption": one.caption} for one in drawn]


def inline(path: Path, text: str) -> Markup:
    """Return an SVG file as an element of a page, `text` what it says to those who cannot see it.

    It goes without prolog and name spaces, which HTML has no need of.
    """
    svg = path.read_text(encoding="utf-8")
    element = svg[svg.index("<svg") :]
    element = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", element, count=4)
    element = re.sub(r'width="([\d.]+)pt" height="[\d.]+pt"', _wider, element, count=1)
    return Markup(element.replace("<svg", f'<svg role="img" aria-label="{text}"', 1))


def _wider(size: re.Match[str]) -> str:
    """Return a width for the screen; the height follows from the view box."""
    return f'width="{1.35 * float(size[1]):.0f}pt"'
