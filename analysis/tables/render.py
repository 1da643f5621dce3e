"""From the numbers of a table to its printed form: rows, heads, cells and notes in the paper's layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import paper
from analysis.stats import calibration
from analysis.tables import missing as tables_missing
from analysis.tables.format import BOLD, DASH, Cell, Head, Row, Table, number
from analysis.tables.layout import CHECKS, KEY, Layout, Measure, numbers, plain, share
from analysis.tables.main import REFERENCES, WITH, method_label
from trainables.config.methods import METHODS, RECTIFIERS

COMPONENTS = {"none": "w/o GRU", "clip": "w/ GC"}
MISPRINT = "¶"
"""The sign of a number that the paper cannot mean as it prints it."""
GREEK = {"gamma": "γ", "tau": "τ"}
RECORDS = dict[tuple[str, ...], dict[Hashable, Any]]
BESIDE = f"Under each number the paper's, and ours less it; {DASH}: none of the paper's for the same split and setting."
NOT_PUBLISHED = "The paper has no such numbers: they are of other models, splits or settings."


@dataclass(frozen=True)
class Line:
    """A row to be printed: what of a number's key it holds, and how it is headed."""

    key: dict[str, str]
    label: str
    first: bool
    under: bool
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """A column of numbers: what of a number's key it holds; `decimals` and head of its measure."""

    key: dict[str, str]
    head: str


