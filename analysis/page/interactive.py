"""The trade-off that answers: trials as points, filters, a list with export commands, and parallel coordinates.

This module says what is drawn; `templates/interactive.html.j2` holds the controls, `templates/interactive.js` the
pictures in Vega-Lite and what the controls do. Its libraries are inlined from vl_convert: the page asks no network for
anything. Without scripts, and in print, the figure before it stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from matplotlib.markers import MarkerStyle

from analysis.figures.style import GREY, LOOKS, OTHER, SIGNIFICANT, colour
from analysis.labels import (
    DASH,
    OTHER_REFERENCES,
    REFERENCES,
    describe_settings,
    method_label,
    order_methods,
    order_rectifiers,
    rectifier_label,
    split_label,
)
from analysis.load.goal_columns import BETTER, full_title
from analysis.load.trials import evaluated
from analysis.page.html import TEMPLATES, render_page
from analysis.stats.chosen_settings import SHORT, varied
from analysis.stats.sweep_results import Results
from analysis.tables.detail_tables import plain_text
from trainables.common.cli import DEFAULT_STORAGE, spell_storage
from trainables.config.ids import digest
from trainables.config.types import LOG_RATIO
from trainables.storage.names import STOPPED

MOST_TICKS = 8
"""Up to so many numbers stand at equal distances on an axis of parallel coordinates, each with its label."""
BELOW = 0.13
"""How far below the numbers of such an axis its texts stand: `none`, and a dash where a trial has no such setting."""
FILL = {"none": 0.0, "gru": 1.0}
"""How opaque a rectifier's points are filled: hollow for the plain method, full with GRU, as in the figures."""
OTHER_FILL = 0.4


def write_block(results: Results, storage: str = DEFAULT_STORAGE, chosen: pd.DataFrame | None = None) -> Markup:
    """Return the page's element for the trials of a sweep; empty where fewer than two have both goals.

    `storage` is where the listed commands find them, `chosen` the chosen trials if they are not `results`' own. Texts
    of results reach the page as JSON and as text nodes only.
    """
    goals, runs = results.goals, results.runs.rename(columns=SHORT)
    x, y = goals.removal, goals.retention
    trials = runs.loc[evaluated(runs) & runs[[x.metric, y.metric]].notna().all(axis=1)]
    if len(trials) < 2:
        return Markup("")
    columns, rows = list_trials(trials, results, results.chosen_trials if chosen is None else chosen)
    axes = [place_on_axis(title, [row[field] for row in rows]) for field, title in columns[:-2]]
    axes = [axis for axis in axes if len(axis["ticks"]) > 1]
    for row, heights in zip(rows, zip(*(axis.pop("heights") for axis in axes), strict=True), strict=False):
        row["heights"] = heights
    looks = _list_looks(trials)
    data = {
        "trials": rows,
        "columns": columns,
        "numbers": [goal.metric for goal in goals.compared],
        "axes": axes,
        "models": _list_models(results),
        "looks": looks,
        "x": {"field": x.metric, "title": f"{full_title(x)}, {BETTER[x.best]}", "sign": x.gain(1)},
        "y": {"field": y.metric, "title": f"{full_title(y)}, {BETTER[y.best]}"},
        "significant": SIGNIFICANT if x.metric == "forget_quality" else None,
        "where": f"{spell_storage(storage)} ".lstrip(),
    }
    drawn = {model["role"] for model in data["models"]}
    others = [role for role in OTHER_REFERENCES if role in drawn]
    return Markup(
        render_page(
            "interactive.html.j2",
            Path(),
            data=htmlsafe_json_dumps(data, lambda found: json.dumps(found, separators=(",", ":"), allow_nan=False)),
            script=Markup(bundle_script().result().replace("</script", r"<\/script")),
            looks=looks,
            splits=[(name, split_label(name)) for name in sorted(set(trials["split"]))],
            goals=[(goal.metric, goal.short) for goal in (y, *goals.removals)],
            bounds=[(goal.metric, goal.short) for goal in (x, y)],
            others=[f"{OTHER_REFERENCES[role]} ({REFERENCES[role]})" for role in others],
            left_out=len(runs) - len(rows),
            axes=len(axes),
        )
    )


@cache
def bundle_script() -> Future[str]:
    """Start to make one module without imports of Vega, Vega-Lite, Vega-Embed and the script of the controls.

    In a process of its own, beside what else is done: vl_convert takes a second and a half, and lets no thread run.
    The module is kept with this package's compiled Python, for the same script and the same vl_convert.
    """
    source = (TEMPLATES / "interactive.js").read_text(encoding="utf-8")
    kept = TEMPLATES / "__pycache__" / f"interactive-{digest([source, version('vl-convert-python')])[:16]}.js"
    return ThreadPoolExecutor(1).submit(_read_bundle, kept)


def _read_bundle(kept: Path) -> str:
    with suppress(OSError):  # not made yet, or another's alone
        if bundle := kept.read_text(encoding="utf-8"):
            return bundle
    script = "import pathlib, sys, vl_convert; file = pathlib.Path(sys.argv[1]); "
    script += "sys.stdout.write(vl_convert.javascript_bundle(file.read_text()))"
    command = [sys.executable, "-P", "-X", "utf8", "-c", script, str(TEMPLATES / "interactive.js")]
    bundle = subprocess.check_output(command, encoding="utf-8")
    with suppress(OSError):  # a package that only others may write to
        kept.parent.mkdir(exist_ok=True)
        staging = kept.with_suffix(f".{os.getpid()}")
        staging.write_text(bundle, encoding="utf-8")
        staging.replace(kept)
    return bundle


