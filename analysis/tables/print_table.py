"""From the numbers of a table to its printed form: rows, heads, cells and notes in the table's layout."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from analysis import labels, paper
from analysis.labels import REFERENCES, method_label, order_names, rectifier_label, row_label, split_label
from analysis.number_format import DASH, format_number, plain_setting
from analysis.stats.tidy import CHECKS
from analysis.tables import fill_commands
from analysis.tables.layout import Layout
from analysis.tables.markdown_latex import BOLD, Cell, Heading, Row, Table
from analysis.tables.select_numbers import KEY, target_text

COMPONENTS = {"none": "w/o GRU", "clip": "w/ GC"}
MISPRINT = "¶"
"""The sign of a number that the paper cannot mean as it prints it."""
DOUBTS = {
    "†": "target not reached within the tolerance by every seed: the closest mixture is shown.",
    "‡": "MU is not monotone in w for every seed: of several mixtures at the target the largest w was taken.",
    "§": "more than the target is kept without any mixing (w = 1) by one seed or more: this pair is not compared "
    "at equal MU.",
}
"""What may be doubtful about a mixture, by the sign at its FQ, in the order of `tidy.CHECKS`."""
GREEK = {"gamma": "γ", "tau": "τ"}
BESIDE = f"Under each number the paper's, and ours less it; {DASH}: none of the paper's for the same split and setting."
NOT_PUBLISHED = "The paper has no such numbers: they are of other models, splits or settings."
Record = Mapping[Any, Any]
PlannedRow = tuple[dict[str, str], Row]
"""What of a number's key a row holds, and the row without its cells."""
PlannedColumn = tuple[dict[str, str], str, tuple[str, str] | None]
"""What of a number's key a column holds, its head, and which field it shows in which format, if not the value."""


