"""What models say before and after unlearning: which trial of own rows to ship, what it still says, first answers.

Besides, requests one after another, and figures/tradeoff.html with each trial's first answer, drawn by Vega-Lite.
"""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import vl_convert

from analysis.figures.style import METHOD_COLOURS, method_colour
from analysis.labels import DASH, REFERENCE_LABELS, describe_method, format_forget_split, goal_axis_title, rank_values
from analysis.load.trials import evaluated, read_trial_parquet
from analysis.report.page import Section, save_frame_as_csv
from analysis.stats.sweep_results import SHORT_NAMES, SweepResults, pick_setting_by_rule
from analysis.tables.detail_tables import tabulate_trials
from analysis.tables.printing import PrintedTable, format_number
from trainables.benchmarks import get_benchmark
from trainables.benchmarks.own.kept_answers import SETS_TO_KEEP
from trainables.benchmarks.selection import choose_and_judge_trial
from trainables.common.wording import format_row_numbers
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option

COLUMN_HEADS = {"row": "Row", "said_any": "said", "rougeL_recall": "ROUGE", "extraction_strength": "ES", "prob": "prob"}
"""What is listed of a forget row, and its head."""
EARLIER_REQUESTS_NOW, EARLIER_REQUESTS_AT_END = "earlier", "then"
"""The mean over the rows of all earlier requests, now and as it was right after their own requests."""
METHOD_AND_RECTIFIER_COLUMNS = ["method", "rectifier"]
FORGET_SHOWN, RETAIN_SHOWN = ("to forget", 3), ("to keep", 2)
SHOWN_BY_TASK = {"forget": FORGET_SHOWN, "knowmem_f": FORGET_SHOWN, "retain": RETAIN_SHOWN, "knowmem_r": RETAIN_SHOWN}
"""What a task's rows are for, and how many of them are shown."""
DARK_CSS = (
    "<style>:root { color-scheme: light dark; font-family: sans-serif; }"
    " @media (prefers-color-scheme: dark) { canvas, svg { filter: invert(0.9) hue-rotate(180deg); } }</style>"
)
"""The picture's colours where a person's screen is dark: lightness turned round, hues kept."""


def write_own_rows_sections(results: SweepResults, folder: Path) -> tuple[list[str], list[PrintedTable], list[Section]]:
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
    if store.find_export(verdict.key):
        export = f"Its model is written. To ask it: `python -m trainables.chat {asked}`"
    measured = read_trial_parquet(store, store.trial(verdict.key) / ROWS).to_pandas()
    rows = tabulate_forget_row_scores(measured)
    save_frame_as_csv(folder, "forget_rows", rows)
    shown: Any = rows.loc[rows["said_any"] > 0].head(50)
    caption = "Rows are numbered as in the forget file; tables/forget_rows.csv has every measured one."
    listed = shown.map(format_number).assign(row=shown["row"].astype(str)).rename(columns=COLUMN_HEADS)
    still = Section("Which rows are still said", (PrintedTable(listed, (caption,)),))
    item = PrintedTable(compare_models(results, [before, trial, unseen]), title=f"Before and after trial {trial['id']}")
    step = "" if pd.isna(trial["chosen_step"]) else f", step {trial['chosen_step']:g}"
    side = describe_method(trial["method"], trial["rectifier.name"]).replace("w/", "with")
    named = f"trial {trial['id']} ({side}, seed {trial['seed']:g}{step})"
    result = documents[verdict.key]
    steps = tabulate_evaluated_steps([] if results.rule.halves else result.get("evaluations") or [], before)
    told = "Step 0 is the target model, measured whole; a later step may be a look at fewer rows of each set."
    ended = result.get("training", {}).get("ended")
    notes = [f"Training ended early: {ended}."] * bool(ended) + describe_kept_rows_not_said(measured)
    items = [item, PrintedTable(steps, (told,), f"Trial {trial['id']} step by step")] if len(steps) > 1 else [item]
    return [verdict.describe(named), export, *notes], items, [still] * bool(len(shown))


