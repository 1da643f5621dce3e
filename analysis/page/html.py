"""Self-contained pages: a template of `templates/` filled, and figures put into it as elements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from analysis.figures.catalog import Picture
from analysis.page.phone_figures import Part, list_rows

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
    """Return a figure's SVG file as an element of a page, and below it its parts one under another, for a phone.

    It goes without prolog and name spaces, which HTML has no need of, and is made wider for the screen; the height
    follows from the view box. The page's style shows the one or the other; the parts show pieces of the whole.
    """
    svg = (folder / f"{picture.stem}.svg").read_text(encoding="utf-8")
    element = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :], count=4)
    size = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
    element = size.sub(lambda match: f'width="{1.35 * float(match[1]):.0f}pt"', element, count=1)
    name = re.sub(r"\W", "-", picture.stem)
    element = element.replace('id="figure_1"', f'id="{name}"', 1)
    head = f'<svg role="img" aria-label="{escape(picture.text)}"'
    rows = ("".join(_show_part(part, name) for part in row) for row in list_rows(picture.figure))
    parts = "".join(f"<div>{row}</div>" for row in rows)
    return Markup(f'{element.replace("<svg", head, 1)}<div class="parts" aria-hidden="true">{parts}</div>')


def _show_part(boxes: Part, name: str) -> str:
    """Return an element that shows these boxes of the element called `name` beside one another."""
    at, shown = 0.0, ""
    for left, top, width, height in boxes:
        window = f'viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}"'
        shown += f'<svg x="{at:.1f}" width="{width:.1f}" height="{height:.1f}" {window}><use href="#{name}"/></svg>'
        at += width
    return f'<svg viewBox="0 0 {at:.1f} {boxes[0][3]:.1f}" style="width: {1.25 * at:.0f}pt">{shown}</svg>'
