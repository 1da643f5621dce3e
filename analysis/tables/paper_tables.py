"""Tables of tidy frames, of runs or of the paper: which a sweep fills, their numbers, what is bold, and their files."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import labels, paper
from analysis.stats.sweep_results import RUNS_TABLE_NAME, UWC_CHECK_METRICS, SweepResults, join_sweep_frames
from analysis.tables.printing import PrintedTable, TableCell, format_number, to_latex, to_markdown
from analysis.tables.table_definitions import LAYOUTS, Layout, find_or_make_uwc_layout
from trainables.config.method_tables import METHODS
from trainables.config.settings import Objective
from trainables.methods.method_constants import has_retain_term
from trainables.storage.folder_storage import resolve_path_inside

ROW_KEY = ["backbone", "split", "method", "rectifier", "target", "setting", "metric"]
"""The columns that tell the numbers of a table apart; `setting` is the value of gamma or tau where that varies."""
BOLD_RULE_NOTES = {
    "method": "Bold: the best of a method's rows in a column, as printed; a utility of 0 never is.",
    "column": "Bold: the best method of a column, as printed; a utility of 0 never is.",
}
"""What tables say of their bold numbers, by whom these compete with."""
MISPRINT_MARK = "¶"
UNEQUAL_MARK = "†"
UNEQUAL_UTILITY_NOTE = (
    f"{UNEQUAL_MARK} not at equal MU: a seed missed the target, keeps more than it without any mixing (w = 1), or has "
    "an MU that is not monotone in w (then the largest w at the target was taken). The CSV says which."
)
PAPER_NUMBERS_NOTE = (
    "Under each number the paper's, and ours less it; —: none of the paper's for the same split and setting."
)


@dataclass(frozen=True)
class FilledTable:
    """A table of a sweep or of the paper: its layout, what is printed, and the numbers of `select_table_rows`."""

    layout: Layout
    table: PrintedTable
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
            resolve_path_inside(folder, f"{self.layout.table}.{kind}").write_text(text, encoding="utf-8")


def fill_table(layout: Layout, frame: pd.DataFrame, beside: bool = False) -> FilledTable:
    """Return a layout's table of a tidy frame; `beside`: with the paper's number in each cell."""
    rows, ours = select_table_rows(layout, frame, beside), bool((frame["table"] == RUNS_TABLE_NAME).all())
    counts = rows.loc[~rows["method"].isin(labels.REFERENCE_LABELS) & (rows["n"] > 0), "n"].mode()
    usual = int(counts.max()) if ours and len(counts) else None  # how many seeds most numbers rest on
    compared = bool(rows["paper"].notna().any())
    down, across = ["method", "target", "rectifier"], ["backbone", "split", "metric"]
    if layout.axis:
        down, across = ["method", "metric"], ["backbone", "split", "setting"]
    lacking = rows["metric"].isin(["reached", "monotone"]) & (rows["value"] < 1)  # of mixtures, none of the paper's
    found: Any = rows.loc[lacking | ((rows["metric"] == "unmixed") & (rows["value"] > 0)), ROW_KEY]
    doubtful = set(found.assign(metric="forget_quality").itertuples(index=False, name=None))
    shown = rows.loc[rows["metric"].isin(layout.metrics)]
    cells = {}
    for row in shown.to_dict("records"):
        place = tuple(row[name] for name in down), tuple(row[name] for name in across)
        mark = UNEQUAL_MARK * (tuple(row[name] for name in ROW_KEY) in doubtful)
        cells[place] = _print_cell(row, layout, usual, mark, compared)
    keys = shown[down]
    if not layout.axis:  # above `w/ GRU` stands its method
        keys = pd.concat([keys, keys.assign(rectifier="none")])
    lines, columns = _sort_keys(keys, layout), _sort_keys(shown[across], layout)
    grid = [[cells.get((line, column), TableCell(labels.DASH)) for column in columns] for line in lines]
    labelled = [_label_row(dict(zip(down, line, strict=True)), layout) for line in lines]
    doubts = [UNEQUAL_UTILITY_NOTE] * any(UNEQUAL_MARK in cell.marks for cell in cells.values())
    notes = (*_list_notes(layout, rows, usual), *doubts, *layout.notes)
    leaves = {measure.metric: measure.head for measure in layout.measures}
    several = len({backbone for backbone, *_ in columns}) > 1  # one alone heads no column
    heads = []
    for backbone, split, leaf in columns:
        text = f"{'γ' if layout.axis == 'gamma' else 'τ'} {leaf}" if layout.axis else leaves[leaf]
        heads.append((*[backbone] * several, split, text))
    printed = pd.DataFrame(grid, labelled, pd.MultiIndex.from_tuples(heads, names=[None] * (2 + several)))
    return FilledTable(layout, PrintedTable(printed, notes, layout.caption), rows)


def fill_paper_tables(sweeps: Mapping[str, SweepResults], beside: bool = False) -> list[FilledTable]:
    """Return the paper's tables that sweeps of one benchmark fill, by what they varied, in the paper's order."""
    runs = pd.concat([one.runs for one in sweeps.values()]).reindex(columns=["benchmark.dialect"])
    beside = beside and set(runs["benchmark.dialect"].dropna()) <= {"paper"}  # others do not compare with its numbers
    layouts = {layout.table: layout for one in sweeps.values() for layout in find_layouts(one.tidy_frame)}
    free = LAYOUTS["tofu_retain_free"]
    if len(sweeps) > 1 and "tofu_main" in layouts:
        layouts[free.table] = free
    sheets = []
    for layout in (layouts[table] for table in labels.order_names(layouts, LAYOUTS)):
        filling = dict(sweeps)
        if layout.table == free.table:  # WGA's trials with a retain term are no part of it
            trials = {label: select_retain_free_trials(one.runs) for label, one in sweeps.items()}
            filling = {label: replace(sweeps[label], runs=runs) for label, runs in trials.items() if len(runs)}
        frames = {label: one.tidy_frame for label, one in filling.items()}
        sheets.append(fill_table(layout, join_sweep_frames(frames, set(layout.sweeps.values())), beside))
    return [sheet for sheet in sheets if not set(sheet.numbers["method"]) <= set(labels.REFERENCE_LABELS)]


def select_retain_free_trials(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the trials without rectifier of methods that read no retain data; WGA's only without its retain term."""
    runs = runs.loc[runs["method"].isin(LAYOUTS["tofu_retain_free"].methods) & (runs["rectifier.name"] == "none")]
    stated = runs.reindex(columns=["objective.preset", "objective.retain_coefficient"])
    stated.columns = ["preset", "retain_coefficient"]
    objectives = [Objective.model_validate(row.dropna().to_dict()) for _, row in stated.iterrows()]
    trials = zip(runs["method"], objectives, runs["benchmark.split"], strict=True)
    return runs.loc[[not has_retain_term(*trial) for trial in trials]]


