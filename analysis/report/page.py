"""A report's page: its sections, and `page.html.j2` filled with them."""

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from analysis.figures.style import save_figure_and_points
from analysis.tables.markdown_latex import Table
from trainables.common.errors import InputError


class Picture(NamedTuple):
    """A figure, the name of its files, what is drawn, and its caption."""

    stem: str
    figure: Figure
    points: pd.DataFrame
    caption: str


@dataclass(frozen=True)
class TableItem:
    """A table of the page: a printed one, or a frame of texts, with a title above and a caption below."""

    body: Table | pd.DataFrame
    caption: str = ""
    title: str = ""

    @property
    def html(self) -> Markup:
        if isinstance(self.body, Table):
            return self.body.html
        with pd.option_context("display.max_colwidth", None):
            return Markup(self.body.to_html(index=False, border=0))

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.caption, *(self.body.notes if isinstance(self.body, Table) else ()))


@dataclass(frozen=True)
class Section:
    """A part of the page: a text, then figures, then tables."""

    title: str
    tables: tuple[TableItem, ...] = ()
    figures: tuple[Picture, ...] = ()
    text: str = ""


@contextmanager
def catch_report_write_errors(folder: Path) -> Iterator[None]:
    """Make a report's folder; raise InputError if it, or what is written meanwhile, cannot be written."""
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error


def save_pictures(folder: Path, pictures: Iterable[Picture]) -> tuple[Picture, ...]:
    """Write pictures as figures/STEM.pdf, .svg and .png, their points as .csv, and return them."""
    saved = tuple(pictures)
    for picture in saved:
        save_figure_and_points(picture.figure, folder / "figures", picture.stem, picture.points)
    return saved


def save_frame(folder: Path, stem: str, frame: pd.DataFrame) -> None:
    """Write tables/STEM.csv, texts quoted that a spreadsheet would take for a formula."""
    texts = frame.select_dtypes(include=["object", "str"]).columns
    frame = frame.assign(**{str(name): frame[name].map(_quote_formula) for name in texts})
    frame.to_csv(folder / "tables" / f"{stem}.csv", index=False, lineterminator="\n")


def _quote_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def write_page(folder: Path, **parts: Any) -> None:
    """Write index.html of a report from `parts`, the names in page.html.j2; the page needs no other file."""

    def embed(picture: Picture) -> str:
        return base64.b64encode((folder / "figures" / f"{picture.stem}.svg").read_bytes()).decode()

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.filters["embed"] = embed
    page = environment.get_template("page.html.j2").render(parts)
    (folder / "index.html").write_text(page, encoding="utf-8")
