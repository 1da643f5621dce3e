"""Tidy frames of runs or of the paper in a figure: where a row comes from, and what panels are called."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis import paper
from analysis.labels import MODEL_LABELS, order_methods, order_names, split_label
from analysis.load.goal_columns import find_goals
from analysis.stats.sweep_results import RUNS_SOURCE
from trainables.benchmarks import Goal
from trainables.config.method_tables import METHODS


def select_goal_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the measured goals of a tidy frame, with `source` (runs, paper)."""
    metrics = [goal.metric for goal in goals_with_rows(frame)]
    rows = frame.loc[frame["metric"].isin(metrics) & frame["value"].notna()]
    return rows.assign(source=rows["table"].where(rows["table"] == RUNS_SOURCE, "paper"))


def select_rows_varying_gamma_tau(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that differ from their study's chosen setting in gamma, tau and strength only."""
    same = ["backbone", "split", "method", "rectifier", "other"]
    return frame.merge(frame.loc[frame["chosen"], same].drop_duplicates(), on=same)


def goals_with_rows(frame: pd.DataFrame) -> tuple[Goal, ...]:
    """Return the goals of a frame's benchmark that it has rows of: none of a sweep that has no result yet."""
    if frame.empty:
        return ()
    names = set(frame["metric"])
    return tuple(goal for goal in find_goals(frame["benchmark"].iloc[0]).all_goals if goal.metric in names)


def list_methods(points: pd.DataFrame) -> list[str]:
    """Return the methods that are drawn, without the reference models, in the order of the paper's table."""
    benchmark = str(points["benchmark"].iloc[0])
    table = "tofu_main" if benchmark == "tofu" else benchmark
    published = paper.load_table(table)["method"] if table in paper.TABLES else []
    return order_names(set(points["method"]) - set(MODEL_LABELS), dict.fromkeys([*published, *METHODS]))


def list_panels(points: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (backbone, split) of all panels by name, which is the paper's order: Llama first, 5 % before 10 %."""
    return sorted(set(zip(points["backbone"], points["split"], strict=True)))


def select_panel(points: pd.DataFrame, place: tuple[str, str]) -> pd.DataFrame:
    return points.loc[(points["backbone"] == place[0]) & (points["split"] == place[1])]


def panel_title(place: tuple[str, str]) -> str:
    """Return `Phi-1.5, forget05 (5%)`; the backbone is left out where it is not known."""
    return ", ".join(filter(None, [place[0], split_label(place[1])]))


def sort_points(points: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows by source and place, by metric as tables have these, by method, and by these columns."""
    orders = {"method": order_methods(points["method"])}
    if "metric" in points:
        orders = {"metric": [goal.metric for goal in goals_with_rows(points)]} | orders

    def rank(column: pd.Series) -> pd.Series:
        return column.map(orders[str(column.name)].index) if column.name in orders else column

    keys = ["source", "backbone", "split", *orders, *by]
    return points.sort_values(keys, key=rank, kind="stable", ignore_index=True)
