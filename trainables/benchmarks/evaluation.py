"""One model on one benchmark: the same code for a live model, a saved one and the retain model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark
from trainables.storage import files


def evaluate(
    network: Any, tokenizer: Any, benchmark: Benchmark, reference: Any, *, token_budget: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All metrics, and the per-row records they are made of."""
    kind = benchmarks.find(benchmark.name)
    return kind.measure(network, tokenizer, benchmark, reference, token_budget=token_budget)


def check_data(benchmark: Benchmark) -> None:
    """Raise InputError where the files are not those that the fingerprint is of."""
    if not (benchmark.fingerprint or "").startswith("files:"):
        return
    if benchmarks.find(benchmark.name).fingerprint(benchmark) != benchmark.fingerprint:
        places = ", ".join(benchmark.sources) or benchmark.data
        raise InputError(f"benchmark: what '{places}' holds has changed since this trial was planned")


def document(benchmark: Benchmark, found: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """What an evaluation is kept as: metrics, what it was made on, and what makes it a reference."""
    kept = benchmarks.find(benchmark.name).kept(benchmark, records)
    return {**found, "benchmark": benchmark.model_dump(mode="json"), **kept}


def reference(path: Path, benchmark: Benchmark, field: str = "--retain-evaluation") -> Any:
    """What metrics need of the retain model's kept evaluation. Raises InputError where it is of something else."""
    return benchmarks.find(benchmark.name).reference(files.read_json(path), benchmark, f"{field}: {path}")
