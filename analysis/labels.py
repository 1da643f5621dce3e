"""What methods, rectifiers, splits, settings and goals are called in tables, figures and texts."""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from trainables.benchmarks import Goal, get_benchmark
from trainables.benchmarks.measures import Measure, reported_measures
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Benchmark

DASH = "—"
OTHER_GRU_SETTING: dict[Any, str] = {"gamma": "tau", "tau": "gamma"}
DEFAULT_TABLE_DECIMALS = 4
"""Decimals of a number in a table, and of a difference between two."""

REFERENCE_LABELS = {"original": "Original", "retain": "Retrain", "baseline": "Never trained"}
"""The reference models, which stand in tables and tidy frames as methods of these names."""
REFERENCE_NOTES = {
    "retain": "a model trained without the rows to forget",
    "baseline": "a model that never saw the rows to forget",
}
NAME_ORDERS = {"method": [*REFERENCE_LABELS, *METHODS], "rectifier": RECTIFIERS, "rectifier.name": RECTIFIERS}
"""The order of names in tables, figures and legends, by the column that holds them."""
TASK_VECTOR_METHODS = tuple(sorted(name for name, row in METHODS.items() if row.strength))
"""Methods that move the original model along a direction, as far as a strength says: stg of TRU, strength of TV."""
BEST_DIRECTION_ARROWS = {"highest": " ↑", "lowest": " ↓", None: ""}
BETTER_DIRECTION_AXIS_WORDS = {"highest": "higher is better →", "lowest": "lower is better →"}
METRIC_EXPLANATIONS = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))


def method_label(method: str) -> str:
    return METHODS[method].label if method in METHODS else method


def format_rectifier_part(rectifier: str, alone: str = "") -> str:
    """Return `w/ GRU`; `alone` for no rectifier."""
    return alone if rectifier == "none" else f"w/ {format_rectifier_name(rectifier)}"


def format_rectifier_name(rectifier: str) -> str:
    """Return a rectifier's name as the paper prints it; `none` for no rectifier."""
    return RECTIFIERS[rectifier].label if rectifier in RECTIFIERS and rectifier != "none" else rectifier


def describe_method(method: str, rectifier: str) -> str:
    """Return `GA w/ GRU`; of no rectifier the method's name alone."""
    return f"{method_label(method)} {format_rectifier_part(rectifier)}".strip()


def format_table_row_label(method: str, rectifier: str) -> str:
    """Return the first cell of a row: Original, Retrain, a method's name, or what it is combined with."""
    return REFERENCE_LABELS.get(method) or (rectifier and format_rectifier_part(rectifier)) or method_label(method)


