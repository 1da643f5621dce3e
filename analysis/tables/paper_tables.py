"""Which of the paper's tables a sweep fills, by its benchmark and by what it varied, and their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from analysis import paper
from analysis.labels import REFERENCES, TASK_VECTORS, order_names, split_label
from analysis.load.goal_columns import find_goals
from analysis.stats import tidy
from analysis.stats.sweep_results import Results
from analysis.tables import fill_commands, markdown_latex
from analysis.tables.layout import Layout, Measure
from analysis.tables.markdown_latex import Table
from analysis.tables.print_table import Grid
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


@dataclass(frozen=True)
class FillingSweep:
    """A sweep that fills tables: its results, these as `tidy.from_runs` has them, and the command that started it."""

    results: Results
    frame: pd.DataFrame
    command: str = ""

    @property
    def heading(self) -> str:
        """Return what its columns are called: by the backbone."""
        return str(next(iter(self.frame["backbone"]), ""))

    @property
    def filling_command(self) -> str:
        """Return the command that runs what is missing."""
        failed = self.command and any(self.results.runs["status"].isin(FAILURES))
        return f"{self.command} --retry-failed" if failed else self.command


def make_sheet(
    layout: Layout,
    frame: pd.DataFrame,
    beside: bool = False,
    commands: Mapping[str, str] = MappingProxyType({}),
    name: str = "",
    title: str = "",
) -> Sheet:
    """Return a layout's table of a tidy frame: a row for each of its methods.

    `beside`: with the paper's number in each cell. `commands`: by backbone, the command that runs what is missing; a
    table of the paper that one of these sweeps fills has all its rows and columns.
    """
    ours = bool((frame["table"] == tidy.SOURCE).all())
    whole = not ours or bool(set(map(fill_commands.find_name, commands.values())) & set(layout.sweeps.values()))
    grid = Grid(layout, select_numbers(layout, frame, beside), ours, whole, beside)
    kept = grid.rows.drop(columns=["table", "chosen", "relative_change"], errors="ignore")
    csv = grid.exact_frame() if layout.report else kept.dropna(axis="columns", how="all")
    return Sheet(name or layout.table, title or layout.caption, layout, grid.print_table(commands), grid.rows, csv)


def make_sheets(sweeps: Mapping[str, FillingSweep], beside: bool = False) -> list[Sheet]:
    """Return the paper's tables that sweeps of one benchmark fill, by their labels: by what they varied, in its order.

    The paper's numbers are put beside those of its own dialect only.
    """
    beside = beside and all(tidy.in_paper_dialect(one.results.runs) for one in sweeps.values())
    layouts = {layout.table: layout for one in sweeps.values() for layout in fitting_layouts(one.frame)}
    main, free = LAYOUTS["tofu_main"], LAYOUTS["tofu_retain_free"]
    names = {fill_commands.find_name(one.command) for one in sweeps.values()}
    if len(sweeps) > 1 and names & set(main.sweeps.values()):
        layouts[free.table] = free
    sheets = []
    for layout in (layouts[table] for table in order_names(layouts, LAYOUTS)):
        frames = {label: one.frame for label, one in sweeps.items()}
        if layout.table == free.table:  # WGA's trials with a retain term are no part of it
            trials = {label: retain_free_trials(one.results.runs) for label, one in sweeps.items()}
            frames = {
                label: tidy.from_runs(sweeps[label].results.with_runs(runs))
                for label, runs in trials.items()
                if len(runs)
            }
        rows = tidy.join(frames, set(layout.sweeps.values()))
        sheets += _make_sheets(layout, rows, beside, _filling_commands(layout, list(sweeps.values())))
    return sheets


def _filling_commands(layout: Layout, sweeps: Sequence[FillingSweep]) -> dict[str, str]:
    """Return the commands that fill a layout's gaps, by backbone: of its own sweep there, if that is given.

    Of several sweeps none of which is the layout's own, its own is named; a line over a setting is of any sweep.
    """
    found = {}
    for one in sweeps:
        own = layout.sweeps.get(one.heading, "")
        if fill_commands.find_name(one.command) == own:
            found[one.heading] = one.filling_command
        elif own and len(sweeps) > 1 and not layout.axis:
            found.setdefault(one.heading, f"python -m platform.sweep {own}")
        else:
            found.setdefault(one.heading, one.filling_command)
    return found


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
    return [sheet for layout, frame in parts for sheet in _make_sheets(layout, frame, False, {})]


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
            measures = tuple(measure._replace(best=None) for measure in found)
            caption = f"{benchmark.upper()}: GRU over {layout.axis}"
            yield replace(layout, measures=measures, caption=caption, methods=(), sweeps={}, splits={}, fixed={})


def _make_sheets(layout: Layout, frame: pd.DataFrame, beside: bool, commands: Mapping[str, str]) -> Iterator[Sheet]:
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
        yield make_sheet(layout, part, beside, commands, stem if alone else f"{stem}-{split}", title)
