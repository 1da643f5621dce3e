"""One model on one benchmark: the same code for a live model, a saved one and the retain model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, measures
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark
from trainables.inference.progress import Report, report_to
from trainables.storage import atomic_files


def evaluate(
    network: Any,
    tokenizer: Any,
    benchmark: Benchmark,
    reference: Any,
    *,
    token_budget: int,
    report: Report | None = None,
) -> tuple[Metrics, Records]:
    """Return all metrics, those of added measures included, and the records they are made of.

    `report` is called with how far it is.
    """
    chosen = benchmarks.find(benchmark.name)
    with report_to(report):
        metrics, records = chosen.measure(network, tokenizer, benchmark, reference, token_budget=token_budget)
    measures.score_rows(benchmark, records, records)
    columns = dict.fromkeys(name for row in records for name in row)
    records = [columns | row for row in records]
    added = measures.aggregate(benchmark, records, chosen.MEASURED_TASKS, chosen.COMPARED_TASKS)
    return added | metrics, records


def check_data(benchmark: Benchmark) -> None:
    """Raise InputError if the files are not those that the fingerprint is of."""
    if not (benchmark.fingerprint or "").startswith("files:"):
        return
    if benchmarks.find(benchmark.name).fingerprint(benchmark) != benchmark.fingerprint:
        places = ", ".join(benchmark.sources) or benchmark.data
        raise InputError(f"benchmark: what '{places}' holds has changed since this trial was planned")


def document(benchmark: Benchmark, metrics: Metrics, records: Records) -> dict[str, Any]:
    """Return what an evaluation is kept as: metrics, what it was made on, and what makes it a reference."""
    part = benchmarks.find(benchmark.name).reference_part(benchmark, records)
    return {**metrics, "benchmark": benchmark.model_dump(mode="json"), **part}


def read_reference(path: Path, benchmark: Benchmark, field: str = "--retain-evaluation") -> Any:
    """Return what metrics need of the retain model's kept evaluation. Raises InputError if it is of something else."""
    return benchmarks.find(benchmark.name).read_reference(atomic_files.read_json(path), benchmark, f"{field}: {path}")
