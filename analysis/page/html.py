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


def render_page(template: str, **values: Any) -> str:
    """Return the template of this name with these values. Raise jinja2.UndefinedError if it asks for another."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(values)


def inline_figures(pictures: Iterable[Picture], folder: Path) -> list[dict[str, Any]]:
    """Return figures, which lie in this folder, as templates take them."""
    return [{"svg": inline_svg(folder / f"{one.stem}.svg", one.text), "caption": one.caption} for one in pictures]


def inline_svg(path: Path, text: str) -> Markup:
    """Return an SVG file as an element of a page, `text` what it says to those who cannot see it.

    It goes without prolog and name spaces, which HTML has no need of, and is made wider for the screen; the height
    follows from the view box.
    """
    svg = path.read_text(encoding="utf-8")
    element = svg[svg.index("<svg") :]
    element = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", element, count=4)
    size = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
    element = size.sub(lambda match: f'width="{1.35 * float(match[1]):.0f}pt"', element, count=1)
    return Markup(element.replace("<svg", f'<svg role="img" aria-label="{text}"', 1))
