"""A table in one of the paper's layouts from a tidy frame: which rows it shows, which are bold, the paper's beside.

`layouts` has the layouts; `grids` arranges what `numbers` returns. Frames are of `analysis.paper` or `tidy.from_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from analysis import paper
from analysis.load import goals
from analysis.tables.format import Head
from analysis.tables.main import REFERENCES

KEY = ["backbone", "split", "method", "rectifier", "target", "setting", "metric"]
"""What names a number of a table: `setting` is the value of the axis that the table varies, empty in others."""
CHECKS = ("reached", "monotone", "unmixed")
"""Of a mixture, the share of its seeds for which it is so: `tidy.from_runs`."""


@dataclass(frozen=True)
class Measure:
    """A metric as a table prints it; `best` is None where nothing is marked: the paper's rule for the table."""

    metric: str
    head: str
    decimals: int
    best: Literal["highest", "lowest"] | None


@dataclass(frozen=True)
class Layout:
    """A table of the paper, named as in `analysis.paper`.

    `backbones`, `splits`: names as printed, none where the table has no such heads; `methods`: its order of rows;
    `sweeps`: backbone -> the sweep that fills it with `--strategy paper`. `compared`: the rows among which the best is
    bold, a method's or all. `axis`: what a sensitivity table varies, `fixed` the paper's value of the other setting by
    method. `targets`: shares of utility that mixtures keep. `kinds`: heads right above the columns.
    """

    table: str
    caption: str
    measures: tuple[Measure, ...]
    methods: tuple[str, ...]
    sweeps: Mapping[str, str]
    backbones: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)
    rectifiers: tuple[str, ...] = ("none", "gru")
    references: Mapping[str, str] = field(default_factory=lambda: REFERENCES)
    compared: Literal["method", "column"] = "method"
    axis: Literal["gamma", "tau"] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[float, ...] = ()
    kinds: tuple[Head, ...] = ()
    components: bool = False
    """Whether what a method is combined with has a column of its own."""
    only: bool = False
    """Whether the table is about its methods and rectifiers and no others."""
    apart: tuple[str, ...] = ()
    """Methods that have a table of their own."""

    @property
    def metrics(self) -> list[str]:
        """Return the metrics, in the order of the table."""
        return list(dict.fromkeys(measure.metric for measure in self.measures))


def numbers(layout: Layout, frame: pd.DataFrame, beside: bool = False) -> pd.DataFrame:
    """Return the rows of a tidy frame that the table shows, with KEY, `bold` by the paper's rule, and the paper's.

    `paper` (without misprints of which the right value is known) and `difference` (ours less the paper's, as printed)
    are NaN unless asked for, and where the paper has nothing for the same backbone, split, method, rectifier and
    setting. `misprint` says what is wrong with the paper's printed value. `other` says at which gamma or
    tau another setting varies.
    """
    rows = _selected(layout, frame)
    rows["bold"] = _bold(layout, rows)
    rows["paper"] = rows["difference"] = float("nan")
    if beside and len(rows):
        published = _selected(layout, paper.mended(layout.table))[[*KEY, "value", "misprint"]]
        theirs = rows[KEY].merge(published, on=KEY, how="left").set_axis(rows.index)
        if layout.axis:  # at another value of the setting that does not vary the two are not the same trial
            theirs = theirs.loc[rows["at"] == [layout.fixed.get(method, "") for method in rows["method"]]]
        rows["paper"], rows["misprint"] = theirs["value"], theirs["misprint"]
        rows["difference"] = (as_printed(layout, rows) - rows["paper"]).round(6)
    return rows


