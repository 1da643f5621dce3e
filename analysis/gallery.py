"""The report's parts that the paper has too: its tables filled from runs, and its figures, the paper's own beside."""

from __future__ import annotations

from enum import StrEnum

from analysis import pictures, published, steps, style, tidy
from analysis.sections import Given, Picture, Section, Shown
from analysis.sweeps import Sweep

TRAINING = ("dynamics", "angles")
"""What the names of figures over training steps begin with."""
BESIDE = "Under each number the paper's, and the difference to it; a dash where the paper has none."


class Source(StrEnum):
    """Whose numbers a report shows."""

    RUNS = "runs"
    PAPER = "paper"
    BOTH = "both"


def write(given: Given, sweep: Sweep, source: Source) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of the paper's, and return it in the page's order."""
    sheets = published.write(given.folder, given.runs, given.models, sweep, beside=source == Source.BOTH)
    tables = tuple(Shown(sheet.table, title=sheet.title) for sheet in sheets)
    frame = tidy.from_runs(given.runs, given.models, given.rule)
    measured = steps.load(given.runs, given.models, given.rule, given.store)
    drawn = pictures.of(frame, given.runs, measured, source.value)
    along, rest = ([one for one in drawn if one.stem.startswith(TRAINING) == wanted] for wanted in (True, False))
    found = [
        Section("In the paper's layout", tables, text=BESIDE if source == Source.BOTH else ""),
        Section("Without and with GRU", figures=_saved(given, rest)),
        Section("Along training", figures=_saved(given, along)),
    ]
    return [section for section in found if section.tables or section.figures]


def _saved(given: Given, drawn: list[pictures.Picture]) -> tuple[Picture, ...]:
    folder = given.folder / "figures"
    for picture in drawn:
        style.save(picture.figure, folder, picture.stem, picture.points)
    return tuple(Picture(folder / f"{one.stem}.svg", one.text, one.caption) for one in drawn)