def render(layout: Layout, frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return the table as printed, with what `beside` and `command` add (`layouts`).

    From runs it has a row for each method of the frame, and where the sweep is the one that fills the paper's table
    every row and column of that.
    """
    rows = numbers(layout, frame, beside)
    compared = beside and bool(rows["paper"].notna().any())
    records: RECORDS = {tuple(record[name] for name in KEY): record for record in rows.to_dict("records")}
    ours = "n" in frame
    whole = not ours or tables_missing.name(command) in layout.sweeps.values()
    known = records if layout.axis else {key[2:5] for key in records}
    lines, groups = _lines(layout, rows, whole), _groups(layout, rows, whole)
    leaves = [leaf for group in groups for leaf in _leaves(layout, rows, group, whole)]
    usual = _usual(rows) if ours else None
    printed, missing = [], []
    for line in lines:
        cells = []
        for leaf in leaves:
            key = {"target": "", "setting": ""} | line.key | leaf.key
            name = tuple(key[part] for part in KEY)
            cells.append(_cell(layout, key, records.get(name, {}), records, usual, compared))
            planned = whole or (name if layout.axis else name[2:5]) in known
            missing += [key] if ours and planned and cells[-1].text == DASH else []
        printed.append(Row(line.label, line.first, line.under, tuple(cells), line.more))
    notes = _stated(layout, rows, usual)
    notes += [BESIDE if compared else NOT_PUBLISHED] * beside
    notes += _misprints(rows, compared)
    notes += tables_missing.notes(layout, missing, command)
    notes += [f"{sign} {note}" for sign, note in calibration.NOTES.items() if _used(sign, printed)]
    return Table(
        splits=tuple(" ".join(filter(None, group)) for group in groups),
        columns=tuple(leaf.head for leaf in _leaves(layout, rows, groups[0], whole)) if groups else (),
        rows=tuple(printed),
        notes=tuple(notes),
        stubs=("Method", *(["Metric"] if layout.axis else []), *(["Component"] if layout.components else [])),
        over=_over(layout, groups, len(leaves)),
    )


def _methods(layout: Layout, rows: pd.DataFrame, whole: bool) -> list[str]:
    """Return the methods in the order of the layout, others that the frame has below them."""
    there = set(rows["method"]) - set(REFERENCES)
    order = dict.fromkeys([*layout.methods, *METHODS, *sorted(there)])
    return [method for method in order if method in there or (whole and method in layout.methods)]


def _lines(layout: Layout, rows: pd.DataFrame, whole: bool) -> list[Line]:
    lines, there = [], set(zip(rows["method"], rows["rectifier"], strict=True))
    models = [(method, label) for method, label in layout.references.items() if (method, "none") in there]
    for place, (method, label) in enumerate(models):
        lines.append(Line({"method": method, "rectifier": "none"}, label, place == 0, False))
    methods = _methods(layout, rows, whole)
    if layout.axis:
        return [line for method in methods for line in _sensitivity(layout, method)]
    shares = [share(value) for value in layout.targets if whole]
    for method in methods:
        shown = {"none", *(layout.rectifiers if whole else ())}
        kinds = [kind for kind in RECTIFIERS if kind in shown or (method, kind) in there]
        for target in dict.fromkeys([*shares, *sorted(set(rows.loc[rows["method"] == method, "target"]))]) or [""]:
            for place, kind in enumerate(kinds):
                first = place == 0 and (layout.compared == "method" or method == methods[0])
                key = {"method": method, "rectifier": kind, "target": target}
                lines.append(_line(layout, key, first))
    return lines


def _line(layout: Layout, key: dict[str, str], first: bool) -> Line:
    """Return a row of a method: `GA`, `w/ GRU`, `GA (85%)`, or `GA` and beside it `w/o GRU`."""
    method, kind = method_label(key["method"]), key["rectifier"]
    told = f" ({float(key['target']):.0%})" if key["target"] else ""
    if layout.components:
        return Line(key, method if first else "", first, False, (COMPONENTS.get(kind) or WITH[kind],))
    return Line(key, WITH.get(kind, method) + told, first, kind in WITH)


def _sensitivity(layout: Layout, method: str) -> list[Line]:
    key = {"method": method, "rectifier": "gru"}
    label = f"{method_label(method)} {WITH['gru']}"
    return [
        Line(key | {"metric": measure.metric}, "" if place else label, place == 0, False, (measure.head,))
        for place, measure in enumerate(layout.measures)
    ]


def _groups(layout: Layout, rows: pd.DataFrame, whole: bool) -> list[tuple[str, str]]:
    """Return backbones and their splits in the order of the layout, others below them."""
    there = list(dict.fromkeys(zip(rows["backbone"], rows["split"], strict=True)))
    backbones = {backbone for backbone, _ in there}
    if whole:
        there += [(backbone, split) for backbone in layout.sweeps if backbone in backbones for split in layout.splits]
    order = [list(layout.backbones), list(layout.splits)]

    def rank(group: tuple[str, str]) -> list[tuple[int, str]]:
        known = zip(group, order, strict=True)
        return [(names.index(name) if name in names else len(names), name) for name, names in known]

    return sorted(dict.fromkeys(there), key=rank)


def _leaves(layout: Layout, rows: pd.DataFrame, group: tuple[str, str], whole: bool) -> list[Leaf]:
    """Return the columns of one group: the measures, or the values of the axis."""
    key = {"backbone": group[0], "split": group[1]}
    if not layout.axis:
        return [Leaf(key | {"metric": measure.metric}, measure.head) for measure in layout.measures]
    texts = {plain(text): text for text in paper.load(layout.table)[layout.axis]} | {"none": "N/A"}
    values = {*rows["setting"], *(texts if whole else [])}
    return [
        Leaf(key | {"setting": value}, texts.get(value, value))
        for value in sorted(values, key=lambda value: float("inf") if value == "none" else float(value))
    ]


def _over(layout: Layout, groups: list[tuple[str, str]], leaves: int) -> tuple[tuple[Head, ...], ...]:
    """Return the levels of heads above the columns, without those that would say nothing."""
    width = leaves // max(1, len(groups))
    backbones = Counter(backbone for backbone, _ in groups)
    levels = []
    if any(backbones) and (layout.backbones or len(backbones) > 1):
        heads = [Head(layout.backbones.get(name, name), width * count) for name, count in backbones.items()]
        levels.append(tuple(heads))
    alone = len(groups) == 1 and bool(layout.axis or layout.components or not layout.splits)
    if groups and not alone:
        levels.append(tuple(Head(layout.splits.get(split) or split, width) for _, split in groups))
    if layout.axis:
        levels.append((Head(GREEK[layout.axis], leaves),))
    return (*levels, *([layout.kinds * len(groups)] if layout.kinds else []))


def _usual(rows: pd.DataFrame) -> int | None:
    """Return the number of seeds that most of the methods' numbers rest on, None without any."""
    counts = Counter(rows.loc[~rows["method"].isin(REFERENCES) & (rows["n"] > 0), "n"])
    return max(counts, key=lambda count: (counts[count], count)) if counts else None


def _measure(layout: Layout, key: dict[str, str]) -> Measure:
    return next(measure for measure in layout.measures if measure.metric == key["metric"])


def _cell(
    layout: Layout,
    key: dict[str, str],
    record: dict[Hashable, Any],
    records: RECORDS,
    usual: int | None,
    beside: bool,
) -> Cell:
    decimals = _measure(layout, key).decimals
    value = record.get("value", float("nan"))
    if pd.isna(value):
        return Cell(DASH)
    several = usual is not None and record["n"] != usual and key["method"] not in REFERENCES
    marks = _doubts(records, key) if key["target"] and key["metric"] == "forget_quality" else ""
    marks += MISPRINT if isinstance(record["misprint"], str) and not beside else ""
    return Cell(
        text=number(value, decimals),
        sd="" if pd.isna(record["sd"]) else number(record["sd"], decimals),
        bold=bool(record["bold"]),
        marks=marks,
        n=f"{record['n']}" if several else "",
        beside=_beside(record, decimals) if beside else "",
    )


def _beside(record: dict[Hashable, Any], decimals: int) -> str:
    """Return `paper -5.1004, +0.0204`, the difference being ours less the paper's."""
    if pd.isna(record["paper"]):
        return f"paper {DASH}"
    theirs, difference = number(record["paper"], decimals), number(record["difference"], decimals)
    sign = MISPRINT if isinstance(record["misprint"], str) else ""
    return f"paper {theirs}{sign}, {'' if difference.startswith('-') else '+'}{difference}"


def _doubts(records: RECORDS, key: dict[str, str]) -> str:
    """Return the signs of what is doubtful about a mixture (`calibration.NOTES`); none for the paper's numbers."""
    found = [records.get(tuple((key | {"metric": check})[name] for name in KEY)) for check in CHECKS]
    reached, monotone, unmixed = (record["value"] if record else None for record in found)
    doubts = (reached is not None and reached < 1, monotone is not None and monotone < 1, bool(unmixed))
    return "".join(sign for sign, holds in zip(calibration.NOTES, doubts, strict=True) if holds)


def _used(sign: str, rows: list[Row]) -> bool:
    return any(sign in cell.marks for row in rows for cell in row.cells)


def _misprints(rows: pd.DataFrame, beside: bool) -> list[str]:
    """Return the note on what the paper cannot mean as it prints it: shown as printed in its own tables."""
    told = sorted(set(rows["misprint"].dropna()))
    shown = "as the paper prints it, which cannot be right"
    shown = "mended where the right value is known; the paper prints" if beside else shown
    return [f"{MISPRINT} {shown}: {', '.join(told)}."] if told else []


def _stated(layout: Layout, rows: pd.DataFrame, usual: int | None) -> list[str]:
    """Return notes on what the numbers are: seeds, what is bold, what is held fixed."""
    notes = []
    if usual is not None:
        notes.append("Numbers of one seed." if usual == 1 else f"Means over n = {usual} seeds ± sd.")
        if any(rows.loc[~rows["method"].isin(REFERENCES) & (rows["n"] > 0), "n"] != usual):
            notes[-1] = f"{notes[-1][:-1]} where no other n is given."
        if any(rows["bold"]):
            notes.append(BOLD[layout.compared])
    fixed = rows.loc[rows["at"] != ""].drop_duplicates("method") if layout.axis else rows.head(0)
    if len(fixed):
        other = "tau" if layout.axis == "gamma" else "gamma"
        told = [f"{method_label(row['method'])} {row['at']}" for row in fixed.to_dict("records")]
        notes.append(f"{layout.axis} varies at one {other}: {', '.join(told)}.")
    return notes