def _selected(layout: Layout, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of this table, the missing columns of the paper's filled, `target` and `setting` as texts.

    `misprint`: of the paper's rows, what is wrong with the value as printed; else None.
    """
    rows = frame.assign(**{name: value for name, value in EMPTY.items() if name not in frame}, misprint=None)
    for erratum in paper.ERRATA:
        rows.loc[erratum.rows(rows), "misprint"] = erratum.told
    of_model = rows["method"].isin(list(layout.references))
    of_method = ~rows["method"].isin([*REFERENCES, *layout.apart])
    if layout.only:
        of_method &= rows["method"].isin(layout.methods) & rows["rectifier"].isin(layout.rectifiers)
    mixed = rows["target"].notna()
    kept = (of_model & ~mixed) | (of_method & (mixed if layout.targets else ~mixed))
    kept &= rows["metric"].isin([*layout.metrics, *(CHECKS if layout.targets else ())])
    rows = rows.loc[kept].assign(target=[share(value) for value in rows.loc[kept, "target"]], setting="", at="")
    if layout.axis:
        return _lines(rows, layout)
    study = [rows[name] for name in KEY]
    spoken = rows["chosen"] | ~rows["chosen"].groupby(study).transform("any")  # of a study without a result any row
    return rows.loc[spoken].drop_duplicates(KEY).reset_index(drop=True)


EMPTY = {"sd": float("nan"), "n": 1, "chosen": True, "other": "", "id": "", "strength": float("nan")}
"""What a frame of the paper's numbers does not say."""


def share(target: float) -> str:
    """Return a share of utility as text, empty where there is none."""
    return "" if pd.isna(target) else f"{target:.2f}"


def _lines(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Return each method's GRU rows along the axis, at one value of the other setting (`at`).

    That is the paper's where the sweep has it, else the chosen row's; the paper's own rows do not name it.
    """
    axis, other = layout.axis or "", "tau" if layout.axis == "gamma" else "gamma"
    rows = rows.loc[rows["rectifier"] == "gru"]
    rows = rows.assign(setting=[plain(value) for value in rows[axis]], at=[plain(value) for value in rows[other]])
    kept = []
    for _, line in rows.groupby(["backbone", "split", "method"], sort=False):
        spoken = line.sort_values("chosen", ascending=False, kind="stable")
        fixed = layout.fixed.get(line["method"].iloc[0], "")
        line = line.loc[line["at"] == (fixed if fixed in set(line["at"]) else spoken["at"].iloc[0])]
        spoken = line.sort_values("chosen", ascending=False, kind="stable")
        kept.append(line.loc[line["other"] == spoken["other"].iloc[0]])
    return pd.concat(kept).reset_index(drop=True) if kept else rows


def plain(setting: str) -> str:
    """Return a text of gamma or tau in one spelling: 1 for 1.0."""
    return setting if setting in ("", "none") else f"{float(setting):g}"


def as_printed(layout: Layout, rows: pd.DataFrame) -> pd.Series:
    """Return the values rounded as the table prints them."""
    decimals = {measure.metric: measure.decimals for measure in layout.measures}
    pairs = zip(rows["value"], rows["metric"], strict=True)
    return pd.Series([round(value, decimals.get(metric, 4)) + 0.0 for value, metric in pairs], index=rows.index)


def _bold(layout: Layout, rows: pd.DataFrame) -> pd.Series:
    """Return which values are the best among those they compete with, as printed.

    None where one stands alone, and no utility of `goals.FLOOR`.
    """
    ways = {"highest": 1.0, "lowest": -1.0, None: float("nan")}
    best = {measure.metric: ways[measure.best] for measure in layout.measures}
    signs = pd.Series([best.get(metric, float("nan")) for metric in rows["metric"]], index=rows.index, dtype=float)
    values = as_printed(layout, rows)
    score = (values * signs).where(~rows["method"].isin(REFERENCES))
    among = ["backbone", "split", "metric", "target", *(["method"] if layout.compared == "method" else [])]
    groups = score.groupby([rows[name] for name in among])
    kept = [goals.goals(name).retention.metric for name in rows["benchmark"].unique()]
    lost = rows["metric"].isin(kept) & (values == goals.FLOOR)
    return (score == groups.transform("max")) & groups.transform("count").gt(1) & ~lost
