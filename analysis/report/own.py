"""A report on a person's own rows: which trial to ship, what that costs, and which rows it still says."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.labels import DASH, describe_method, format_number
from analysis.load.trials import evaluated, read_trial_table
from analysis.report.page import Section, TableItem, save_frame
from analysis.report.sections import Report
from analysis.stats.sweep_results import Results
from trainables.benchmarks.verdict import judge_trial
from trainables.storage.file_names import ROWS
from trainables.storage.opening import storage_option

MOST_ROWS = 50
COLUMN_HEADS = {"row": "Row", "said_any": "said", "rougeL_recall": "ROUGE", "extraction_strength": "ES", "prob": "prob"}
"""What is listed of a forget row, and its head."""


def write_own_rows_parts(report: Report) -> tuple[list[str], list[TableItem], list[Section]]:
    """Write tables/forget_rows.csv; return what to ship, its table and the rows it still says; all may be empty."""
    results, store = report.results, report.results.store
    runs = results.runs.loc[evaluated(results.runs)]
    if results.goals.benchmark != "own" or runs.empty:
        return [], [], []
    split = runs["benchmark.split"].max()  # of requests in a row the last one
    models = results.models.loc[results.models["split"] == split].set_index("role").to_dict("index")
    before, unseen = models.get("original", {}), models.get("baseline", {})
    target = store.read_evaluation(before["evaluation"]) if before else None
    trials = {str(one["id"]): one for one in runs.loc[runs["benchmark.split"] == split].to_dict("records")}
    verdict = judge_trial("own", results.rule, {key: store.result(key) or {} for key in trials}, target or {})
    if verdict.key is None:
        return [verdict.describe("")], [], []
    trial = trials[verdict.key]
    export = f"To write its model: `python -m trainables.export {trial['id']}{storage_option(store)} --output DIR`"
    rows = list_forget_rows(report, verdict.key)
    save_frame(report.folder, "forget_rows", rows)
    shown: Any = rows.loc[rows["said_any"] > 0].head(MOST_ROWS)
    caption = "Rows are numbered as in the forget file; tables/forget_rows.csv has every measured one."
    table = shown.map(format_number).assign(row=shown["row"].astype(str)).rename(columns=COLUMN_HEADS)
    still = Section("Which rows are still said", (TableItem(table, caption),))
    item = TableItem(compare_models(results, [before, trial, unseen]), title=f"Before and after trial {trial['id']}")
    step = "" if pd.isna(trial["chosen_step"]) else f", step {trial['chosen_step']:g}"
    side = describe_method(trial["method"], trial["rectifier.name"]).replace("w/", "with")
    named = f"trial {trial['id']} ({side}, seed {trial['seed']:g}{step})"
    return [verdict.describe(named), export], [item], [still] * bool(len(shown))


def compare_models(results: Results, models: list[dict[Any, Any]]) -> pd.DataFrame:
    """Return each measure of the model before, of the trial, and of a model that never saw the rows if there is one."""
    measures = {column.metric: column.head for column in results.goals.columns}
    measures |= {f"{name}_kept": f"{name} rows kept" for name in ("retain", "other")}
    measures["membership_loss_auc"] = "AUC of telling forget rows from rows never trained on (0.5: guessing)"
    table = [[head, *(format_number(one.get(metric, math.nan)) for one in models)] for metric, head in measures.items()]
    frame = pd.DataFrame(table, columns=["", "Before", "After", "Never trained"])
    return frame.loc[frame["After"] != DASH].drop(columns=[] if models[-1] else "Never trained")


def list_forget_rows(report: Report, trial: str) -> pd.DataFrame:
    """Return one row for each measured forget row, of a text its block that is given away most; the worst first."""
    table = read_trial_table(report.results.store, report.results.store.trial(trial) / ROWS)
    rows = (pd.DataFrame() if table is None else table.to_pandas()).reindex(columns=["task", *COLUMN_HEADS])
    forget = rows.loc[rows["task"] == "forget"].drop(columns="task")
    forget = forget.map(lambda value: value if isinstance(value, int | float) else math.nan).dropna(subset="row")
    forget = forget.astype(float).assign(row=forget["row"].astype(int) + 1)
    return forget.sort_values(["said_any", "rougeL_recall"], ascending=False, kind="stable").drop_duplicates("row")