def compare_models(results: SweepResults, models: list[dict[Any, Any]]) -> pd.DataFrame:
    """Return each measure of the model before, of the trial, and of a model that never saw the rows if there is one."""
    measures = {column.metric: column.head for column in results.goals.columns}
    measures |= {f"{name}_kept": f"{name} rows kept" for name in SETS_TO_KEEP}
    measures["membership_loss_auc"] = "AUC of telling forget rows from rows never trained on (0.5: guessing)"
    table = [[head, *(format_number(one.get(metric, math.nan)) for one in models)] for metric, head in measures.items()]
    frame = pd.DataFrame(table, columns=["", "Before", "After", "Never trained"])
    return frame.loc[frame["After"] != DASH].drop(columns=[] if models[-1] else "Never trained")


def tabulate_evaluated_steps(evaluations: list[dict[str, Any]], before: dict[Any, Any]) -> pd.DataFrame:
    """Return what is said and kept before, and at each step of a trial that was looked at, in shares of the rows."""
    heads = {"step": "Step", "forget_said": "said to the question", "forget_said_any": "said in any way"}
    heads |= {f"{name}_kept": f"{name} rows kept" for name in SETS_TO_KEEP} | {"utility": "utility"}
    rows: Any = pd.DataFrame([before | {"step": 0}, *evaluations]).reindex(columns=list(heads))
    rows = rows.dropna(axis=1, how="all")
    return rows.map(format_number).assign(step=rows["step"].astype(str)).rename(columns=heads)


