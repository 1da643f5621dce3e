"""Tables of what rectifiers change against none: one for each goal, the best rectifier first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from analysis.labels import method_label, rectifier_name, split_label
from analysis.load.goal_columns import goal_head
from analysis.number_format import DASH, format_number
from analysis.stats.rectifier_comparison import STUDY, Comparison
from analysis.stats.significance import RESAMPLES
from trainables.benchmarks import Goal


def list_rectifiers(comparison: Comparison, goal: Goal) -> pd.DataFrame:
    """Return every rectifier's change of one goal as texts, the best of each split and method first."""
    changes = {
        tuple(row[name] for name in [*STUDY, "rectifier"]): row
        for row in comparison.differences.to_dict("records")
        if row["metric"] == goal.metric
    }
    costs = {(row["split"], row["method"], row["rectifier"]): row for row in comparison.costs.to_dict("records")}
    rows: list[tuple[Any, dict[str, str]]] = []
    values = comparison.values.dropna(subset=[goal.metric])
    for place, (study, group) in enumerate(values.groupby(STUDY, sort=False)):
        for name, own in group.groupby("rectifier", sort=False):
            key: Any = (*study, name)  # type: ignore[misc]
            value = float(np.mean(own[goal.metric]))
            line, cost = _print_line(key, goal, value, changes.get(key, {})), costs[key]
            slower = "" if pd.isna(cost["slower"]) else f" (x {cost['slower']:.2f})"
            line["s a step"] = DASH if pd.isna(cost["seconds"]) else f"{cost['seconds']:.3g}{slower}"
            rows.append(((place, -goal.gain(value)), line))
    frame = pd.DataFrame([line for _, line in sorted(rows, key=lambda row: row[0])], dtype="str")
    if frame.empty:
        return frame
    return frame.drop(columns=["Below floor"] * (set(frame["Below floor"]) <= {DASH, "0"}))


def _print_line(key: tuple[str, ...], goal: Goal, value: float, change: dict[Any, Any]) -> dict[str, str]:
    split, method, name = key
    digits = goal.digits
    known = not pd.isna(change.get("low", math.nan))
    return {
        "Split": split_label(split),
        "Method": method_label(method),
        "Rectifier": rectifier_name(name),
        goal_head(goal): format_number(value),
        "Change": f"{change['difference']:+.{digits}f}" if change.get("n") else DASH,
        "95% interval": f"{change['low']:+.{digits}f} to {change['high']:+.{digits}f}" if known else DASH,
        "d_z": f"{change['effect']:+.1f}" if known and not pd.isna(change["effect"]) else DASH,
        "Adjusted p": f"{change['adjusted']:.2g}" if known else DASH,
        "n": f"{change['n']}" if change else DASH,
        "Below floor": f"{change['below']}" if change else DASH,
    }


def explain_rectifiers(comparison: Comparison) -> str:
    seeds = ", ".join(map(str, comparison.results.rule.seeds))
    chosen = f" Settings were chosen on seeds {seeds}, which count only where no others were run." * bool(seeds)
    return (
        f"Change: against none, mean over n seeds, with its bootstrap interval (BCa, {RESAMPLES:,} resamples); p: "
        "exact sign-flip test, adjusted by Holm over all rectifiers of a split, objective and goal; s a step: median, "
        f"in brackets times none's.{chosen}"
    )
