"""Measures of a row: each file here is one. Its mean over the rows of a task is the metric `TASK_NAME`.

A file has `MEASURE`: docs/adding.md. It is computed for every benchmark whose rows have what it reads, and
is in result.json, in evaluation.parquet and in the frame of a report.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from trainables.benchmarks.base import BenchmarkBase, Metrics, Records
from trainables.common.errors import InputError, first_line


@dataclass(frozen=True)
class Measure:
    """A number of a row. `reads`: columns of a record; of `own` also `losses`, `hits`, `answer` and `generation`.

    `best`: on the forget rows. `short`, `title`: in tables. `column`: of evaluation.parquet, the file's name where none
    is given. `benchmarks`: those that report it, all whose rows have what it reads where none is given.
    """

    score: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...]
    best: Literal["highest", "lowest"]
    short: str
    title: str
    column: str = ""
    benchmarks: tuple[str, ...] = ()


NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"))


@cache
def find(name: str) -> Measure:
    """Return the measure of a file. Raises InputError if the file is wrong."""
    file = f"trainables/benchmarks/measures/{name}.py"
    try:
        measure = importlib.import_module(f"{__name__}.{name}").MEASURE
    except Exception as error:
        raise InputError(f"{file}: {first_line(error)}") from error
    if not isinstance(measure, Measure):
        raise InputError(f"{file}: MEASURE is no trainables.benchmarks.measures.Measure")
    return measure


def reported_by(benchmark: BenchmarkBase) -> dict[str, Measure]:
    """Return the measures of a benchmark by their names."""
    found = {name: find(name) for name in NAMES}
    return {name: one for name, one in found.items() if not one.benchmarks or benchmark.name in one.benchmarks}


def score_rows(benchmark: BenchmarkBase, rows: Sequence[Mapping[str, Any]], records: Records) -> None:
    """Write into each record the measures of its row, as far as the row has what they read."""
    for name, measure in reported_by(benchmark).items():
        for row, record in zip(rows, records, strict=True):
            if all(row.get(column) is not None for column in measure.reads):
                record[measure.column or name] = measure.score(row)


def means(benchmark: BenchmarkBase, records: Records) -> Metrics:
    """Return the mean of each measure over the records of each task, where all of them have it."""
    import numpy as np

    found: Metrics = {}
    for task in dict.fromkeys(record["task"] for record in records):
        if benchmark.MEASURED_TASKS is not None and task not in benchmark.MEASURED_TASKS:
            continue
        rows = [record for record in records if record["task"] == task]
        for name, measure in reported_by(benchmark).items():
            values: list[Any] = [row.get(measure.column or name) for row in rows]
            if None not in values:
                found[f"{task}_{name}"] = float(np.mean(values))
    return found
