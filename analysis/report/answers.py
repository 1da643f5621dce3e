"""What a model answered before and after unlearning: the first rows to forget and to keep, as the data has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from analysis.labels import describe_method, split_label
from analysis.load.trials import read_trial_table
from analysis.report.page import Section, TableItem
from analysis.stats.chosen_settings import choose_study_setting
from analysis.stats.sweep_results import Results
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage

FORGET, KEEP = ("to forget", 3), ("to keep", 2)
TASKS = {"forget": FORGET, "knowmem_f": FORGET, "retain": KEEP, "knowmem_r": KEEP}
"""What a task's rows are for, and how many of them are shown."""
CAPTION = "Greedy answers to the first rows of the evaluation, one seed: rows are not picked by what was answered."


def read_first_answers(store: Storage, folder: Path) -> pd.DataFrame:
    """Return `purpose`, `question` and `generation` of the first rows that a trial or evaluation in `folder` answered.

    Empty of own rows, whose texts no trial keeps, and of questions that are answered by a choice.
    """
    columns = ["task", "index", "question", "generation"]
    table = read_trial_table(store, folder / ROWS, columns)
    rows: Any = pd.DataFrame() if table is None else table.to_pandas()
    rows = rows.reindex(columns=columns).dropna().sort_values("index")
    parts = [rows.loc[rows["task"] == task].head(count).assign(purpose=name) for task, (name, count) in TASKS.items()]
    found: Any = pd.concat(parts)
    asked = [str(text).rpartition("Question: ")[2].removesuffix("\nAnswer: ") for text in found["question"]]
    return found.assign(question=asked)[["purpose", "question", "generation"]]


def list_answer_sections(results: Results) -> list[Section]:
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
            items.append(TableItem(table.set_axis(heads, axis="columns"), CAPTION, split_label(str(split))))
    return [Section("Before and after", tuple(items))] if items else []
