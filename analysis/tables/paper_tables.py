"""Which of the paper's tables a sweep fills, by its benchmark and by what it varied, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.labels import MODEL_LABELS, TASK_VECTOR_METHODS, order_names
from analysis.stats import tidy
from analysis.stats.sweep_results import Results
from analysis.tables.markdown_latex import Table, to_latex, to_markdown
from analysis.tables.print_table import lay_out_table, select_table_rows
from analysis.tables.table_definitions import LAYOUTS, Layout, uwc_layout
from trainables.storage.folder_storage import place_inside


@dataclass(frozen=True)
class FilledTable:
    """A table of a sweep or of the paper: its layout, what is printed, and the numbers of `select_table_rows`."""

    layout: Layout
    table: Table
    numbers: pd.DataFrame

    @property
    def csv_frame(self) -> pd.DataFrame:
        left_out = ["table", "chosen", "printed"]
        return self.numbers.drop(columns=left_out, errors="ignore").dropna(axis="columns", how="all")

    def save(self, folder: Path) -> None:
        """Write the table as Markdown and LaTeX as printed, and its numbers unrounded as CSV."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"md": to_markdown(self.table), "tex": to_latex(self.table)}
        texts["csv"] = self.csv_frame.to_csv(index=False, lineterminator="\n")
        for kind, text in texts.items():
            place_inside(folder, f"{self.layout.table}.{kind}").write_text(text, encoding="utf-8")


def fill_table(layout: Layout, frame: pd.DataFrame, beside: bool = False) -> FilledTable:
    """Return a layout's table of a tidy frame; `beside`: with the paper's number in each cell."""
    ours, numbers = bool((frame["table"] == tidy.RUNS_SOURCE).all()), select_table_rows(layout, frame, beside)
    return FilledTable(layout, lay_out_table(layout, numbers, ours), numbers)


def fill_paper_tables(sweeps: Mapping[str, Results], beside: bool = False) -> list[FilledTable]:
    """Return the paper's tables that sweeps of one benchmark fill, by what they varied, in the paper's order."""
    runs = pd.concat([one.runs for one in sweeps.values()]).reindex(columns=["benchmark.dialect"])
    beside = beside and set(runs["benchmark.dialect"].dropna()) <= {"paper"}  # others do not compare with its numbers
    layouts = {layout.table: layout for one in sweeps.values() for layout in find_layouts(one.tidy_frame)}
    free = LAYOUTS["tofu_retain_free"]
    if len(sweeps) > 1 and "tofu_main" in layouts:
        layouts[free.table] = free
    sheets = []
    for layout in (layouts[table] for table in order_names(layouts, LAYOUTS)):
        filling = dict(sweeps)
        if layout.table == free.table:  # WGA's trials with a retain term are no part of it
            trials = {label: select_retain_free_trials(one.runs) for label, one in sweeps.items()}
            filling = {label: sweeps[label].with_runs(runs) for label, runs in trials.items() if len(runs)}
        frames = {label: one.tidy_frame for label, one in filling.items()}
        sheets.append(fill_table(layout, tidy.join_sweeps(frames, set(layout.sweeps.values())), beside))
    return [sheet for sheet in sheets if not set(sheet.numbers["method"]) <= set(MODEL_LABELS)]


def select_retain_free_trials(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the trials without rectifier of methods that read no retain data; WGA's only without its retain term."""
    objective = runs.reindex(columns=["objective.preset", "objective.retain_coefficient"])
    preset = (objective["objective.preset"] == "open-unlearning").astype(float)
    weight = objective["objective.retain_coefficient"].replace("balanced", "inf")
    retains = (runs["method"] == "wga") & weight.astype(float).fillna(preset).gt(0)
    return runs.loc[
        runs["method"].isin(LAYOUTS["tofu_retain_free"].methods) & (runs["rectifier.name"] == "none") & ~retains
    ]


def list_paper_tables(sweep: str) -> dict[str, str]:
    """Return the paper's tables that the named sweep fills, and its backbone there; none of a sweep of our own."""
    layouts = LAYOUTS.values()
    return {one.table: backbone for one in layouts for backbone, name in one.sweeps.items() if name == sweep}


def find_layouts(frame: pd.DataFrame) -> list[Layout]:
    """Return the layouts of what a tidy frame of runs holds."""
    rows = frame.loc[~frame["method"].isin(MODEL_LABELS)]
    if rows.empty:
        return []
    benchmark, methods = rows["benchmark"].iloc[0], set(rows["method"])
    mixed, vectors = rows["target"].notna(), rows["method"].isin(TASK_VECTOR_METHODS)
    rectifiers, gru = set(rows.loc[~vectors, "rectifier"]), rows.loc[~mixed & (rows["rectifier"] == "gru")]
    filled = {
        "wmdp": bool(methods - {"rmu"}),
        "wmdp_rmu": "rmu" in methods,
        "muse": True,
        "tofu_main": "none" in rectifiers and not (any(vectors) and rectifiers == {"none"}),
        "tofu_retain_free": any(vectors),
        "tofu_ablation": "clip" in rectifiers,
    }
    for name in ("tofu_tau", "tofu_gamma"):
        line, axis = ["split", "method", LAYOUTS[name].held_setting], LAYOUTS[name].axis
        filled[name] = any(gru.groupby(line)[axis].nunique() > 1)
    found = [LAYOUTS[name] for name, fills in filled.items() if fills and name.startswith(benchmark)]
    return [*found, *(uwc_layout(str(name)) for name in rows.loc[mixed, "method"].unique())]
