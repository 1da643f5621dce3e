"""Which of the paper's tables a sweep fills, by its benchmark and by what it varied, and their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from analysis import paper
from analysis.labels import REFERENCES, TASK_VECTORS, split_label
from analysis.load.goal_columns import find_goals
from analysis.stats import tidy
from analysis.stats.sweep_results import Results
from analysis.tables import fill_commands, markdown_latex
from analysis.tables.cells import Grid
from analysis.tables.layout import Layout, Measure
from analysis.tables.markdown_latex import Table
from analysis.tables.select_numbers import select_numbers
from analysis.tables.table_definitions import LAYOUTS, uwc_layout
from trainables.storage.names import FAILURES


@dataclass(frozen=True)
class Sheet:
    """A table of a sweep or of the paper: its title, the stem of its files, what is printed, and the exact numbers."""

    name: str
    title: str
    layout: Layout
    table: Table
    numbers: pd.DataFrame
    csv: pd.DataFrame

    def save(self, folder: Path) -> None:
        """Write the table as Markdown and LaTeX as printed, and its numbers unrounded as CSV."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"md": markdown_latex.to_markdown(self.table), "tex": markdown_latex.to_latex(self.table)}
        texts["csv"] = self.csv.to_csv(index=False, lineterminator="\n")
        for kind, text in texts.items():
            (folder / f"{self.name}.{kind}").write_text(text, encoding="utf-8")


def make_sheet(
    layout: Layout, frame: pd.DataFrame, beside: bool = False, command: str = "", name: str = "", title: str = ""
) -> Sheet:
    """Return a layout's table of a tidy frame: a row for each of its methods.

    `beside`: with the paper's number in each cell. `command`: the command that started the sweep; a table of the paper
    that this sweep fills has all its rows and columns, and notes say how `command` runs what is missing.
    """
    ours = "n" in frame
    whole = not ours or fill_commands.find_name(command) in layout.sweeps.values()
    grid = Grid(layout, select_numbers(layout, frame, beside), ours, whole, beside)
    kept = grid.rows.drop(columns=["table", "chosen", "relative_change"], errors="ignore")
    csv = grid.exact_frame() if layout.report else kept.dropna(axis="columns", how="all")
    return Sheet(name or layout.table, title or layout.caption, layout, grid.print_table(command), grid.rows, csv)


def make_sheets(frame: pd.DataFrame, results: Results, command: str = "", beside: bool = False) -> list[Sheet]:
    """Return the tables that a sweep fills: by its benchmark and by what it varied.

    `frame` is `tidy.from_runs` of the results, `command` is the sweep's. The paper's numbers are put beside those
    of its own dialect only.
    """
    runs = results.runs
    beside = beside and tidy.in_paper_dialect(runs)
    if command and any(runs["status"].isin(FAILURES)):
        command = f"{command} --retry-failed"
    sheets = []
    for layout in fitting_layouts(frame):
        free = layout.table == "tofu_retain_free"  # WGA's trials with a retain term are no part of it
        rows = tidy.from_runs(results.with_runs(retain_free_trials(runs))) if free else frame
        sheets += _make_sheets(layout, rows, beside, command)
    return sheets


def retain_free_trials(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the trials without rectifier of methods that read no retain data; WGA's only without its retain term.

    Of WGA's presets `open-unlearning` has a retain term; a stated `retain_coefficient` overrules the preset.
    """
    objective = runs.reindex(columns=["objective.preset", "objective.retain_coefficient"])
    preset = (objective["objective.preset"] == "open-unlearning").astype(float)
    retains = (runs["method"] == "wga") & objective["objective.retain_coefficient"].astype(float).fillna(preset).gt(0)
    return runs.loc[
        runs["method"].isin(LAYOUTS["tofu_retain_free"].methods) & (runs["rectifier.name"] == "none") & ~retains
    ]


def tables_of_sweep(sweep: str) -> dict[str, str]:
    """Return the paper's tables that the named sweep fills, and its backbone there; none of a sweep of our own."""
    layouts = LAYOUTS.values()
    return {one.table: backbone for one in layouts for backbone, name in one.sweeps.items() if name == sweep}


def published_sheets(tables: Mapping[str, str]) -> list[Sheet]:
    """Return the paper's own tables. `tables` maps a table to a backbone; an empty text means all backbones."""
    parts = [(LAYOUTS[table], paper.load_table(table, backbone)) for table, backbone in tables.items()]
    return [sheet for layout, frame in parts for sheet in _make_sheets(layout, frame, False, "")]


def fitting_layouts(frame: pd.DataFrame) -> list[Layout]:
    """Return the layouts of what a tidy frame of runs holds."""
    rows = frame.loc[~frame["method"].isin(REFERENCES)]
    if rows.empty:
        return []
    mixed = rows["target"].notna()
    mixtures = [uwc_layout(str(name)) for name in rows.loc[mixed, "method"].unique()]
    return [*_main_layouts(rows), *_axis_layouts(rows.loc[~mixed]), *mixtures]


def _main_layouts(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of methods side by side."""
    vectors = rows["method"].isin(TASK_VECTORS)
    rectifiers = set(rows.loc[~vectors, "rectifier"])
    match rows["benchmark"].iloc[0]:
        case "wmdp":
            if set(rows["method"]) - {"rmu"}:
                yield LAYOUTS["wmdp"]
            if "rmu" in set(rows["method"]):
                yield LAYOUTS["wmdp_rmu"]
        case "muse":
            yield LAYOUTS["muse"]
        case "tofu":
            if "none" in rectifiers and not (any(vectors) and rectifiers == {"none"}):
                yield LAYOUTS["tofu_main"]
            if any(vectors):
                yield LAYOUTS["tofu_retain_free"]
            if "clip" in rectifiers:
                yield LAYOUTS["tofu_ablation"]


def _axis_layouts(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of the settings of GRU that a method was run at several values of."""
    benchmark = str(rows["benchmark"].iloc[0]) if len(rows) else ""
    rectified = rows.loc[rows["rectifier"] == "gru"]
    for layout in (LAYOUTS["tofu_tau"], LAYOUTS["tofu_gamma"]):
        if not any(rectified.groupby(["split", "method", layout.held_setting])[layout.axis].nunique() > 1):
            continue
        if benchmark == "tofu":
            yield layout
        else:
            goals = [Measure(column.metric, column.head, 4, None) for column in find_goals(benchmark).columns]
            found = LAYOUTS[benchmark].measures if benchmark in LAYOUTS else goals
            measures = tuple(replace(measure, best=None) for measure in found)
            caption = f"{benchmark.upper()}: GRU over {layout.axis}"
            yield replace(layout, measures=measures, caption=caption, methods=(), sweeps={}, splits={}, fixed={})


def _make_sheets(layout: Layout, frame: pd.DataFrame, beside: bool, command: str) -> Iterator[Sheet]:
    """Yield a layout's table; of an axis or components one for each split, for which these layouts have no heads."""
    splits = sorted(frame["split"].unique())
    several = bool(layout.axis or layout.components)
    for split in splits if several else [""]:
        part = frame.loc[frame["split"] == split] if several else frame
        if part.loc[~part["method"].isin(REFERENCES)].empty:
            continue
        alone = not several or len(splits) == 1
        title = layout.caption if alone else f"{layout.caption}, {split_label(split)}"
        stem = layout.table if layout.sweeps else f"{frame['benchmark'].iloc[0]}_{layout.axis}"
        yield make_sheet(layout, part, beside, command, stem if alone else f"{stem}-{split}", title)
