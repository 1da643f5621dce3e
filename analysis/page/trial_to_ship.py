"""For a person's own rows: which model to ship, what that costs, and which rows can still be got out of it."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet

from analysis.labels import OTHER_REFERENCES, join_names, method_label, rectifier_label
from analysis.load.trials import evaluated
from analysis.number_format import format_number
from analysis.page.detail_sections import Report, Section, TableItem
from analysis.stats.chosen_settings import choose_row
from analysis.stats.sweep_results import Results
from trainables.benchmarks.own import row_files
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.config.ids import digest
from trainables.config.settings import Model
from trainables.storage.folder_storage import Storage
from trainables.storage.names import ROWS, WEIGHTS

log = logging.getLogger(__name__)
RECOVERED = 0.5
"""The share of a row's words, ROUGE-L recall, from which on greedy generation gives the row away."""
MOST_ROWS = 50
"""Rows that the page lists; tables/recoverable.csv has all."""
Trial = dict[Any, Any]


def find_recommended(results: Results) -> Trial | None:
    """Return the evaluated trial of a sweep on own rows that its rule chooses among all; None without one."""
    runs = results.runs.loc[evaluated(results.runs) & results.runs["choice.utility"].notna()]
    if results.goals.benchmark != "own" or runs.empty:
        return None
    runs = runs.loc[runs["benchmark.split"] == runs["benchmark.split"].max()]  # of requests in a row the last one
    original = _find_model(results, "original", runs.iloc[0].to_dict()).get("choice.utility", math.nan)
    return choose_row(runs.assign(**{"choice.original": original}), results.rule).to_dict("records")[0]


def describe_recommended(results: Results, trial: Trial, rows: pd.DataFrame) -> list[str]:
    """Return which trial to ship and what it costs, and what can still be got out, as sentences.

    `rows`: as `list_recoverable` returns them.
    """
    original = _find_model(results, "original", trial)
    names = [method_label(trial["method"]), rectifier_label(trial["rectifier.name"])]
    step = "" if pd.isna(trial["chosen_step"]) else f", step {trial['chosen_step']:g}"
    name = f"{trial['id']} ({' '.join(filter(None, names)).replace('w/', 'with')}, seed {trial['seed']:g}{step})"
    known = [goal for goal in results.goals.compared if not pd.isna(original.get(goal.metric, math.nan))]
    changes = [
        f"{goal.title} {format_number(original[goal.metric])} before, {format_number(trial[goal.metric])} now"
        for goal in known
    ]
    baseline = _find_model(results, "baseline", trial)
    numbers = [baseline.get(goal.metric, math.nan) for goal in known]
    unseen = [format_number(number) for number in numbers if not pd.isna(number)]
    share = trial["choice.utility"] / original["choice.utility"] if original.get("choice.utility") else math.nan
    kept = "" if pd.isna(share) else f"; {share:.0%} of the utility is kept"
    start = f"Ship trial {name}"
    if trial["choice.utility"] <= 0 or (results.rule.rule == "utility_floor" and share < results.rule.share):
        start = f"Ship none yet: no trial keeps {results.rule.share:.0%} of the utility. The nearest is {name}"
    elif trial["choice.removal"] <= original.get("choice.removal", math.nan):
        start = f"Ship none yet: no trial forgets more than the model before. The nearest is {name}"
    compared = f" {OTHER_REFERENCES['baseline'].capitalize()} has {join_names(unseen)}." if unseen else ""
    sentences = [f"{start}: {'; '.join(changes)}{kept}.{compared}".replace(": ;", ":")]
    if trial["chosen_step"] == trial.get("training.eval_every") and trial["steps"] > trial["chosen_step"]:
        sentences.append(
            f"The earliest step that was evaluated ({trial['chosen_step']:g}) won: a smaller training.eval_every or "
            "training.lr may find a better one."
        )
    sentences += _describe_membership(trial, original)
    return [*sentences, _count_recoverable(rows)]


def _describe_membership(trial: Trial, original: Trial) -> list[str]:
    """Return how well losses tell the forget rows from the hold-out rows; nothing where none are given."""
    auc = "membership_loss_auc"
    if pd.isna(trial.get(auc, math.nan)):
        return []
    before = "" if pd.isna(original.get(auc, math.nan)) else f"{original[auc]:.2f} before, "
    return [f"AUC of telling forget rows from rows never trained on: {before}{trial[auc]:.2f} now; 0.5 is guessing."]


def _find_model(results: Results, role: str, trial: Trial) -> Trial:
    """Return a reference model's evaluation on the split of a trial."""
    models = results.models.loc[results.models["split"] == trial["benchmark.split"]]
    found = models.loc[models["role"] == role].to_dict("records")
    return found[0] if found else {}


