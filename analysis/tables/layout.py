"""The type of a table's layout: `table_definitions` has the layouts, `print_table` prints tidy frames in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Measure(NamedTuple):
    """A column of a table. `form`: the format of its numbers; `best`: which one is bold, None if none is."""

    metric: str
    head: str
    form: str = ".4f"
    best: Literal["highest", "lowest"] | None = None


@dataclass(frozen=True)
class Layout:
    """A table of the paper, named as in `analysis.paper`, or one of the report's own (`report`)."""

    table: str
    caption: str
    measures: tuple[Measure, ...]
    methods: tuple[str, ...] = ()
    """In the order of the rows; others stand below them."""
    sweeps: Mapping[str, str] = field(default_factory=dict)
    """By backbone, the sweep that fills the table with `--strategy paper`."""
    rectifiers: tuple[str, ...] = ("none", "gru")
    references: tuple[str, ...] = ("original", "retain")
    only: bool = False
    """Whether the table is about its methods and rectifiers and no others."""
    apart: tuple[str, ...] = ()
    """Methods that have a table of their own."""
    compared: Literal["method", "column"] = "method"
    """The numbers among which the best is bold: those of one method, or a whole column."""
    axis: Literal["gamma", "tau"] | None = None
    """The setting that a sensitivity table varies."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """By method, the paper's value of the other setting, which is held."""
    mixed: bool = False
    """Whether the numbers are of UWC's mixtures."""
    report: bool = False
    """Whether it is the report's own, whose CSV has one row for each row of the table."""
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> list[str]:
        """Return the metrics, in the order of the table."""
        return [measure.metric for measure in self.measures]

    @property
    def held_setting(self) -> str:
        """Return the setting that is held while the axis varies."""
        return "tau" if self.axis == "gamma" else "gamma"