@dataclass(frozen=True)
class Grid:
    """A layout and the numbers that it shows, arranged. `ours`: of runs; `whole`: every row and column of the paper's.

    `beside`: whether the paper's numbers are asked for under ours.
    """

    layout: Layout
    rows: pd.DataFrame
    ours: bool
    whole: bool
    beside: bool

    @cached_property
    def records(self) -> dict[tuple[str, ...], Record]:
        """Return the numbers by their keys."""
        rows = self.rows.assign(seeds=(self.rows["value"] * self.rows["n"]).round())  # how many a share is
        return {tuple(record[name] for name in KEY): record for record in rows.to_dict("records")}

    def find_record(self, key: dict[str, str]) -> Record:
        """Return the number with this key, empty if there is none."""
        return self.records.get(tuple(key.get(name, "") for name in KEY), {})

    @cached_property
    def compared(self) -> bool:
        """Return whether a number of the paper stands beside one of ours."""
        return self.beside and bool(self.rows["paper"].notna().any())

    @cached_property
    def usual_n(self) -> int | None:
        """Return the number of seeds that most of the methods' numbers rest on, None without any or if not stated."""
        if not self.ours or self.layout.report:
            return None
        usual = self.rows.loc[self._are_measured, "n"].mode()
        return int(max(usual)) if len(usual) else None

    @property
    def _are_measured(self) -> pd.Series:
        return pd.Series(~self.rows["method"].isin(REFERENCES) & (self.rows["n"] > 0))

    @cached_property
    def planned_rows(self) -> list[PlannedRow]:
        """Return the rows: reference models, then methods in the order of the layout, others below them."""
        rows, layout = self.rows, self.layout
        studies = set(zip(rows["method"], rows["rectifier"], strict=True))
        models = [name for name in layout.references if layout.report or (name, "none") in studies]
        lines = [
            ({"method": name, "rectifier": "none"}, Row(layout.references[name], place == 0, False))
            for place, name in enumerate(models)
        ]
        present = set(rows["method"]) - set(REFERENCES)
        order = dict.fromkeys([*layout.methods, *labels.order_methods(present)])
        methods = [name for name in order if name in present or (self.whole and name in layout.methods)]
        if layout.axis:
            return [line for method in methods for line in self._axis_lines(method)]
        return [*lines, *(line for method in methods for line in self._method_lines(method, methods[0]))]

    def _method_lines(self, method: str, top: str) -> list[PlannedRow]:
        """Return a method's rows: by the shares that mixtures keep, and by what it is combined with."""
        layout, rows = self.layout, self.rows.loc[self.rows["method"] == method]
        shares = [target_text(value) for value in layout.targets if self.whole]
        lines = []
        for target in dict.fromkeys([*shares, *sorted(set(rows["target"]))]) or [""]:
            expected = {"none", *(layout.rectifiers if self.whole else ())}
            for place, kind in enumerate(labels.order_rectifiers({*expected, *rows["rectifier"]})):
                first = place == 0 and (layout.compared == "method" or method == top)
                key = {"method": method, "rectifier": kind, "target": target}
                if layout.components:
                    more = (COMPONENTS.get(kind) or rectifier_label(kind),)
                    lines.append((key, Row(method_label(method) if first else "", first, False, more)))
                else:
                    share = f" ({float(target):.0%})" if target else ""
                    lines.append((key, Row(row_label(method, kind) + share, first, kind != "none")))
        return lines

    def _axis_lines(self, method: str) -> list[PlannedRow]:
        """Return a method's rows where the columns are values of a setting: one for each measure."""
        key = {"method": method, "rectifier": "gru"}
        label = f"{method_label(method)} {rectifier_label('gru')}"
        return [
            (key | {"metric": measure.metric}, Row("" if place else label, place == 0, False, (measure.head,)))
            for place, measure in enumerate(self.layout.measures)
        ]

    @cached_property
    def groups(self) -> list[tuple[str, str]]:
        """Return backbones and their splits in the order of the layout, others below them."""
        layout, pairs = self.layout, set(zip(self.rows["backbone"], self.rows["split"], strict=True))
        if self.whole:
            known = {*layout.sweeps} & set(self.rows["backbone"])
            pairs |= set(itertools.product(known, layout.splits))
        backbones = order_names((name for name, _ in pairs), layout.backbones)
        splits = order_names((split for _, split in pairs), layout.splits)
        return [pair for pair in itertools.product(backbones, splits) if pair in pairs]

    @cached_property
    def planned_columns(self) -> list[PlannedColumn]:
        """Return the columns: of each group the measures and extras, or the values of the axis."""
        layout, leaves = self.layout, []
        for backbone, split in self.groups:
            key = {"backbone": backbone, "split": split}
            if layout.axis:
                leaves += [(key | {"setting": value}, text, None) for value, text in self._axis_values().items()]
                continue
            leaves += [(key | {"metric": measure.metric}, measure.head, None) for measure in layout.measures]
            last = key | {"metric": layout.measures[-1].metric}
            leaves += [(last, head, extra) for head, extra in layout.extras.items()]
        return leaves

    def _axis_values(self) -> dict[str, str]:
        """Return the values of the axis in rising order, each as the paper prints it."""
        published = paper.load_table(self.layout.table)[self.layout.axis]
        texts = {plain_setting(text): text for text in published} | {"none": "N/A"}
        values = {*self.rows["setting"], *(texts if self.whole else [])}
        ordered = sorted(values, key=lambda value: float("inf") if value == "none" else float(value))
        return {value: texts.get(value, value) for value in ordered}

    def print_table(self, commands: Mapping[str, str]) -> Table:
        """Return the table as printed; from `commands`, by backbone, those that fill its gaps are made."""
        printed, gaps = [], set()
        known = {key if self.layout.axis else key[2:5] for key in self.records}
        for row_key, row in self.planned_rows:
            cells = []
            for column_key, _, extra in self.planned_columns:
                key = row_key | column_key
                cells.append(self._print_cell(key, extra))
                name = tuple(key.get(part, "") for part in KEY)
                planned = self.whole or (name if self.layout.axis else name[2:5]) in known
                if self.ours and planned and cells[-1].text == DASH and key["method"] not in REFERENCES:
                    gaps.add(key["backbone"])
            printed.append(replace(row, cells=tuple(cells)))
        marks = "".join(cell.marks for row in printed for cell in row.cells)
        notes = [*self._list_notes(), *fill_commands.list_notes(self.layout, gaps, commands)]
        notes += [f"{sign} {note}" for sign, note in DOUBTS.items() if sign in marks]
        return Table(
            leaves=tuple(head for _, head, _ in self.planned_columns),
            levels=self._list_levels(),
            rows=tuple(printed),
            notes=(*notes, *self.layout.notes),
            stubs=("Method", *["Metric"] * bool(self.layout.axis), *["Component"] * self.layout.components),
        )

    def _list_levels(self) -> tuple[tuple[Heading, ...], ...]:
        """Return the levels of heads above the columns, without those that would say nothing."""
        layout, groups = self.layout, self.groups
        width = len(self.planned_columns) // max(1, len(groups))
        backbones = Counter(backbone for backbone, _ in groups)
        levels = []
        if any(backbones) and (layout.backbones or len(backbones) > 1):
            heads = [Heading(layout.backbones.get(name, name), width * count) for name, count in backbones.items()]
            levels.append(tuple(heads))
        if layout.report:
            levels.append(tuple(Heading(split_label(split), width, split) for _, split in groups))
        elif groups and not (len(groups) == 1 and (layout.axis or layout.components or not layout.splits)):
            levels.append(tuple(Heading(layout.splits.get(split) or split, width) for _, split in groups))
        if layout.axis:
            levels.append((Heading(GREEK[layout.axis], len(self.planned_columns)),))
        return (*levels, *([layout.kinds * len(groups)] if layout.kinds else []))

    def _print_cell(self, key: dict[str, str], extra: tuple[str, str] | None) -> Cell:
        record, is_method = self.find_record(key), key["method"] not in REFERENCES
        if extra:
            field, form = extra
            value = record.get(field, 0 if field == "n" else float("nan"))
            return Cell(format(value, form) if is_method and not pd.isna(value) else DASH)
        decimals = next(measure.decimals for measure in self.layout.measures if measure.metric == key["metric"])
        if pd.isna(record.get("value", float("nan"))):
            return Cell(DASH)
        unusual = self.usual_n is not None and record["n"] != self.usual_n and is_method
        marks = self._find_doubts(key) if key.get("target") and key["metric"] == "forget_quality" else ""
        marks += MISPRINT if isinstance(record["misprint"], str) and not self.compared else ""
        return Cell(
            text=format_number(record["value"], decimals),
            sd="" if pd.isna(record["sd"]) else format_number(record["sd"], decimals),
            bold=bool(record["bold"]),
            marks=marks,
            n=f"{record['n']}" if unusual else "",
            beside=_print_difference(record, decimals) if self.compared else "",
        )

    def _find_doubts(self, key: dict[str, str]) -> str:
        """Return the signs of what is doubtful about a mixture; none for the paper's numbers."""
        reached, monotone, unmixed = (self.find_record(key | {"metric": name}).get("value") for name in CHECKS)
        doubts = (reached is not None and reached < 1, monotone is not None and monotone < 1, bool(unmixed))
        return "".join(sign for sign, holds in zip(DOUBTS, doubts, strict=True) if holds)

    def _list_notes(self) -> list[str]:
        """Return notes on what the numbers are: seeds, what is bold, what is held fixed, the paper's, misprints."""
        notes, rows, axis = [], self.rows, self.layout.axis
        if self.usual_n is not None:
            notes.append("Numbers of one seed." if self.usual_n == 1 else f"Means over n = {self.usual_n} seeds ± sd.")
            if any(rows.loc[self._are_measured, "n"] != self.usual_n):
                notes[-1] = f"{notes[-1][:-1]} where no other n is given."
            if any(rows["bold"]):
                notes.append(BOLD[self.layout.compared])
        fixed = rows.loc[rows["at"] != ""].drop_duplicates("method")
        if len(fixed):
            values = [f"{method_label(row['method'])} {row['at']}" for row in fixed.to_dict("records")]
            notes.append(f"{axis} varies at one {self.layout.held_setting}: {', '.join(values)}.")
        notes += [BESIDE if self.compared else NOT_PUBLISHED] * self.beside
        misprints = sorted(set(rows["misprint"].dropna()))
        how = "mended where the right value is known; the paper prints" if self.compared else ""
        how = how or "as the paper prints it, which cannot be right"
        return [*notes, *([f"{MISPRINT} {how}: {', '.join(misprints)}."] if misprints else [])]

    def exact_frame(self) -> pd.DataFrame:
        """Return the numbers unrounded, one row for each method and rectifier, columns `SPLIT.METRIC.STAT`."""
        fields = {"mean": "value", "sd": "sd", "n": "n"}
        printed = {f"{metric}.{stat}": (fields[stat], metric) for metric in self.layout.metrics for stat in fields}
        columns, records = printed | dict(self.layout.exact), []
        for key, _ in self.planned_rows:
            is_method = key["method"] not in REFERENCES
            rectifier = key["rectifier"] if is_method else ""
            record: dict[str, Any] = {"method": key["method"], "rectifier": rectifier}
            if self.layout.mixed:
                record["target"] = float(key.get("target") or "nan")
            record["label"] = row_label(key["method"], rectifier)
            for (backbone, split), (name, (field, metric)) in itertools.product(self.groups, columns.items()):
                found = self.find_record(key | {"backbone": backbone, "split": split, "metric": metric})
                empty = 0.0 if field in ("n", "seeds") and (is_method or name in printed) else float("nan")
                record[f"{split}.{name}"] = float(found.get(field, empty))
            records.append(record)
        return pd.DataFrame(records)


def _print_difference(record: Record, decimals: int) -> str:
    """Return `paper -5.1004, +0.0204`, the difference being ours less the paper's."""
    if pd.isna(record["paper"]):
        return f"paper {DASH}"
    theirs, difference = format_number(record["paper"], decimals), format_number(record["difference"], decimals)
    sign = MISPRINT if isinstance(record["misprint"], str) else ""
    return f"paper {theirs}{sign}, {'' if difference.startswith('-') else '+'}{difference}"