def order_names(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Return names, each once: those of `order` in its order, others by name."""
    known = list(order)
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def order_settings(settings: Iterable[str]) -> list[str]:
    """Return texts of gamma or tau, each once, by their numbers; `none` and an empty one last."""
    return sorted(set(settings), key=lambda text: math.inf if text in ("", "none") else float(text))


def order_values(column: Any, orders: Mapping[str, Iterable[str]] = NAME_ORDERS) -> list[Any]:
    """Return a column's values, each once, in the order that `orders` has for it; others are last."""
    return order_names(column.dropna().unique(), orders.get(str(column.name), ()))


def rank_values(column: pd.Series, orders: Mapping[str, Iterable[str]] = NAME_ORDERS) -> pd.Series:
    """Return each value's place in `order_values`, as a key of sorting."""
    return column.map({value: place for place, value in enumerate(order_values(column, orders))})


def format_forget_split(split: str) -> str:
    """Return `forget05 (5%)` for TOFU's splits, `own rows` for a person's, other names as they are."""
    match = re.fullmatch(r"forget(\d\d)", split)
    return f"{split} ({int(match[1])}%)" if match else {"own": "own rows"}.get(split, split)


def takes_setting(rectifier: str, setting: str) -> bool:
    return rectifier in RECTIFIERS and setting in RECTIFIERS[rectifier].takes


def format_settings(row: Mapping[Any, Any]) -> dict[str, str]:
    """Return Method, gamma, tau and strength of a trial or setting as texts: `none` where set so, a dash elsewhere."""
    method, rectifier = row["method"], row["rectifier"]
    if pd.isna(method):
        return dict.fromkeys(("Method", "gamma", "tau", "strength"), DASH)
    return {
        "Method": describe_method(method, rectifier),
        "gamma": format_setting_value(row["gamma"]) if takes_setting(rectifier, "gamma") else DASH,
        "tau": format_setting_value(row["tau"]) if takes_setting(rectifier, "tau") else DASH,
        "strength": format_setting_value(row["strength"]) if method in TASK_VECTOR_METHODS else DASH,
    }


def join_names(names: Iterable[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    texts = list(names)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def format_setting_value(value: float) -> str:
    """Return a value of gamma, tau or strength as tables and tidy frames spell it."""
    return "none" if pd.isna(value) else f"{value:g}"


def normalise_gamma_tau(setting: str) -> str:
    """Return a text of gamma or tau in one spelling: 1 for 1.0."""
    return setting if setting in ("", "none") else f"{float(setting):g}"


class MetricColumn(NamedTuple):
    """A column of a table. `form`: the format of its numbers; `best`: which one is bold, None if none is."""

    metric: str
    head: str
    form: str = f".{DEFAULT_TABLE_DECIMALS}f"
    best: Literal["highest", "lowest"] | None = None
    text: str = ""


def goal_head(goal: Goal | Measure) -> str:
    """Return the head of a goal's column: `FQ ↑`, `VerbMem ↓`."""
    return goal.short + BEST_DIRECTION_ARROWS[goal.best]


EXTRA_COLUMNS_BY_BENCHMARK = {
    "muse": (MetricColumn("privleak", "PrivLeak"),),
    "own": tuple(
        MetricColumn(f"forget_{name}", goal_head(one), best=one.best, text=f"{one.title} on the forget rows, no goal")
        for name, one in sorted(reported_measures(Benchmark(name="own")).items(), key=lambda item: item[1].short)
        if f"forget_{name}" != get_benchmark("own").GOALS[0].metric
    ),
}


@dataclass(frozen=True)
class Goals:
    """A benchmark's goals: of removal, one or more, and the one of retention."""

    benchmark: str
    removals: tuple[Goal, ...]
    retention: Goal

    @property
    def columns(self) -> tuple[MetricColumn, ...]:
        goals = [MetricColumn(goal.metric, goal_head(goal), best=goal.best, text=goal.title) for goal in self.all_goals]
        return (*goals, *EXTRA_COLUMNS_BY_BENCHMARK.get(self.benchmark, ()))

    @property
    def all_goals(self) -> tuple[Goal, ...]:
        return (*self.removals, self.retention)

    @property
    def metrics(self) -> list[str]:
        return [column.metric for column in self.columns]

    @property
    def removal_goal(self) -> Goal:
        """Return removal as one goal, of the metric `removal`, the mean over several, where there are several."""
        first = self.removals[0]
        if len(self.removals) == 1:
            return first
        name = f"mean of {join_names(goal.short for goal in self.removals)}"
        return Goal("removal", "removal", first.best, name, name, chance=first.chance)


def list_goals_of_benchmark(benchmark: str) -> Goals:
    """Return the goals of the benchmark called so in a configuration. Raise InputError if there is none."""
    *removals, retention = get_benchmark(benchmark).GOALS
    return Goals(benchmark, tuple(removals), retention)


def find_goals_of_runs(runs: pd.DataFrame) -> Goals:
    """Return the goals of a sweep's trials, of which there is at least one."""
    return list_goals_of_benchmark(runs["benchmark.name"].iloc[0])


def goal_axis_title(goal: Goal) -> str:
    """Return `FQ: forget quality (ln p)`."""
    return goal.title if goal.short in goal.title else f"{goal.short}: {goal.title}"
