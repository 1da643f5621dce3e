"""Measures of a row: its mean over the rows of a task is the metric `TASK_NAME`, of membership an AUC, `NAME_auc`.

The AUC is the probability that a hold-out row has a higher number than a forget row. The published measures are in one
file, each other file here has one, `MEASURE`, and its name (docs/adding.md). docs/measuring.md says what each tells.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from trainables.benchmarks import metrics
from trainables.benchmarks.base import Metrics, Records
from trainables.common.errors import InputError, first_error_line, suggest_name
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark

ALL, HOLDOUT_SET = "all", "holdout"
MEASURE_INPUT_COLUMNS = ("losses", "hits", "least_strength", "standardised", "answer_text", "reference_loss")
"""What measures read of a record and no evaluation keeps: lists as long as the row, and its text."""


@dataclass(frozen=True)
class Measure:
    """A number of a row. `reads`: columns of a record; of `own` also `losses`, `hits`, `answer`, `generation`.

    `best`: on the forget rows. `column`: of evaluation.parquet, if not the file's name. `benchmarks`: those that report
    it, else all whose rows have what it reads; `on_request`: those that do by `benchmark.measures`. `tasks`: whose rows
    have it, else all. `membership`: it is compared between forget and hold-out rows.
    """

    score: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...]
    best: Literal["highest", "lowest"]
    short: str
    title: str
    column: str = ""
    benchmarks: tuple[str, ...] = ()
    on_request: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    membership: bool = False


@cache
def load_measures() -> dict[str, Measure]:
    """Return every measure by its name. Raises InputError if a file is wrong."""
    found: dict[str, Measure] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):  # what measures share
            continue
        try:
            loaded = importlib.import_module(f"{__name__}.{module.name}")
            found |= loaded.MEASURES if module.name == "published" else {module.name: loaded.MEASURE}
            if not all(isinstance(one, Measure) for one in found.values()):
                raise TypeError("MEASURE is no trainables.benchmarks.measures.Measure")
        except Exception as error:
            raise InputError(f"trainables/benchmarks/measures/{module.name}.py: {first_error_line(error)}") from error
    return dict(sorted(found.items()))


def reported_measures(benchmark: Benchmark) -> dict[str, Measure]:
    """Return the measures that a benchmark reports, by their names: its own, and those that are asked for."""
    asked = list_requested_measures(benchmark)
    return {
        name: one
        for name, one in load_measures().items()
        if name in asked or benchmark.name in one.benchmarks or not (one.benchmarks or one.on_request)
    }


def list_requested_measures(benchmark: Benchmark) -> dict[str, Measure]:
    """Return the measures that `benchmark.measures` asks for. Raises InputError if one is not this benchmark's."""
    known = {name: one for name, one in load_measures().items() if benchmark.name in one.on_request}
    for name in benchmark.measures:
        if name not in (ALL, *known):
            hint = suggest_name(name, [ALL, *known])
            raise InputError(f"benchmark.measures: {benchmark.name} has no measure '{name}'; {hint}")
    return known if ALL in benchmark.measures else {name: known[name] for name in known if name in benchmark.measures}


def extract_measure_inputs(scores: Any, dialect: str, example: Example | None = None) -> dict[str, Any]:
    """Return what measures read of the `LabelScores` of an answer (`example`) or a text.

    Hits are of the answer itself. In open-unlearning's dialect, and of a text, they are of all labels but the last, and
    a row without a hit has one token extracted.
    """
    hits = scores.hits[:-1]
    if example is not None and dialect != "open-unlearning":
        hits = scores.hits[example.lead : len(scores.hits) - example.ending]
    least = 1 / len(hits) if hits and dialect == "open-unlearning" else 0.0
    return {"losses": scores.losses, "hits": hits, "least_strength": least, "standardised": scores.standardised}


def add_row_measures(benchmark: Benchmark, records: Records, private: Sequence[str] = ()) -> Records:
    """Return the records with the measures that can read them, less MEASURE_INPUT_COLUMNS and `private`."""
    for name, measure in reported_measures(benchmark).items():
        for record in records:
            if measure.tasks and record["task"] not in measure.tasks:
                continue
            if all(record.get(column) is not None for column in measure.reads):
                record[measure.column or name] = measure.score(record)
    return [{name: row[name] for name in row if name not in (*MEASURE_INPUT_COLUMNS, *private)} for row in records]


def aggregate_measures(
    benchmark: Benchmark, records: Records, compared: tuple[str, str] = ("forget", HOLDOUT_SET)
) -> Metrics:
    """Return each measure's mean over a task's records, where all have it; of membership the AUC of `compared`."""
    by_task: dict[str, Records] = {}
    for record in records:
        by_task.setdefault(record["task"], []).append(record)
    found: Metrics = {}
    for name, measure in reported_measures(benchmark).items():
        column = measure.column or name
        values: dict[str, list[Any]] = {task: [row.get(column) for row in rows] for task, rows in by_task.items()}
        if measure.membership:
            sides = [[value for value in values.get(task, ()) if value is not None] for task in compared]
            if all(sides):
                found[f"{name}_auc"] = metrics.auc(*sides)
            continue
        for task, numbers in values.items():
            if None not in numbers and task != compared[1]:
                found[f"{task}_{name}"] = float(np.mean(numbers))
    return found
