"""open-unlearning's retain log of TOFU, TOFU_EVAL.json of its commit d3d7cf9, as a retain model's evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.benchmarks.measures import HOLDOUT
from trainables.benchmarks.tofu.aggregates import Reference
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark

ATTACKS = {f"mia_{name}": f"membership_{name}" for name in ("loss", "zlib", "min_k", "min_k_plus_plus", "reference")}


def read_log(kept: Mapping[str, Any], benchmark: Benchmark, rows: int, unseen: int, where: str) -> Reference:
    """Return what a retain model's TOFU_EVAL.json gives. Raises InputError if it is of other rows.

    It says of which by their number: `rows` of the forget split, `unseen` hold-out rows (0: they are not asked for).
    """
    if benchmark.dialect != "open-unlearning":
        raise InputError(f"{where} is open-unlearning's: it goes with its dialect, this evaluation has the paper's")
    try:
        ratios = _read_scores(kept["forget_truth_ratio"])
        attacked = {ours: kept[name] for name, ours in ATTACKS.items() if unseen and name in kept}
        counts = {len(part[HOLDOUT]["value_by_index"]) for part in attacked.values()} | {unseen}
        aucs = {f"{ours}_auc": float(part["agg_value"]) for ours, part in attacked.items()}
        parts = attacked.get("membership_loss", {})
        losses = {task: _read_scores(parts[task]) for task in ("forget", HOLDOUT) if parts}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is no TOFU_EVAL.json of open-unlearning: {error!r}") from error
    if len(ratios) != rows:
        raise InputError(f"{where} is of {len(ratios)} forget rows, {benchmark.split} has {rows}")
    if len(counts) > 1:
        other = max(counts - {unseen})
        raise InputError(f"{where} is of other hold-out rows: it has {other}, this evaluation {unseen}")
    return Reference(np.array(ratios, dtype=np.float64), aucs, losses)


def _read_scores(part: Mapping[str, Any]) -> list[float]:
    """Return the rows' scores in the order of their numbers."""
    return [float(row["score"]) for _, row in sorted(part["value_by_index"].items(), key=lambda item: int(item[0]))]
