"""Which of the paper's tables a sweep fills, by its benchmark and by what it varied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from analysis import paper
from analysis.load import goals
from analysis.stats.selection import DEFAULT
from analysis.tables import overlay, render, retain_free, tidy
from analysis.tables.facsimiles import (
    LAYOUTS,
    MUSE,
    TOFU_ABLATION,
    TOFU_GAMMA,
    TOFU_MAIN,
    TOFU_RETAIN_FREE,
    TOFU_TAU,
    WMDP,
    WMDP_MEASURES,
    WMDP_RMU,
    uwc,
)
from analysis.tables.format import Table, split_label
from analysis.tables.layout import Layout, Measure, numbers
from analysis.tables.main import REFERENCES, TASK_VECTORS
from trainables.config.settings import Selection
from trainables.storage.base import FAILURES


@dataclass(frozen=True)
class Sheet:
    """A table of a sweep or of the paper: the stem of its files, its title, and what is printed, unrounded."""

    name: str
    title: str
    layout: Layout
    table: Table
    numbers: pd.DataFrame


def of(
    frame: pd.DataFrame,
    runs: pd.DataFrame,
    references: pd.DataFrame,
    rule: Selection = DEFAULT,
    command: str = "",
    beside: bool = False,
) -> list[Sheet]:
    """Return the tables that a sweep fills: by its benchmark and by what it varied.

    `frame` is `tidy.from_runs` of the others, `command` is the sweep's. The paper's numbers are put beside those of its
    own dialect only.
    """
    beside = beside and overlay.alike(runs)
    if command and any(runs["status"].isin(FAILURES)):
        command = f"{command} --retry-failed"
    sheets = []
    for layout in fitting(frame):
        if layout is TOFU_RETAIN_FREE:  # WGA's trials with a retain term are no part of it
            free = tidy.from_runs(retain_free.trials(runs), references, rule)
            sheets += _sheets(layout, free, beside, command)
        else:
            sheets += _sheets(layout, frame, beside, command)
    return sheets


def filled_by(sweep: str) -> dict[str, str]:
    """Return the paper's tables that the named sweep fills, and its backbone there; none of a sweep of our own."""
    found = [(layout.table, layout.sweeps) for layout in LAYOUTS.values()]
    return {table: backbone for table, sweeps in found for backbone, name in sweeps.items() if name == sweep}


def published(tables: Mapping[str, str]) -> list[Sheet]:
    """Return these tables of the paper, each of its backbone, of all where that is empty."""
    parts = [(LAYOUTS[table], paper.load(table, backbone)) for table, backbone in tables.items()]
    return [sheet for layout, frame in parts for sheet in _sheets(layout, frame, False, "")]


def fitting(frame: pd.DataFrame) -> list[Layout]:
    """Return the layouts of what a tidy frame of runs holds."""
    rows = frame.loc[~frame["method"].isin(REFERENCES)]
    if rows.empty:
        return []
    mixed = rows["target"].notna()
    return [*_main(rows), *_varied(rows.loc[~mixed]), *(uwc(str(name)) for name in rows.loc[mixed, "method"].unique())]


def _main(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of methods side by side."""
    benchmark, vectors = rows["benchmark"].iloc[0], rows["method"].isin(TASK_VECTORS)
    kinds = set(rows.loc[~vectors, "rectifier"])
    match benchmark:
        case "wmdp":
            if set(rows["method"]) - {"rmu"}:
                yield WMDP
            if "rmu" in set(rows["method"]):
                yield WMDP_RMU
        case "muse":
            yield MUSE
        case "tofu":
            if "none" in kinds and not (any(vectors) and kinds == {"none"}):
                yield TOFU_MAIN
            if any(vectors):
                yield TOFU_RETAIN_FREE
            if "clip" in kinds:
                yield TOFU_ABLATION


def _varied(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of the settings of GRU that a method was run at several values of."""
    benchmark = str(rows["benchmark"].iloc[0]) if len(rows) else ""
    rectified = rows.loc[rows["rectifier"] == "gru"]
    for layout, axis, other in ((TOFU_TAU, "tau", "gamma"), (TOFU_GAMMA, "gamma", "tau")):
        if not any(rectified.groupby(["split", "method", other])[axis].nunique() > 1):
            continue
        if benchmark == "tofu":
            yield layout
        else:
            found = {"wmdp": WMDP_MEASURES, "muse": MUSE.measures}.get(benchmark) or _goals(benchmark)
            measures = tuple(replace(measure, best=None) for measure in found)
            caption = f"{benchmark.upper()}: GRU over {axis}"
            yield replace(layout, measures=measures, caption=caption, methods=(), sweeps={}, splits={}, fixed={})


def _goals(benchmark: str) -> tuple[Measure, ...]:
    return tuple(Measure(column.metric, column.head, 4, None) for column in goals.goals(benchmark).columns)


def _sheets(layout: Layout, frame: pd.DataFrame, beside: bool, command: str) -> Iterator[Sheet]:
    """Yield a layout's table; of an axis or components one a split, for which these layouts have no heads."""
    splits = sorted(frame["split"].unique())
    several = bool(layout.axis or layout.components)
    for split in splits if several else [""]:
        part = frame.loc[frame["split"] == split] if several else frame
        if part.loc[~part["method"].isin(REFERENCES)].empty:
            continue
        alone = not several or len(splits) == 1
        table = render.render(layout, part, beside, command)
        title = layout.caption if alone else f"{layout.caption}, {split_label(split)}"
        stem = layout.table if layout.sweeps else f"{frame['benchmark'].iloc[0]}_{layout.axis}"
        name = stem if alone else f"{stem}-{split}"
        yield Sheet(name, title, layout, table, numbers(layout, part, beside))
