"""A report's page: its sections, and `page.html.j2` filled with them."""

import base64
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import save_figure_and_points
from analysis.tables.printing import PrintedTable
from trainables.common.errors import InputError

SavedFigure = tuple[str, str]
"""The name of a figure's files, and its caption."""
FIGURE_CAPTIONS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Section:
    """A part of the page: a text, then figures, then tables."""

    title: str
    tables: Sequence[PrintedTable] = ()
    figures: Sequence[SavedFigure] = ()
    text: str = ""


@contextmanager
def catch_report_write_errors(folder: Path) -> Iterator[None]:
    """Make a report's folder; raise InputError if it, or what is written meanwhile, cannot be written."""
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error


def save_picture(folder: Path, kind: str, stem: str, figure: Figure, points: pd.DataFrame, **words: str) -> SavedFigure:
    """Write figures/STEM.pdf, .svg, .png, .csv of the points; return it with the caption of its kind, filled in."""
    save_figure_and_points(figure, folder / "figures", stem, points)
    return stem, FIGURE_CAPTIONS[kind].format(**words)


def save_frame_as_csv(folder: Path, stem: str, frame: pd.DataFrame) -> None:
    """Write tables/STEM.csv, texts quoted that a spreadsheet would take for a formula."""
    quoted = frame.replace(r"^(?=[=+\-@\t\r])", "'", regex=True)
    quoted.to_csv(folder / "tables" / f"{stem}.csv", index=False, lineterminator="\n")


def write_page(folder: Path, **parts: Any) -> None:
    """Write index.html of a report from `parts`, the names in page.html.j2; the page needs no other file."""
    pictures = folder / "figures"
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.filters["embed"] = lambda stem: base64.b64encode((pictures / f"{stem}.svg").read_bytes()).decode()
    page = environment.get_template("page.html.j2").render(parts)
    (folder / "index.html").write_text(page, encoding="utf-8")
