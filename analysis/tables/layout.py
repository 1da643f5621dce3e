"""The type of a table's layout.

`table_definitions` has the layouts, `select_numbers` takes the numbers for one, and `print_table.Grid` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from analysis.labels import REFERENCES
from analysis.tables.markdown_latex import Heading

PAPER_REFERENCES = {role: REFERENCES[role] for role in ("original", "retain")}


class Measure(NamedTuple):
    """A metric as a table prints it. `best`: which value the paper's table has in bold, None if it marks none."""

    metric: str
    head: str
    decimals: int
    best: Literal["highest", "lowest"] | None = None


@dataclass(frozen=True)
class Layout:
    """A table of the paper, named as in `analysis.paper`, or one of the report's own (`report`)."""

    table: str
    caption: str
    measures: tuple[Measure, ...]
    methods: tuple[str, ...] = ()
    """In the order of the rows."""
    sweeps: Mapping[str, str] = field(default_factory=dict)
    """By backbone, the sweep that fills the table with `--strategy paper`."""
    backbones: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)
    """Splits, and backbones above, by their printed names; empty where the table has no such heads."""
    rectifiers: tuple[str, ...] = ("none", "gru")
    references: Mapping[str, str] = field(default_factory=lambda: PAPER_REFERENCES)
    compared: Literal["method", "column"] = "method"
    """The numbers among which the best is bold: those of one method, or a whole column."""
    axis: Literal["gamma", "tau"] | None = None
    """The setting that a sensitivity table varies."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """By method, the paper's value of the other setting, which is held."""
    mixed: bool = False
    """Whether the numbers are of UWC's mixtures."""
    targets: tuple[float, ...] = ()
    """The shares of utility that the paper's mixtures keep."""
    kinds: tuple[Heading, ...] = ()
    """Heads right above the columns."""
    components: bool = False
    """Whether what a method is combined with has a column of its own."""
    only: bool = False
    """Whether the table is about its methods and rectifiers and no others."""
    apart: tuple[str, ...] = ()
    """Methods that have a table of their own."""
    report: bool = False
    """Whether it is the report's own: with every reference model and split of the sweep, and `notes` of its own."""
    notes: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Further columns, by head: the field of a method's last number, and its format."""
    exact: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Further columns of the report's CSV: the field of a number and its metric."""

    @property
    def metrics(self) -> list[str]:
        """Return the metrics, in the order of the table."""
        return [measure.metric for measure in self.measures]

    @property
    def held_setting(self) -> str:
        """Return the setting that is held while the axis varies."""
        return "tau" if self.axis == "gamma" else "gamma"