def tabulate_forget_row_scores(measured: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each measured forget row, of a text its block that is given away most; the worst first."""
    rows = measured.reindex(columns=["task", *COLUMN_HEADS])
    forget = rows.loc[rows["task"] == "forget"].drop(columns="task")
    forget = forget.map(lambda value: value if isinstance(value, int | float) else math.nan).dropna(subset="row")
    forget = forget.astype(float).assign(row=forget["row"].astype(int) + 1)
    return forget.sort_values(["said_any", "rougeL_recall"], ascending=False, kind="stable").drop_duplicates("row")


def describe_kept_rows_not_said(measured: pd.DataFrame) -> list[str]:
    """Return which questions that are to be kept are lost, and which do not count: the target model never said them.

    Nothing of sets in which another measure counts (kept_answers.add_kept_shares), whose shares are no 0 or 1.
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


def write_request_sequence_section(results: SweepResults, folder: Path) -> list[Section]:
    """Write tables/requests.csv and return its section; none unless the sweep has several numbered splits alone.

    One row for each method, rectifier and split, means over seeds; the target model's come first. Of own rows also
    `request_01`, ... (removal on the rows of each request so far), EARLIER_REQUESTS_NOW and EARLIER_REQUESTS_AT_END.
    """
    goals, runs = results.goals, results.chosen_trials
    models = results.models.loc[results.models["role"] == "original"].assign(method="original", rectifier="")
    rows: Any = pd.concat([models, runs.rename(columns=SHORT_NAMES)], ignore_index=True)
    rows["number"] = rows["split"].str.extract(r"_([0-9]+)$", expand=False).astype(float)
    if runs.empty or rows["number"].isna().any() or rows["number"].nunique() < 2:
        return []
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
            for name, value in ((EARLIER_REQUESTS_NOW, row), (EARLIER_REQUESTS_AT_END, then)):
                total = sum(counts[split] * value[split] for split in before)
                means.loc[place, name] = total / weights if before else math.nan
    points = means.sort_values([*METHOD_AND_RECTIFIER_COLUMNS, "number"], key=rank_values, ignore_index=True)
    save_frame_as_csv(folder, "requests", points)
    sides = zip(points["method"], points["rectifier"], strict=True)
    labels = [REFERENCE_LABELS.get(method) or describe_method(method, rectifier) for method, rectifier in sides]
    table = pd.DataFrame({"Method": labels, "Split": points["split"]})
    shown = {goal.metric: goal.short for goal in (goals.retention, *goals.removals)}
    if len(points.dropna(subset=[EARLIER_REQUESTS_NOW])):
        what = f"{goals.removals[0].short} of earlier requests"
        shown |= {EARLIER_REQUESTS_NOW: f"{what}, now", EARLIER_REQUESTS_AT_END: f"{what}, right after each"}
    for name, head in shown.items():
        table[head] = points[name].map(format_number)
    caption = "Means over seeds. Original: the model before the first request, asked for the same rows."
    return [Section("Request by request", (PrintedTable(table, (caption,)),))]


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


def make_before_after_section(results: SweepResults) -> list[Section]:
    """Return the answers of the original model and of the setting that is chosen of all, a table for each split."""
    models = results.models.loc[results.models["role"] == "original"].set_index("split")["evaluation"].to_dict()
    items = []
    for split, settings in results.chosen.groupby("benchmark.split"):
        best: Any = pick_setting_by_rule(settings, results.rule)
        if best.empty or split not in models:
            continue
        row = best.iloc[0]
        before = read_first_answers(results.store, results.store.evaluation(models[split]))
        after = read_first_answers(results.store, results.store.trial(row["id"]))
        table = before.merge(after, on=["purpose", "question"], suffixes=("", "_after"))
        if len(table):
            heads = ["", "Question", "Original model", describe_method(row["method"], row["rectifier.name"])]
            told = "Greedy answers to the first rows of the evaluation, one seed: none is picked by what was answered."
            items.append(PrintedTable(table.set_axis(heads, axis="columns"), (told,), format_forget_split(str(split))))
    return [Section("Before and after", tuple(items))] if items else []


def write_interactive_tradeoff(results: SweepResults, folder: Path) -> bool:
    """Write figures/tradeoff.html, which needs no network; return whether there were two trials to show."""
    goals, x, y = results.goals, results.goals.removal_goal, results.goals.retention
    shown = evaluated(results.runs) & results.runs[[x.metric, y.metric]].notna().all(axis=1)
    if sum(shown) < 2:
        return False
    trials = tabulate_trials(results).loc[shown]
    trials["chosen"] = trials["id"].isin(results.chosen_trials["id"])
    found = {key: read_first_answers(results.store, results.store.trial(key)) for key in results.chosen_trials["id"]}
    answers = {key: " → ".join(row) for key, rows in found.items() for row in rows.iloc[:1, 1:].to_numpy()}
    axes: dict[str, Any] = {}
    for axis, goal in (("x", x), ("y", y)):
        scale = {"zero": False, "padding": 15, "reverse": goal.best == "lowest"}
        axes[axis] = {"field": goal.metric, "type": "quantitative", "title": goal_axis_title(goal), "scale": scale}
    settings = [name for name in trials if name not in {*goals.metrics, x.metric, "id", "split"}]
    # Vega gives out a range in sorted order: methods get their own colours, values of another setting get any
    methods = dict(zip(trials["method"], results.runs.loc[shown, "method"], strict=True))
    colours = [method_colour(methods[label]) for label in sorted(methods)]
    colours += [colour for colour in METHOD_COLOURS.values() if colour not in colours]
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
                "color": {"field": "coloured by", "scale": {"range": colours}},
                "shape": {"field": "rectifier", "title": "Rectifier"},
                "size": {"condition": {"test": "datum.chosen", "value": 180}, "value": 50},
                "opacity": {"condition": {"param": "legend", "value": 0.9}, "value": 0.05},
            },
        },
    }
    page = vl_convert.vegalite_to_html(picture, bundle=True)
    (folder / "figures" / "tradeoff.html").write_text(page.replace("<head>", f"<head>{DARK_CSS}", 1), encoding="utf-8")
    return True
