"""The layouts in which `print_table` prints tidy frames: the paper's tables, and the report's own."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from analysis.labels import REFERENCES, method_label
from analysis.load.goal_columns import TOFU, Goals
from analysis.stats.chosen_settings import rule_text
from analysis.stats.sweep_results import Results
from analysis.tables.layout import Layout, Measure
from analysis.tables.markdown_latex import BOLD

_FIELDS = tomllib.loads(Path(__file__).with_name("table_definitions.toml").read_text(encoding="utf-8"))
LAYOUTS = {table: TypeAdapter(Layout).validate_python({"table": table, **given}) for table, given in _FIELDS.items()}
"""All of the paper's tables, by their names in `analysis.paper`."""


def uwc_layout(method: str) -> Layout:
    """Return the layout of a method's UWC table; the paper has those of GA and NPO. MU is held equal, so never bold."""
    table, caption = f"tofu_uwc_{method}", f"TOFU at equal utility (UWC): {method_label(method)}"
    return LAYOUTS.get(table) or replace(LAYOUTS["tofu_uwc_ga"], table=table, caption=caption, methods=(method,))


def main_layout(results: Results) -> Layout:
    """Return the layout of a report's main table: one row for each method and under it those with a rectifier."""
    return Layout(
        table="main",
        caption="Main table",
        measures=list_measures(results.goals),
        references=tuple(REFERENCES),
        report=True,
        notes=(BOLD["method"], rule_text(results.goals, results.rule)),
    )


def list_measures(goals: Goals) -> tuple[Measure, ...]:
    """Return what a benchmark's tables show, the goals first."""
    return tuple(Measure(column.metric, column.head, best=column.best) for column in goals.columns)


RETAIN_FREE = Layout(
    table="retain_free",
    caption="Without retain data",
    measures=(
        *list_measures(TOFU),
        Measure("n", "n", "g"),
        Measure("strength", "strength", "g"),
        Measure("relative_change", "change", ".2%"),
    ),
    methods=LAYOUTS["tofu_retain_free"].methods,
    rectifiers=("none",),
    compared="column",
    only=True,
    report=True,
    notes=(
        f"Methods without retain data and without a rectifier; means over n seeds. {BOLD['column']} strength: stg of "
        "TRU, strength of TV, the best of each method by the report's rule. "
        "change: ‖θ - θ_org‖ / ‖θ_org‖, how far the weights moved.",
    ),
)
UWC = Layout(
    table="uwc",
    caption="At equal utility (UWC)",
    measures=tuple(one._replace(best=None) if one.metric == "model_utility" else one for one in list_measures(TOFU)),
    references=("original",),
    mixed=True,
    report=True,
    notes=(
        "UWC mixes an unlearned model with the original one, w of the former and 1 - w of the latter, until MU is the "
        "given share of the original's; w is in the CSV. The settings are those of the main table, with and without "
        "GRU: chosen there by the uncalibrated FQ and MU. Bold: the better FQ of a pair, as printed.",
    ),
)