def list_trials(
    trials: pd.DataFrame, results: Results, chosen: pd.DataFrame
) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Return what is shown of trials, as fields and titles, and a record of each trial, marked if it is chosen.

    Columns: the method, the settings that differ, the goals, seed and id. Settings are texts, goals are numbers.
    `export`: whether `trainables.export` takes the trial; one without weights has to run again by itself.
    """
    other, keys = varied(results.runs), set(zip(chosen["benchmark.split"], chosen["id"], strict=True))
    goals = results.goals.compared
    rows: list[dict[str, Any]] = []
    for row in trials.to_dict("records"):
        settings = describe_settings(row) | {name: plain_text(row[name]) for name in other}
        numbers = {goal.metric: float(row[goal.metric]) for goal in (*goals, results.goals.removal)}
        can_run_again = not (row["status"] == STOPPED or row.get("resources.ranks", 1) > 1)
        rows.append(
            {name: str(row[name]) for name in ("id", "method", "rectifier", "split")}
            | {f"s{place}": text for place, text in enumerate(settings.values())}
            | {metric: None if np.isnan(number) else number for metric, number in numbers.items()}
            | {"seed": plain_text(row["seed"]), "chosen": (row["split"], row["id"]) in keys}
            | {"export": can_run_again or results.is_kept(row["id"])}
        )
    titles = [(f"s{place}", title) for place, title in enumerate(("Method", "gamma", "tau", "strength", *other))]
    differ = [(field, title) for field, title in titles if field == "s0" or len({row[field] for row in rows}) > 1]
    return [*differ, *((goal.metric, goal.short) for goal in goals), ("seed", "Seed"), ("id", "Trial")], rows


def place_on_axis(title: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return an axis of parallel coordinates: its title, each value's height and the ticks, numbers from 0 to 1.

    Numbers are spaced evenly if they are few, else by their logarithm if they span LOG_RATIO or more.
    """
    texts = [DASH if value is None else str(value) for value in values]
    numbers = np.asarray(pd.to_numeric(pd.Series(texts), errors="coerce"), dtype=float)
    missing = np.isnan(numbers)
    known, words = np.unique(numbers[~missing]), list(dict.fromkeys(np.array(texts)[missing].tolist()))
    marks, scale = known, np.positive
    if len(known) > MOST_TICKS:
        low, high = float(known[0]), float(known[-1])
        log = low > 0 and high / low >= LOG_RATIO
        marks, scale = (np.geomspace(low, high, 3), np.log) if log else (np.linspace(low, high, 3), np.positive)
    steps = np.linspace(0, 1, len(marks))
    below = -BELOW * np.arange(1, len(words) + 1) if len(marks) else np.linspace(1, 0, len(words))
    spots = dict(zip(words, below.tolist(), strict=True))
    heights = np.interp(scale(numbers), scale(marks), steps) if len(marks) else numbers
    placed = [round(spots.get(text, float(height)), 4) for text, height in zip(texts, heights, strict=True)]
    ticks = [*zip((f"{mark:.3g}" for mark in marks), steps.tolist(), strict=True), *spots.items()]
    return {"title": title.rpartition(".")[2], "heights": placed, "ticks": ticks}


def _list_looks(trials: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return what methods and rectifiers look like, in the picture and beside the boxes that filter by them."""
    methods = [
        {"name": name, "label": method_label(name), "colour": colour(name), "fill": 1.0, "path": _outline(name)}
        for name in order_methods(trials["method"])
    ]
    rectifiers = [
        {"name": name, "label": label, "colour": GREY, "fill": FILL.get(name, OTHER_FILL), "path": _outline("ga")}
        for name in order_rectifiers(trials["rectifier"])
        for label in [rectifier_label(name, "method alone")]
    ]
    return {"method": methods, "rectifier": rectifiers}


def _outline(method: str) -> str:
    """Return the marker that figures draw a method with, as an SVG path between -1 and 1."""
    style = MarkerStyle(LOOKS.get(method, OTHER)[1])
    corners = np.array(style.get_path().transformed(style.get_transform()).to_polygons()[0])
    return f"M{'L'.join(f'{2 * x:.2f},{-2 * y:.2f}' for x, y in corners.tolist())}Z"


def _list_models(results: Results) -> list[dict[str, Any]]:
    """Return the reference models that have both goals, and the utility that a rule with a floor asks for."""
    x, y, rule = results.goals.removal.metric, results.goals.retention.metric, results.rule
    rows: list[dict[str, Any]] = []
    for model in results.models.dropna(subset=[x, y]).to_dict("records"):
        place = {"split": model["split"], y: float(model[y])}
        rows.append({**place, x: float(model[x]), "role": model["role"], "label": REFERENCES[model["role"]]})
        if model["role"] == "original" and rule.rule == "utility_floor":
            label = f"{rule.share:.0%} of the original model's {results.goals.retention.short}"
            rows.append({**place, y: rule.share * place[y], "role": "floor", "label": label})
    return rows
