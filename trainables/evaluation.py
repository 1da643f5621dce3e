"""One model on one benchmark: the same code for a live model, a saved one and the retain model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainables import config, metrics, storage
from trainables.benchmarks import tofu
from trainables.config import Benchmark
from trainables.errors import InputError

RATIOS = "forget_truth_ratios"
ASKED = "forget_rows_digest"


def evaluate(
    network: Any, tokenizer: Any, benchmark: Benchmark, retain: metrics.Array | None, *, token_budget: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All metrics, and the per-row records they are made of."""
    records = tofu.evaluate(network, tokenizer, benchmark, token_budget=token_budget)
    return tofu.aggregate(records, benchmark.dialect, retain), records


def document(benchmark: Benchmark, found: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """What an evaluation is kept as: metrics, what it was made on, and the truth ratios that FQ needs."""
    guard = tofu.RULES[benchmark.dialect].guard
    ratios = tofu.truth_ratios(records, "forget", guard).tolist()
    asked = [[row["question"], row["answer"]] for row in records if row["task"] == "forget"]
    return {**found, "benchmark": benchmark.model_dump(mode="json"), RATIOS: ratios, ASKED: config.digest(asked)}


def retain_ratios(path: Path, benchmark: Benchmark, field: str = "--retain-evaluation") -> metrics.Array:
    """The retain model's truth ratios. Raises InputError where the file is of another split, dialect or template."""
    kept = storage.read_json(path)
    if kept is None or RATIOS not in kept:
        raise InputError(f"{field}: {path} is not the output of trainables.evaluate")
    for name in ("split", "dialect", "template"):
        theirs, ours = kept["benchmark"].get(name), getattr(benchmark, name)
        if theirs != ours:
            raise InputError(
                f"{field}: {path} was made with {name} '{theirs}', this evaluation has '{ours}': "
                "forget quality compares the same rows only"
            )
    asked = [[row["question"], row["answer"]] for row in tofu.evaluation_rows(benchmark)["forget"]]
    if kept.get(ASKED) != config.digest(asked):
        raise InputError(f"{field}: {path} was made on other forget rows than {benchmark.data} holds")
    return np.array(kept[RATIOS], dtype=np.float64)
