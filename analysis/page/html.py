"""Self-contained pages: a template of `templates/` filled, and figures put into it as elements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from analysis.figures.catalog import Picture

TEMPLATES = Path(__file__).parent / "templates"
PATH, LONG = re.compile(r"[^\s,;]*/[^\s,;]+/[^\s,;]+"), 32
"""A path, and from how many characters on it is shortened."""


def render_page(template: str, folder: Path, **values: Any) -> str:
    """Return the template of this name with these values and with the figures of a report's folder.

    Raise jinja2.UndefinedError if the template asks for another value.
    """
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["shorten"] = shorten_paths
    environment.filters["inline"] = lambda picture: inline_svg(folder / "figures", picture)
    return environment.get_template(template).render(values)


def shorten_paths(text: object) -> Markup:
    """Return a text whose long paths show their last two names, and the whole where the pointer rests on them."""

    def shorten(match: re.Match[str]) -> str:
        path = match[0]
        return f'<span title="{path}">…/{"/".join(path.split("/")[-2:])}</span>' if len(path) > LONG else path

    return Markup(PATH.sub(shorten, str(escape(text))))


def inline_svg(folder: Path, picture: Picture) -> Markup:
    """Return a figure's SVG file as an element of a page.

    It goes without prolog and name spaces, which HTML has no need of, and is made wider for the screen; the height
    follows from the view box. On a narrow screen it stays wide enough for its text, and its frame scrolls.
    """
    svg = (folder / f"{picture.stem}.svg").read_text(encoding="utf-8")
    element = svg[svg.index("<svg") :]
    element = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", element, count=4)
    size = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
    wide = 'width="{0:.0f}pt" style="min-width:{1:.0f}px"'
    element = size.sub(lambda match: wide.format(1.35 * float(match[1]), 1.1 * float(match[1])), element, count=1)
    return Markup(element.replace("<svg", f'<svg role="img" aria-label="{picture.text}"', 1))
