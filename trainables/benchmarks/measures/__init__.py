"""Measures of a row: each file here is one. Its mean over the rows of a task is the metric `TASK_NAME`.

One of membership is compared instead: the metric `NAME_auc` is the probability that a hold-out row, which no model saw,
has a higher number than a forget row. 1: the forget rows look like rows that were trained on.

A file has `MEASURE`: docs/adding.md. One in a folder has the folder's name before its own (`membership_loss`). It is
computed for every benchmark whose rows have what it reads, and is in result.json, in evaluation.parquet and in the
frame of a report. docs/measuring.md says what each one tells.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from trainables.benchmarks import metrics
from trainables.benchmarks.base import Metrics, Records
from trainables.common.errors import InputError, closest, first_line
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark

ALL, HOLDOUT = "all", "holdout"


@dataclass(frozen=True)
class Measure:
    """A number of a row. `reads`: columns of a record; of `own` also `losses`, `hits`, `answer` and `generation`.

    `best`: on the forget rows. `short`, `title`: in tables. `column`: of evaluation.parquet, the file's name where none
    is given. `benchmarks`: those that report it, all whose rows have what it reads where none is given; `on_request`:
    those that do where `benchmark.measures` names it or, unless it is `slow`, says `all`. `tasks`: whose rows have it,
    all where none is given. `membership`: it is compared between forget and hold-out rows.
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
    slow: bool = False


def _list_modules() -> dict[str, str]:
    """Return each measure's module: `prob` -> `prob`, `membership_loss` -> `membership.loss`."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        inner = pkgutil.iter_modules([f"{place}/{module.name}" for place in __path__]) if module.ispkg else ()
        found |= {f"{module.name}_{one.name}": f"{module.name}.{one.name}" for one in inner}
        if not module.ispkg and module.name[0] != "_":
            found[module.name] = module.name
    return found


MODULES = _list_modules()
NAMES = tuple(sorted(MODULES))


@cache
def find(name: str) -> Measure:
    """Return the measure of a file. Raises InputError if the file is wrong."""
    file = f"trainables/benchmarks/measures/{MODULES[name].replace('.', '/')}.py"
    try:
        measure = importlib.import_module(f"{__name__}.{MODULES[name]}").MEASURE
    except Exception as error:
        raise InputError(f"{file}: {first_line(error)}") from error
    if not isinstance(measure, Measure):
        raise InputError(f"{file}: MEASURE is no trainables.benchmarks.measures.Measure")
    return measure


def reported_by(benchmark: Benchmark) -> dict[str, Measure]:
    """Return the measures that a benchmark reports, by their names: its own, and those that are asked for."""
    found, asked = {name: find(name) for name in NAMES}, requested(benchmark)
    always = [name for name, one in found.items() if not (one.benchmarks or one.on_request)]
    always += [name for name, one in found.items() if benchmark.name in one.benchmarks]
    return {name: one for name, one in found.items() if name in always or name in asked}


def requested(benchmark: Benchmark) -> dict[str, Measure]:
    """Return the measures that `benchmark.measures` asks for. Raises InputError if one is not this benchmark's."""
    known = {name: one for name in NAMES if benchmark.name in (one := find(name)).on_request}
    for name in benchmark.measures:
        if name not in (ALL, *known):
            raise InputError(
                f"benchmark.measures: {benchmark.name} has no measure '{name}'; {closest(name, [ALL, *known])}"
            )
    every = ALL in benchmark.measures
    return {name: one for name, one in known.items() if name in benchmark.measures or (every and not one.slow)}


def describe_labels(scores: Any, dialect: str, example: Example | None = None) -> dict[str, Any]:
    """Return what measures read of the `LabelScores` of an answer (`example`) or a text.

    Hits are of the answer itself, without the labels before and behind it. In open-unlearning's dialect, and of a
    text, they are of all labels but the last, and there a row without a hit has one token extracted.
    """
    hits = scores.hits[:-1]
    if example is not None and dialect != "open-unlearning":
        hits = scores.hits[example.lead : len(scores.hits) - example.ending]
    least = 1 / len(hits) if hits and dialect == "open-unlearning" else 0.0
    return {"losses": scores.losses, "hits": hits, "least_strength": least, "standardised": scores.standardised}


def score_rows(benchmark: Benchmark, rows: Sequence[Mapping[str, Any]], records: Records) -> None:
    """Write into each record the measures of its row, as far as the row has what they read."""
    for name, measure in reported_by(benchmark).items():
        for row, record in zip(rows, records, strict=True):
            if measure.tasks and row["task"] not in measure.tasks:
                continue
            if all(row.get(column) is not None for column in measure.reads):
                record[measure.column or name] = measure.score(row)


def aggregate(
    benchmark: Benchmark,
    records: Records,
    tasks: Sequence[str] | None = None,
    compared: tuple[str, str] = ("forget", HOLDOUT),
) -> Metrics:
    """Return the mean of each measure over the records of each task, where all of them have it; of membership the AUC.

    `tasks`: those that measures are of, None: all. `compared`: the tasks of forget and of hold-out rows.
    """
    import numpy as np

    found: Metrics = {}
    chosen = reported_by(benchmark)
    for task in dict.fromkeys(record["task"] for record in records):
        if task == compared[1] or (tasks is not None and task not in tasks):
            continue
        rows = [record for record in records if record["task"] == task]
        for name, measure in chosen.items():
            values: list[Any] = [row.get(measure.column or name) for row in rows]
            if None not in values and not measure.membership:
                found[f"{task}_{name}"] = float(np.mean(values))
    for name in (name for name, measure in chosen.items() if measure.membership):
        column = chosen[name].column or name
        known = [row for row in records if row.get(column) is not None]
        sides = [[row[column] for row in known if row["task"] == task] for task in compared]
        if all(sides):
            found[f"{name}_auc"] = metrics.auc(*sides)
    return found