def map_tables_to_backbones(sweep: str) -> dict[str, str]:
    """Return the paper's tables that the named sweep fills, and its backbone there; none of a sweep of our own."""
    layouts = LAYOUTS.values()
    return {one.table: backbone for one in layouts for backbone, name in one.sweeps.items() if name == sweep}


def find_layouts(frame: pd.DataFrame) -> list[Layout]:
    """Return the layouts of what a tidy frame of runs holds."""
    rows = frame.loc[~frame["method"].isin(labels.REFERENCE_LABELS)]
    if rows.empty:
        return []
    benchmark, methods = rows["benchmark"].iloc[0], set(rows["method"])
    mixed, vectors = rows["target"].notna(), rows["method"].isin(labels.TASK_VECTOR_METHODS)
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
        axis = LAYOUTS[name].axis
        line = ["split", "method", labels.OTHER_GRU_SETTING[axis]]
        filled[name] = any(gru.groupby(line)[axis].nunique() > 1)
    found = [LAYOUTS[name] for name, fills in filled.items() if fills and name.startswith(benchmark)]
    return [*found, *(find_or_make_uwc_layout(str(name)) for name in rows.loc[mixed, "method"].unique())]


def select_table_rows(layout: Layout, frame: pd.DataFrame, beside: bool = False) -> pd.DataFrame:
    """Return the rows of a tidy frame that the table shows, with ROW_KEY, `printed` and `bold` by the paper's rule.

    With `beside`, `paper` (misprints mended where that is known) and `difference` (ours less it, as printed), NaN where
    the paper has nothing for the same setting. `misprint` says what is wrong there. `at` is the setting that is held.
    """
    rows = _select(layout, frame)
    forms = {measure.metric: [measure.form] for measure in layout.measures}
    pairs = zip(rows["value"].tolist(), rows["metric"], strict=True)
    rows["printed"] = [format_number(value, *forms.get(metric, [])) for value, metric in pairs]
    values: Any = pd.to_numeric(rows["printed"], errors="coerce")
    signs = {measure.metric: 1.0 if measure.best == "highest" else -1.0 for measure in layout.measures if measure.best}
    score = (values * rows["metric"].map(signs.get).astype(float)).where(~rows["method"].isin(labels.REFERENCE_LABELS))
    among = ["backbone", "split", "metric", "target", *(["method"] if layout.compared == "method" else [])]
    rivals = score.groupby([rows[name] for name in among])
    kept = [labels.list_goals_of_benchmark(name).retention.metric for name in rows["benchmark"].unique()]
    lost = rows["metric"].isin(kept) & (values == 0)  # a utility of 0 is no best one
    rows["bold"] = (score == rivals.transform("max")) & rivals.transform("count").gt(1) & ~lost
    rows["paper"] = rows["difference"] = math.nan
    if beside and len(rows) and layout.table in paper.TABLE_NAMES:
        published = _select(layout, paper.load_table(layout.table, corrected=True))[[*ROW_KEY, "value", "misprint"]]
        theirs = rows[ROW_KEY].merge(published, on=ROW_KEY, how="left").set_axis(rows.index)
        if layout.axis:  # at another value of the setting that does not vary the two are not the same trial
            theirs = theirs.loc[rows["at"] == [layout.fixed.get(method, "") for method in rows["method"]]]
        rows["paper"], rows["misprint"] = theirs["value"], theirs["misprint"]
        rows["difference"] = (values - rows["paper"]).round(6)
    return rows


