"""A report on own rows and on numbered splits: which trial to ship, what is still said, request after request."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.labels import DASH, REFERENCE_LABELS, describe_method, format_number
from analysis.load.trials import evaluated, read_trial_parquet
from analysis.report.page import Section, TableItem, save_frame
from analysis.stats.chosen_settings import SHORT_NAMES, rank_by_label_order
from analysis.stats.sweep_results import Results
from trainables.benchmarks import get_benchmark
from trainables.benchmarks.own.kept_answers import SETS_TO_KEEP
from trainables.benchmarks.selection import choose_and_judge_trial
from trainables.common.wording import format_row_numbers
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import format_storage_option

MAX_ROWS_SHOWN = 50
COLUMN_HEADS = {"row": "Row", "said_any": "said", "rougeL_recall": "ROUGE", "extraction_strength": "ES", "prob": "prob"}
"""What is listed of a forget row, and its head."""
EARLIER_NOW, EARLIER_THEN = "earlier", "then"
"""The mean over the rows of all earlier requests, now and as it was right after their own requests."""
METHOD_AND_RECTIFIER_COLUMNS = ["method", "rectifier"]


def write_own_rows_parts(results: Results, folder: Path) -> tuple[list[str], list[TableItem], list[Section]]:
    """Write tables/forget_rows.csv; return what to ship, its table and the rows it still says; all may be empty."""
    store, runs = results.store, results.runs.loc[evaluated(results.runs)]
    if results.goals.benchmark != "own" or runs.empty:
        return [], [], []
    split = runs["benchmark.split"].max()  # of requests in a row the last one
    models = results.models.loc[results.models["split"] == split].set_index("role").to_dict("index")
    before, unseen = models.get("original", {}), models.get("baseline", {})
    target = store.read_evaluation(before["evaluation"]) if before else None
    trials = {str(one["id"]): one for one in runs.loc[runs["benchmark.split"] == split].to_dict("records")}
    documents = {key: store.result(key) or {} for key in trials}
    verdict = choose_and_judge_trial("own", results.rule, documents, target or {})
    if verdict.key is None:
        return [verdict.describe("")], [], []
    trial = trials[verdict.key]
    asked = f"{trial['id']}{format_storage_option(store)}"
    export = f"To write its model: `python -m trainables.export {asked} --output DIR`"
    if store.exists(store.root / "exports" / str(trial["id"])):
        export = f"Its model is written. To ask it: `python -m trainables.chat {asked}`"
    table = read_trial_parquet(store, store.trial(verdict.key) / ROWS)
    measured = pd.DataFrame() if table is None else table.to_pandas()
    rows = tabulate_forget_rows(measured)
    save_frame(folder, "forget_rows", rows)
    shown: Any = rows.loc[rows["said_any"] > 0].head(MAX_ROWS_SHOWN)
    caption = "Rows are numbered as in the forget file; tables/forget_rows.csv has every measured one."
    listed = shown.map(format_number).assign(row=shown["row"].astype(str)).rename(columns=COLUMN_HEADS)
    still = Section("Which rows are still said", (TableItem(listed, caption),))
    item = TableItem(compare_models(results, [before, trial, unseen]), title=f"Before and after trial {trial['id']}")
    step = "" if pd.isna(trial["chosen_step"]) else f", step {trial['chosen_step']:g}"
    side = describe_method(trial["method"], trial["rectifier.name"]).replace("w/", "with")
    named = f"trial {trial['id']} ({side}, seed {trial['seed']:g}{step})"
    result = documents[verdict.key]
    steps = tabulate_steps([] if results.rule.halves else result.get("evaluations") or [], before)
    told = "Step 0 is the target model, measured whole; a later step may be a look at fewer rows of each set."
    ended = result.get("training", {}).get("ended")
    notes = [f"Training ended early: {ended}."] * bool(ended) + list_lost_and_uncounted_rows(measured)
    items = [item, TableItem(steps, told, f"Trial {trial['id']} step by step")] if len(steps) > 1 else [item]
    return [verdict.describe(named), export, *notes], items, [still] * bool(len(shown))


def compare_models(results: Results, models: list[dict[Any, Any]]) -> pd.DataFrame:
    """Return each measure of the model before, of the trial, and of a model that never saw the rows if there is one."""
    measures = {column.metric: column.head for column in results.goals.columns}
    measures |= {f"{name}_kept": f"{name} rows kept" for name in SETS_TO_KEEP}
    measures["membership_loss_auc"] = "AUC of telling forget rows from rows never trained on (0.5: guessing)"
    table = [[head, *(format_number(one.get(metric, math.nan)) for one in models)] for metric, head in measures.items()]
    frame = pd.DataFrame(table, columns=["", "Before", "After", "Never trained"])
    return frame.loc[frame["After"] != DASH].drop(columns=[] if models[-1] else "Never trained")


def tabulate_steps(evaluations: list[dict[str, Any]], before: dict[Any, Any]) -> pd.DataFrame:
    """Return what is said and kept before, and at each step of a trial that was looked at, in shares of the rows."""
    heads = {"step": "Step", "forget_said": "said to the question", "forget_said_any": "said in any way"}
    heads |= {f"{name}_kept": f"{name} rows kept" for name in SETS_TO_KEEP} | {"utility": "utility"}
    rows: Any = pd.DataFrame([before | {"step": 0}, *evaluations]).reindex(columns=list(heads))
    rows = rows.dropna(axis=1, how="all")
    return rows.map(format_number).assign(step=rows["step"].astype(str)).rename(columns=heads)


def tabulate_forget_rows(measured: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each measured forget row, of a text its block that is given away most; the worst first."""
    rows = measured.reindex(columns=["task", *COLUMN_HEADS])
    forget = rows.loc[rows["task"] == "forget"].drop(columns="task")
    forget = forget.map(lambda value: value if isinstance(value, int | float) else math.nan).dropna(subset="row")
    forget = forget.astype(float).assign(row=forget["row"].astype(int) + 1)
    return forget.sort_values(["said_any", "rougeL_recall"], ascending=False, kind="stable").drop_duplicates("row")


