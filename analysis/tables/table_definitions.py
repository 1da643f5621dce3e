"""The layouts in which `paper_tables` prints tidy frames: the paper's tables, and a report's main table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from analysis.labels import REFERENCE_LABELS, MetricColumn, method_label
from analysis.stats.sweep_results import SweepResults
from trainables.benchmarks.selection import describe_rule


@dataclass(frozen=True)
class Layout:
    """A table of the paper, named as in `analysis.paper`, or a report's main table."""

    table: str
    caption: str
    measures: tuple[MetricColumn, ...]
    methods: tuple[str, ...] = ()
    """In the order of the rows; others stand below them."""
    sweeps: Mapping[str, str] = field(default_factory=dict)
    """By backbone, the sweep that fills the table with `--strategy paper`."""
    references: tuple[str, ...] = ("original", "retain")
    only: bool = False
    """Whether the table is about its methods and no others."""
    apart: tuple[str, ...] = ()
    """Methods that have a table of their own."""
    compared: Literal["method", "column"] = "method"
    """The numbers among which the best is bold: those of one method, or a whole column."""
    axis: Literal["gamma", "tau"] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    """By method, the paper's value of the other setting, which is held."""
    mixed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> list[str]:
        return [measure.metric for measure in self.measures]


_FIELDS = tomllib.loads(Path(__file__).with_name("table_definitions.toml").read_text(encoding="utf-8"))
LAYOUTS = {table: TypeAdapter(Layout).validate_python({"table": table, **given}) for table, given in _FIELDS.items()}
LAYOUTS["tofu_uwc_npo"] = replace(
    LAYOUTS["tofu_uwc_ga"], table="tofu_uwc_npo", caption="Table 10. TOFU at equal utility (UWC): NPO", methods=("npo",)
)
"""All of the paper's tables, by their names in `analysis.paper`."""


def find_or_make_uwc_layout(method: str) -> Layout:
    """Return the layout of a method's UWC table; the paper has those of GA and NPO. MU is held equal, so never bold."""
    table, caption = f"tofu_uwc_{method}", f"TOFU at equal utility (UWC): {method_label(method)}"
    return LAYOUTS.get(table) or replace(LAYOUTS["tofu_uwc_ga"], table=table, caption=caption, methods=(method,))


def make_main_layout(results: SweepResults) -> Layout:
    """Return the layout of a report's main table: one row for each method and under it those with a rectifier."""
    goals = results.goals
    removal = f"removal ({goals.removal_goal.short}{', less is more' if goals.removal_goal.best == 'lowest' else ''})"
    shown = describe_rule(results.rule, removal, goals.retention.short)
    seeds = "Trials that differ only in the seed are averaged before the choice."
    return Layout(
        table="main",
        caption="Main table",
        measures=goals.columns,
        references=tuple(REFERENCE_LABELS),
        notes=(f"Shown of each split, method and rectifier: {shown}. {seeds}",),
    )
