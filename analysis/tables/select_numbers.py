"""The numbers that a table shows: which are bold, and what the paper has. Tidy frames are of `paper` or `tidy`."""

from __future__ import annotations

import pandas as pd

from analysis import paper
from analysis.labels import REFERENCES
from analysis.load.goal_columns import FLOOR, find_goals
from analysis.number_format import DECIMALS, plain_setting, round_printed
from analysis.stats.tidy import CHECKS
from analysis.tables.layout import Layout

KEY = ["backbone", "split", "method", "rectifier", "target", "setting", "metric"]
"""The columns that tell the numbers of a table apart.

`setting` is the value of gamma or tau in a table that varies it, empty in others.
"""


def select_numbers(layout: Layout, frame: pd.DataFrame, beside: bool = False) -> pd.DataFrame:
    """Return the rows of a tidy frame that the table shows, with KEY, `bold` by the paper's rule, and the paper's.

    `paper` (without misprints of which the right value is known) and `difference` (ours less the paper's, as printed)
    are NaN unless asked for, and where the paper has nothing for the same backbone, split, method, rectifier and
    setting. `misprint` says what is wrong with the paper's printed value. `at` is the value of the setting that is
    held while the axis varies.
    """
    rows = _select(layout, frame)
    rows["bold"] = _mark_best(layout, rows)
    rows["paper"] = rows["difference"] = float("nan")
    if beside and len(rows):
        published = _select(layout, paper.mended(layout.table))[[*KEY, "value", "misprint"]]
        theirs = rows[KEY].merge(published, on=KEY, how="left").set_axis(rows.index)
        if layout.axis:  # at another value of the setting that does not vary the two are not the same trial
            theirs = theirs.loc[rows["at"] == [layout.fixed.get(method, "") for method in rows["method"]]]
        rows["paper"], rows["misprint"] = theirs["value"], theirs["misprint"]
        rows["difference"] = (_as_printed(layout, rows) - rows["paper"]).round(6)
    return rows


def _select(layout: Layout, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of this table, `target` and `setting` as texts.

    `misprint`: of the paper's rows, what is wrong with the value as printed; else None.
    """
    rows = frame.assign(misprint=None)
    for erratum in paper.ERRATA:
        rows.loc[erratum.find_rows(rows), "misprint"] = erratum.description
    is_reference = rows["method"].isin(list(layout.references))
    is_method = ~rows["method"].isin([*REFERENCES, *layout.apart])
    if layout.only:
        is_method &= rows["method"].isin(layout.methods) & rows["rectifier"].isin(layout.rectifiers)
    mixed = rows["target"].notna()
    kept = (is_reference & ~mixed) | (is_method & (mixed == layout.mixed))
    kept &= rows["metric"].isin(
        [*layout.metrics, *CHECKS * layout.mixed, *["weight"] * (layout.mixed and layout.report)]
    )
    rows = rows.loc[kept].assign(target=[target_text(value) for value in rows.loc[kept, "target"]], setting="", at="")
    if layout.axis:
        return _select_lines(rows, layout)
    if layout.report:
        rows.loc[~rows["chosen"], ["value", "sd", "strength", "relative_change"]] = float("nan")
        rows.loc[~rows["chosen"], "n"] = 0
    study = [rows[name] for name in KEY]
    shown = rows["chosen"] | ~rows["chosen"].groupby(study).transform("any")  # of a study without a result any row
    return rows.loc[shown].drop_duplicates(KEY).reset_index(drop=True)


def target_text(target: float) -> str:
    """Return a share of utility as text, empty where there is none."""
    return "" if pd.isna(target) else max(f"{target:.2f}", f"{target:g}", key=len)


def _select_lines(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Return each method's GRU rows along the axis, at one value of the other setting (`at`).

    That is the paper's where the sweep has it, else the chosen row's; the paper's own rows do not name it.
    """
    rows = rows.loc[rows["rectifier"] == "gru"]
    settings = [plain_setting(value) for value in rows[layout.axis or ""]]
    rows = rows.assign(setting=settings, at=[plain_setting(value) for value in rows[layout.held_setting]])
    kept = []
    for _, line in rows.groupby(["backbone", "split", "method"], sort=False):
        line = line.sort_values("chosen", ascending=False, kind="stable")
        fixed = layout.fixed.get(line["method"].iloc[0], "")
        line = line.loc[line["at"] == (fixed if fixed in set(line["at"]) else line["at"].iloc[0])]
        kept.append(line.loc[line["other"] == line["other"].iloc[0]].sort_index())
    return pd.concat(kept).reset_index(drop=True) if kept else rows


def _as_printed(layout: Layout, rows: pd.DataFrame) -> pd.Series:
    """Return the values rounded as the table prints them."""
    decimals = {measure.metric: measure.decimals for measure in layout.measures}
    pairs = zip(rows["value"].tolist(), rows["metric"], strict=True)
    values = [round_printed(value, decimals.get(metric, DECIMALS)) for value, metric in pairs]
    return pd.Series(values, index=rows.index, dtype=float)


def _mark_best(layout: Layout, rows: pd.DataFrame) -> pd.Series:
    """Return, as a mask, which values are the best among those they compete with, compared as printed.

    A value without a rival is not marked, nor is a utility of `goals.FLOOR`.
    """
    signs = {measure.metric: 1.0 if measure.best == "highest" else -1.0 for measure in layout.measures if measure.best}
    values = _as_printed(layout, rows)
    score = (values * rows["metric"].map(signs.get).astype(float)).where(~rows["method"].isin(REFERENCES))
    among = ["backbone", "split", "metric", "target", *(["method"] if layout.compared == "method" else [])]
    groups = score.groupby([rows[name] for name in among])
    kept = [find_goals(name).retention.metric for name in rows["benchmark"].unique()]
    lost = rows["metric"].isin(kept) & (values == FLOOR)
    return (score == groups.transform("max")) & groups.transform("count").gt(1) & ~lost