def list_recoverable(report: Report, trial: Trial) -> pd.DataFrame:
    """Return one row for each forget row that was measured, those that are given away the most first.

    Columns: row (its number in the file, from 1), digest, block, and `rouge`, `extraction_strength` and `prob` now and,
    where the target model's rows are there, `..._before`: of a text those of the `block` with the highest `rouge` now.
    `highest_rouge_before` is that of all its blocks. Empty if no rows are there.
    """
    now = _read_rows(report.store.trial(str(trial["id"])), report.store)
    evaluation = _find_model(report.results, "original", trial).get("evaluation")
    before = _read_rows(report.store.evaluation(str(evaluation)), report.store) if evaluation else now.iloc[:0]
    found = now.join(before.add_suffix("_before")).sort_values("rouge", ascending=False, kind="stable").reset_index()
    highest = before.groupby(["row", "digest"]).agg(highest_rouge_before=("rouge", "max"))
    return found.drop_duplicates(["row", "digest"]).join(highest, on=["row", "digest"])


def _read_rows(folder: Path, store: Storage) -> pd.DataFrame:
    """Return the forget rows' numbers of an evaluation, by row, digest and block."""
    path, numbers, keys = folder / ROWS, ["rouge", "extraction_strength", "prob"], ["row", "digest", "block"]
    frame = pd.DataFrame(columns=["task", *keys, *numbers])
    store.fetch(path)
    try:
        if path.is_file():
            frame = pyarrow.parquet.read_table(path).to_pandas().rename(columns={"rougeL_recall": "rouge"})
    except (OSError, ValueError, pyarrow.ArrowException) as damage:
        log.warning("%s is damaged: %s", path.relative_to(store.root), damage)
    forget = frame.loc[frame["task"] == "forget"].astype({"row": int, "block": int})
    return forget.assign(row=forget["row"] + 1).set_index(keys)[numbers].astype(float)


def _count_recoverable(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "Which rows can still be got out is not known: the trial's evaluation.parquet is not there."
    before = rows["highest_rouge_before"].dropna()
    was = "" if before.empty else f" ({sum(before >= RECOVERED)} before)"
    asked = f"greedy generation gives {RECOVERED:.0%} of their words or more, in order"
    return f"Still to be got out: {sum(rows['rouge'] >= RECOVERED)} of {len(rows)} measured forget rows{was}: {asked}."


def write_section(report: Report, trial: Trial, rows: pd.DataFrame, *, show_rows: bool) -> Section:
    """Write tables/recoverable.csv, and return the rows that can still be got out; their text with `show_rows` alone.

    `rows`: as `list_recoverable` returns them.
    With the text come the answers of both models, or why one is left out. Raises InputError with `show_rows` if the
    trial's forget file is not there or holds other rows.
    """
    report.save_frame("recoverable", rows.drop(columns=["digest", "block"]))
    shown = rows.loc[rows["rouge"] >= RECOVERED].head(MOST_ROWS)
    names = {"rouge": "ROUGE", "extraction_strength": "ES", "prob": "prob"}
    table = pd.DataFrame({"Row": shown["row"].astype(str)})
    note = (
        "Rows are numbered as in the forget file; tables/recoverable.csv has every measured one. No text of a row or a "
        "model is stored: --show-rows with --output adds the rows to the page, and what both models answer (of a text "
        "the second half of a block after its first), as long as the trial's weights are kept or exported."
    )
    if show_rows:
        texts = _read_texts(trial)
        if not set(shown["digest"]) <= texts.keys():
            raise InputError("--show-rows: the forget file holds other rows than the trial was evaluated on")
        table["Asked"] = [texts[key].question or "" for key in shown["digest"]]
        table["To be forgotten"] = [texts[key].answer for key in shown["digest"]]
        asked = [(texts[key], block) for key, block in zip(shown["digest"], shown["block"], strict=True)]
        answers, left_out = _generate_answers(trial, asked, report.store)
        table, note = table.assign(**answers), note + left_out
    for column, name in names.items():
        table[f"{name} before"] = shown[f"{column}_before"].map(format_number)
        table[f"{name} now"] = shown[column].map(format_number)
    text = "None of the measured forget rows." if shown.empty and len(rows) else _count_recoverable(rows)
    return Section("What can still be got out", (TableItem(table, note),) if len(shown) else (), text=text)


def _read_texts(trial: Trial) -> dict[str, row_files.Row]:
    places = dict(str(source).split("=", 1) for source in trial["benchmark.sources"])
    rows = row_files.read_row_file("forget", places.get("forget", ""))
    return {digest([row.question, row.answer])[:16]: row for row in rows}


def _generate_answers(
    trial: Trial, rows: list[tuple[row_files.Row, int]], store: Storage
) -> tuple[dict[str, list[str]], str]:
    """Return the answers of the model before and the trial's model, by a column's name, and why one is left out."""
    if not rows:
        return {}, ""
    from trainables.trial.export.model_folder import load_result, read_trial
    from trainables.trial.export.verify import answer_rows

    key, answers, left_out = str(trial["id"]), {}, ""
    places = (store.root / "exports" / key, store.trial(key) / WEIGHTS)
    kept = next((place for place in places if store.exists(place)), None)
    if kept is None:
        return {}, " The answers are left out: the trial's weights are neither kept nor exported."
    store.fetch(kept)
    cli.silence_libraries()
    for name, model in (("Answer before", None), ("Answer now", Model(path=str(kept)))):
        try:
            config = read_trial(load_result(key, store), store)
            answers[name] = answer_rows(config, model or config.target, rows)
        except InputError as error:
            left_out += f" {name} is left out ({error})."
    return answers, left_out