def _select(layout: Layout, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of this table, `target` and `setting` as texts."""
    is_reference, mixed = frame["method"].isin(layout.references), frame["target"].notna()
    is_method = ~frame["method"].isin([*labels.REFERENCE_LABELS, *layout.apart])
    if layout.only:
        is_method &= frame["method"].isin(layout.methods)
    rows = frame.loc[(is_reference & ~mixed) | (is_method & (mixed == layout.mixed))]
    targets = ["" if pd.isna(target) else f"{target:g}" for target in rows["target"]]
    rows = rows.assign(target=targets, setting="", at="")
    if layout.axis:  # each method's rows along the axis, at the chosen row's value of the other setting (`at`)
        rows = rows.loc[rows["rectifier"] == "gru"]
        settings = [labels.normalise_gamma_tau(value) for value in rows[layout.axis]]
        held = [labels.normalise_gamma_tau(value) for value in rows[labels.OTHER_GRU_SETTING[layout.axis]]]
        rows = rows.assign(setting=settings, at=held)
        kept = [rows.iloc[:0]]
        for _, line in rows.groupby(["backbone", "split", "method"], sort=False):
            line = line.sort_values("chosen", ascending=False, kind="stable")
            line = line.loc[line["at"] == line["at"].iloc[0]]
            kept.append(line.loc[line["other"] == line["other"].iloc[0]].sort_index())
        rows = pd.concat(kept)
    else:
        rows.loc[~rows["chosen"], ["value", "sd", "strength"]] = math.nan
        rows.loc[~rows["chosen"], "n"] = 0
        rows = rows.sort_values("chosen", ascending=False, kind="stable").drop_duplicates(ROW_KEY).sort_index()
    shown = [*layout.metrics, *[*UWC_CHECK_METRICS, "weight"] * layout.mixed]
    return rows.loc[rows["metric"].isin(shown)].reset_index(drop=True)


def _sort_keys(keys: pd.DataFrame, layout: Layout) -> list[tuple[str, ...]]:
    """Return the different rows in the order of the table: as its layout names things, others below."""
    orders: dict[str, Any] = labels.NAME_ORDERS | {"backbone": layout.sweeps, "metric": layout.metrics}
    orders["method"] = [*labels.REFERENCE_LABELS, *layout.methods, *METHODS]
    orders["setting"] = labels.order_settings(keys.reindex(columns=["setting"])["setting"].dropna())
    ordered = keys.drop_duplicates().sort_values(list(keys), key=partial(labels.rank_values, orders=orders))
    return list(ordered.itertuples(index=False, name=None))


def _label_row(key: Mapping[str, str], layout: Layout) -> str:
    if layout.axis:
        head = next(measure.head for measure in layout.measures if measure.metric == key["metric"])
        return f"{labels.describe_method(key['method'], 'gru')}, {head}"
    share = f" ({float(key['target']):.0%})" if key["target"] else ""
    return labels.format_table_row_label(key["method"], key["rectifier"]) + share


def _print_cell(row: Mapping[Any, Any], layout: Layout, usual: int | None, doubt: str, compared: bool) -> TableCell:
    """Return a number's cell. `usual`: how many seeds the notes state; `compared`: with the paper's number."""
    if row["printed"] == labels.DASH:
        return TableCell(labels.DASH)
    form = next(measure.form for measure in layout.measures if measure.metric == row["metric"])
    unusual = usual is not None and row["n"] != usual and row["method"] not in labels.REFERENCE_LABELS
    spread = "" if pd.isna(row["sd"]) else f" ± {format_number(row['sd'], form)}"
    spread += f" (n = {row['n']})" if unusual else ""
    sign = MISPRINT_MARK if isinstance(row["misprint"], str) else ""
    if not compared:
        return TableCell(row["printed"], bool(row["bold"]), doubt + sign, spread)
    change = "" if pd.isna(row["paper"]) else f", {format(row['difference'], f'+z{form}')}"
    beside = f"paper {format_number(row['paper'], form)}{sign}{change}"
    return TableCell(row["printed"], bool(row["bold"]), doubt, spread, beside)


def _list_notes(layout: Layout, rows: pd.DataFrame, usual: int | None) -> list[str]:
    """Return notes on what the numbers are: seeds, what is bold, what is held fixed, the paper's, misprints."""
    notes, compared = [], bool(rows["paper"].notna().any())
    if usual is not None:
        notes.append("Numbers of one seed." if usual == 1 else f"Means over n = {usual} seeds ± sd.")
        if any((rows["n"] != usual) & (rows["n"] > 0) & ~rows["method"].isin(labels.REFERENCE_LABELS)):
            notes[-1] = f"{notes[-1][:-1]} where no other n is given."
        if any(rows["bold"]):
            notes.append(BOLD_RULE_NOTES[layout.compared])
    fixed = rows.loc[rows["at"] != ""].drop_duplicates(["method", "at"])
    if len(fixed):
        values = [f"{labels.method_label(row['method'])} {row['at']}" for row in fixed.to_dict("records")]
        notes.append(f"{layout.axis} varies at one {labels.OTHER_GRU_SETTING[layout.axis]}: {', '.join(values)}.")
    notes += [PAPER_NUMBERS_NOTE] * compared
    misprints = sorted(set(rows["misprint"].dropna()))
    how = "mended where the right value is known; the paper prints"
    how = how if compared else "as the paper prints it, which cannot be right"
    return [*notes, *([f"{MISPRINT_MARK} {how}: {', '.join(misprints)}."] if misprints else [])]
