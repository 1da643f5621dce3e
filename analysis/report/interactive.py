"""figures/tradeoff.html: every trial of the trade-off's figure, to point at, drawn by Vega-Lite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import vl_convert

from analysis.load.goal_columns import goal_axis_title
from analysis.load.trials import evaluated
from analysis.report.answers import read_first_answers
from analysis.stats.sweep_results import Results
from analysis.tables.detail_tables import list_trials

DARK = (
    "<style>:root { color-scheme: light dark; font-family: sans-serif; }"
    " @media (prefers-color-scheme: dark) { canvas, svg { filter: invert(0.9) hue-rotate(180deg); } }</style>"
)
"""The picture's colours where a person's screen is dark: lightness turned round, hues kept."""


def write_interactive(results: Results, folder: Path) -> bool:
    """Write figures/tradeoff.html, which needs no network; return whether there were two trials to show."""
    goals, x, y = results.goals, results.goals.removal_goal, results.goals.retention
    shown = evaluated(results.runs) & results.runs[[x.metric, y.metric]].notna().all(axis=1)
    if sum(shown) < 2:
        return False
    trials = list_trials(results).loc[shown]
    trials["chosen"] = trials["id"].isin(results.chosen_trials["id"])
    found = {key: read_first_answers(results.store, results.store.trial(key)) for key in results.chosen_trials["id"]}
    answers = {key: " → ".join(row) for key, rows in found.items() for row in rows.iloc[:1, 1:].to_numpy()}
    axes: dict[str, Any] = {}
    for axis, goal in (("x", x), ("y", y)):
        scale = {"zero": False, "padding": 15, "reverse": goal.best == "lowest"}
        axes[axis] = {"field": goal.metric, "type": "quantitative", "title": goal_axis_title(goal), "scale": scale}
    settings = [name for name in trials if name not in {*goals.metrics, x.metric, "id", "split"}]
    trials["first forgotten row"] = trials["id"].map(answers)
    picture = {
        "data": {"values": json.loads(trials.to_json(orient="records").replace("<", "‹"))},  # ends no script element
        "params": [{"name": "colour", "value": "method", "bind": {"input": "select", "options": settings}}],
        "transform": [{"calculate": "toString(datum[colour])", "as": "coloured by"}],
        "facet": {"field": "split", "title": None},
        "columns": 2,
        "config": {"background": "white"},
        "spec": {
            "width": 480,
            "height": 400,
            "mark": {"type": "point", "filled": True, "tooltip": {"content": "data"}},
            "params": [
                {"name": "legend", "select": {"type": "point", "fields": ["coloured by"]}, "bind": "legend"},
                {"name": "zoom", "select": "interval", "bind": "scales"},
            ],
            "encoding": axes
            | {
                "color": {"field": "coloured by", "scale": {"scheme": "tableau20"}},
                "shape": {"field": "rectifier", "title": "Rectifier"},
                "size": {"condition": {"test": "datum.chosen", "value": 180}, "value": 50},
                "opacity": {"condition": {"param": "legend", "value": 0.9}, "value": 0.05},
            },
        },
    }
    page = vl_convert.vegalite_to_html(picture, bundle=True)
    (folder / "figures" / "tradeoff.html").write_text(page.replace("<head>", f"<head>{DARK}", 1), encoding="utf-8")
    return True
