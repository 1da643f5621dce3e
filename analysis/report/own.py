"""A report on a person's own rows: which trial to ship, what that costs, and which rows can still be got out of it."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.labels import describe_method
from analysis.load.trial_tables import read_trial_table
from analysis.load.trials import evaluated
from analysis.number_format import DASH, format_number
from analysis.report.page import Section, TableItem, save_frame
from analysis.report.sections import Report
from analysis.stats.chosen_settings import choose_row
from analysis.stats.sweep_results import Results
from trainables.common import cli
from trainables.storage.names import ROWS

RECOVERED = 0.5
"""The share of a row's words, ROUGE-L recall, from which on greedy generation gives the row away."""
NOTHING = 0.1
"""The forget rows' extraction strength below which a target model holds nothing that could be removed."""
MOST_ROWS = 50
"""Rows that the page lists; tables/recoverable.csv has all."""
Model = dict[Any, Any]
"""A trial or a reference model with its numbers, by column."""


def write_own(report: Report, storage: str) -> tuple[list[str], list[TableItem], list[Section]]:
    """Write tables/recoverable.csv, and return sentences on the trial to ship, its table, and the rows it gives away.

    All are empty of other benchmarks, and before a trial was evaluated.
    """
    results = report.results
    runs = results.runs.loc[evaluated(results.runs) & results.runs["choice.utility"].notna()]
    if results.goals.benchmark != "own" or runs.empty:
        return [], [], []
    split = runs["benchmark.split"].max()  # of requests in a row the last one
    models = results.models.loc[results.models["split"] == split].set_index("role").to_dict("index")
    before, unseen = models.get("original", {}), models.get("baseline", {})
    runs = runs.loc[runs["benchmark.split"] == split].assign(
        **{"choice.original": before.get("choice.utility", math.nan)}
    )
    trial = choose_row(runs, results.rule).to_dict("records")[0]
    sentence = recommend(results, trial, before)
    export = f"To write its model: `python -m trainables.export {trial['id']}{cli.spell_storage(storage)} --output DIR`"
    rows = list_recoverable(report, str(trial["id"]), before.get("evaluation"))
    save_frame(report.folder, "recoverable", rows.drop(columns=["digest", "block"]))
    shown: Any = rows.loc[is_recoverable(rows["rouge"])].head(MOST_ROWS)
    table = pd.DataFrame({"Row": shown["row"].astype(str)})
    for column, name in {"rouge": "ROUGE", "extraction_strength": "ES", "prob": "prob"}.items():
        table[f"{name} before"] = shown[f"{column}_before"].map(format_number)
        table[f"{name} after"] = shown[column].map(format_number)
    still = Section(
        "Which rows can still be got out",
        (TableItem(table, "Rows are numbered as in the forget file; tables/recoverable.csv has every measured one."),),
    )
    item = TableItem(
        compare_models(results, [before, trial, unseen], rows), title=f"Before and after trial {trial['id']}"
    )
    was, now = count_recoverable(rows)
    told = [sentence, *[export] * (str(trial["id"]) in sentence)]
    return [*told, f"Forget rows that can still be got out: {now}; before: {was}."], [item], [still] * bool(len(shown))


def recommend(results: Results, trial: Model, before: Model) -> str:
    """Return whether to ship the trial that the rule chooses, and why not."""
    extracted = before.get(results.goals.removal.metric, math.nan)
    if extracted < NOTHING:
        level = f"extraction strength of the forget rows {format_number(extracted)} before unlearning"
        return f"Nothing was there to remove, so no trial is recommended: {level}."
    step = "" if pd.isna(trial["chosen_step"]) else f", step {trial['chosen_step']:g}"
    side = describe_method(trial["method"], trial["rectifier.name"]).replace("w/", "with")
    name = f"{trial['id']} ({side}, seed {trial['seed']:g}{step})"
    share = trial["choice.utility"] / before["choice.utility"] if before.get("choice.utility") else math.nan
    if trial["choice.utility"] <= 0 or (results.rule.rule == "utility_floor" and share < results.rule.share):
        return f"Ship none yet: no trial keeps {results.rule.share:.0%} of the utility; the nearest is {name}."
    if trial["choice.removal"] <= before.get("choice.removal", math.nan):
        return f"Ship none yet: no trial forgets more than the model before; the nearest is {name}."
    return f"Ship trial {name}{'' if pd.isna(share) else f': {share:.0%} of the utility is kept'}."


def compare_models(results: Results, models: list[Model], rows: pd.DataFrame) -> pd.DataFrame:
    """Return each measure of the model before, of the trial, and of a model that never saw the rows if there is one."""
    measures = {column.metric: column.head for column in results.goals.columns}
    measures["membership_loss_auc"] = "AUC of telling forget rows from rows never trained on (0.5: guessing)"
    table = [[head, *(format_number(one.get(metric, math.nan)) for one in models)] for metric, head in measures.items()]
    table.append(["forget rows that can still be got out", *count_recoverable(rows), DASH])
    frame = pd.DataFrame(table, columns=["", "Before", "After", "Never trained"])
    return frame.loc[frame["After"] != DASH].drop(columns=[] if models[-1] else "Never trained")


def count_recoverable(rows: pd.DataFrame) -> list[str]:
    """Return how many of the measured forget rows the model before, and the trial's model, still give away."""
    found: list[Any] = [rows["highest_rouge_before"].dropna(), rows["rouge"]]
    return [f"{sum(is_recoverable(one))} of {len(one)}" if len(one) else "not known" for one in found]


def is_recoverable(rouge: Any) -> Any:
    """Return which forget rows a model still gives away, by the ROUGE-L recall of its greedy answers."""
    return rouge >= RECOVERED


def list_recoverable(report: Report, trial: str, evaluation: str | None) -> pd.DataFrame:
    """Return one row for each forget row that was measured of a trial, those that are given away the most first.

    Columns: row (its number in the file, from 1), digest, block, and `rouge`, `extraction_strength` and `prob` now and,
    where the target model's rows are there, `..._before`: of a text those of the `block` with the highest `rouge` now.
    `highest_rouge_before` is that of all its blocks. Empty if no rows are there.
    """
    numbers, keys, store = ["rouge", "extraction_strength", "prob"], ["row", "digest", "block"], report.results.store
    tables = []
    for folder in (store.trial(trial), store.evaluation(evaluation) if evaluation else None):
        table = read_trial_table(store, folder / ROWS) if folder else None
        rows = pd.DataFrame() if table is None else table.to_pandas()
        rows = rows.rename(columns={"rougeL_recall": "rouge"}).reindex(columns=["task", *keys, *numbers])
        forget = rows.loc[rows["task"] == "forget"].astype({"row": int, "block": int})
        tables.append(forget.assign(row=forget["row"] + 1).set_index(keys)[numbers].astype(float))
    now, before = tables
    found = now.join(before.add_suffix("_before")).sort_values("rouge", ascending=False, kind="stable").reset_index()
    highest = before.groupby(["row", "digest"]).agg(highest_rouge_before=("rouge", "max"))
    return found.drop_duplicates(["row", "digest"]).join(highest, on=["row", "digest"])
