"""The report's parts that only some sweeps have: task vectors (retain-data-free) and calibration (UWC)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from analysis import calibration, goals, mixtures, printing, retain_free, strengths, style, tables
from analysis.selection import DEFAULT
from trainables.config import Selection

WHOLE = "Mixtures are measured on all evaluation rows: those that the settings were chosen on, and the others."


@dataclass(frozen=True)
class Section:
    """A part of the page: a table, and figures, of each its SVG file and what it says to those who cannot see it."""

    title: str
    table: printing.Table
    figures: tuple[tuple[Path, str], ...]
    caption: str


def write(folder: Path, runs: pd.DataFrame, models: pd.DataFrame, rule: Selection = DEFAULT) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of these parts, and return them in the page's order.

    They are over FQ and MU: sweeps on other benchmarks than TOFU have none.
    """
    found = []
    if goals.of(runs).benchmark != "tofu":
        return found
    if tables.task_vectors(runs):
        found.append(_retain_free(folder, runs, models, rule))
    if len(calibration.chosen_trials(runs, models, rule)):
        found.append(_calibration(folder, runs, models, rule))
    return found


def _retain_free(folder: Path, runs: pd.DataFrame, models: pd.DataFrame, rule: Selection) -> Section:
    frame = retain_free.table(runs, models, rule)
    drawn = strengths.points(runs, models, rule)
    pictures = []
    if any(drawn["kind"] == "strength"):
        style.save(strengths.draw(drawn), folder / "figures", "strength", drawn)
        text = (
            "Forget quality and model utility over the strengths of TRU and TV; the points are in figures/strength.csv"
        )
        pictures.append((folder / "figures/strength.svg", text))
    caption = (
        "A column a method over its strength, and both over how far they moved the weights. Means over seeds, bars one "
        "sd; lines join measured strengths. Full: the chosen strength. Lines across: the original and the retain model."
    )
    printed = retain_free.printed(frame)
    _table(folder, "retain_free", frame, printed)
    return Section("Without retain data", printed, tuple(pictures), caption)


def _calibration(folder: Path, runs: pd.DataFrame, models: pd.DataFrame, rule: Selection) -> Section:
    frame = calibration.table(runs, models, rule)
    drawn = mixtures.points(runs, models, rule)
    pictures = []
    for split in sorted(drawn["split"].unique()):
        stem = f"uwc-{split}"
        style.save(mixtures.draw(drawn, split), folder / "figures", stem, drawn.loc[drawn["split"] == split])
        text = f"Forget quality and model utility of mixtures on {split}; the points are in figures/{stem}.csv"
        pictures.append((folder / f"figures/{stem}.svg", text))
    caption = (
        "A row a method, a line a seed of its chosen setting, alone and w/ GRU. Large marks: the targets' "
        "mixtures. In the right column, of two points at equal MU the one further right forgets better."
    )
    printed = calibration.printed(frame)
    if rule.halves:
        printed = replace(printed, notes=(*printed.notes, WHOLE))
    _table(folder, "uwc", frame, printed)
    return Section("At equal utility (UWC)", printed, tuple(pictures), caption)


def _table(folder: Path, stem: str, frame: pd.DataFrame, printed: printing.Table) -> None:
    texts = {"csv": tables.to_csv(frame), "md": printing.to_markdown(printed), "tex": printing.to_latex(printed)}
    for kind, text in texts.items():
        (folder / "tables" / f"{stem}.{kind}").write_text(text, encoding="utf-8")