def list_lost_and_uncounted_rows(measured: pd.DataFrame) -> list[str]:
    """Return which questions that are to be kept are lost, and which do not count: the target model never said them.

    Nothing of sets in which another measure counts (kept_answers.score_answers_to_keep), whose shares are no 0 or 1.
    """
    found = []
    for task in SETS_TO_KEEP:
        rows: Any = measured.reindex(columns=["task", "row", "is_text", "said", "kept"])
        rows = rows.loc[(rows["task"] == task) & rows["is_text"].eq(False) & rows["said"].notna()]
        numbers: Any = pd.to_numeric(rows["row"], errors="coerce")
        if rows["kept"].isna().all() or not rows["kept"].dropna().isin([0, 1]).all():
            continue
        fates = {"No longer said by the model": rows["kept"].eq(0)}
        fates["Not counted, because the target model did not say them"] = rows["kept"].isna()
        for told, chosen in fates.items():
            if listed := (numbers.loc[chosen].dropna().astype(int) + 1).drop_duplicates().to_list():
                found.append(f"{told}: {format_row_numbers(listed)} of those measured as {task}.")
    return found


def tabulate_request_sequence(results: Results) -> pd.DataFrame:
    """Return one row for each method, rectifier and numbered split, means over seeds; the target model's come first.

    Of own rows also `request_01`, ... (removal on the rows of each request so far), EARLIER_NOW and EARLIER_THEN. Empty
    unless the sweep has several such splits and no others.
    """
    goals, runs = results.goals, results.runs.loc[evaluated(results.runs)]
    models = results.models.loc[results.models["role"] == "original"].assign(method="original", rectifier="")
    rows: Any = pd.concat([models, runs.rename(columns=SHORT_NAMES)], ignore_index=True)
    rows["number"] = rows["split"].str.extract(r"_([0-9]+)$", expand=False).astype(float)
    if runs.empty or rows["number"].isna().any() or rows["number"].nunique() < 2:
        return pd.DataFrame(columns=METHOD_AND_RECTIFIER_COLUMNS)
    removal, kind = goals.removals[0], get_benchmark(goals.benchmark)
    measure, requests = removal.metric.removeprefix("forget_"), sorted(set(rows["split"]))
    for split in requests if kind.SEQUENCE + "01" in requests else ():
        own = rows["split"] == split
        for name in (measure, "rows"):
            rows.loc[own, f"{split}_{name}"] = rows.loc[own, f"forget_{name}"]
        rows[split] = rows[f"{split}_{measure}"]
    counts = {split: rows[f"{split}_rows"].max() for split in requests if split in rows}
    metrics = [*(goal.metric for goal in goals.all_goals), *counts]
    means: Any = rows.groupby(["number", "split", *METHOD_AND_RECTIFIER_COLUMNS], as_index=False)[metrics].mean()
    line: Any
    for _, line in means.groupby(METHOD_AND_RECTIFIER_COLUMNS):
        then = {row["split"]: row[removal.metric] for row in line.to_dict("records")}
        for place, row in line.iterrows():
            before = [split for split in counts if split < row["split"] and split in then]
            weights = sum(counts[split] for split in before)
            for name, value in ((EARLIER_NOW, row), (EARLIER_THEN, then)):
                total = sum(counts[split] * value[split] for split in before)
                means.loc[place, name] = total / weights if before else math.nan
    return means.sort_values([*METHOD_AND_RECTIFIER_COLUMNS, "number"], key=rank_by_label_order, ignore_index=True)


def write_request_sequence(results: Results, folder: Path) -> list[Section]:
    """Write tables/requests.csv and return its section; none where the sweep has no numbered splits."""
    points, goals = tabulate_request_sequence(results), results.goals
    if points.empty:
        return []
    save_frame(folder, "requests", points)
    sides = zip(points["method"], points["rectifier"], strict=True)
    labels = [REFERENCE_LABELS.get(method) or describe_method(method, rectifier) for method, rectifier in sides]
    table = pd.DataFrame({"Method": labels, "Split": points["split"]})
    shown = {goal.metric: goal.short for goal in (goals.retention, *goals.removals)}
    if len(points.dropna(subset=[EARLIER_NOW])):
        what = f"{goals.removals[0].short} of earlier requests"
        shown |= {EARLIER_NOW: f"{what}, now", EARLIER_THEN: f"{what}, right after each"}
    for name, head in shown.items():
        table[head] = points[name].map(format_number)
    caption = "Means over seeds. Original: the model before the first request, asked for the same rows."
    return [Section("Request by request", (TableItem(table, caption),))]
