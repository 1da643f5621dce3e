"""What a model answered before and after unlearning, as a table and in figures/tradeoff.html, drawn by Vega-Lite."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import vl_convert

from analysis.labels import describe_method, format_forget_split, goal_axis_title
from analysis.load.trials import evaluated, read_trial_parquet
from analysis.report.page import Section, TableItem
from analysis.stats.chosen_settings import choose_study_setting
from analysis.stats.sweep_results import Results
from analysis.tables.detail_tables import list_trials
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage

FORGET_SHOWN, RETAIN_SHOWN = ("to forget", 3), ("to keep", 2)
SHOWN_BY_TASK = {"forget": FORGET_SHOWN, "knowmem_f": FORGET_SHOWN, "retain": RETAIN_SHOWN, "knowmem_r": RETAIN_SHOWN}
"""What a task's rows are for, and how many of them are shown."""
CAPTION = "Greedy answers to the first rows of the evaluation, one seed: rows are not picked by what was answered."
DARK_CSS = (
    "<style>:root { color-scheme: light dark; font-family: sans-serif; }"
    " @media (prefers-color-scheme: dark) { canvas, svg { filter: invert(0.9) hue-rotate(180deg); } }</style>"
)
"""The picture's colours where a person's screen is dark: lightness turned round, hues kept."""


def read_first_answers(store: Storage, folder: Path) -> pd.DataFrame:
    """Return `purpose`, `question` and `generation` of the first rows that a trial or evaluation in `folder` answered.

    Empty of own rows, whose texts no trial keeps, and of questions that are answered by a choice.
    """
    columns = ["task", "index", "question", "generation"]
    rows: Any = read_trial_parquet(store, folder / ROWS, columns).to_pandas()
    rows = rows.reindex(columns=columns).dropna().sort_values("index")
    parts = [rows.loc[rows["task"] == task].head(n).assign(purpose=name) for task, (name, n) in SHOWN_BY_TASK.items()]
    found: Any = pd.concat(parts)
    asked = [str(text).rpartition("Question: ")[2].removesuffix("\nAnswer: ") for text in found["question"]]
    return found.assign(question=asked)[["purpose", "question", "generation"]]


def write_before_after_section(results: Results) -> list[Section]:
    """Return the answers of the original model and of the setting that is chosen of all, a table for each split."""
    models = results.models.loc[results.models["role"] == "original"].set_index("split")["evaluation"].to_dict()
    items = []
    for split, settings in results.chosen.groupby("benchmark.split"):
        best: Any = choose_study_setting(settings, results.rule)
        if best.empty or split not in models:
            continue
        row = best.iloc[0]
        before = read_first_answers(results.store, results.store.evaluation(models[split]))
        after = read_first_answers(results.store, results.store.trial(row["id"]))
        table = before.merge(after, on=["purpose", "question"], suffixes=("", "_after"))
        if len(table):
            heads = ["", "Question", "Original model", describe_method(row["method"], row["rectifier.name"])]
            items.append(TableItem(table.set_axis(heads, axis="columns"), CAPTION, format_forget_split(str(split))))
    return [Section("Before and after", tuple(items))] if items else []


def write_interactive_tradeoff(results: Results, folder: Path) -> bool:
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
    (folder / "figures" / "tradeoff.html").write_text(page.replace("<head>", f"<head>{DARK_CSS}", 1), encoding="utf-8")
    return True
