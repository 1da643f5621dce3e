"""open-unlearning's retain log of TOFU, TOFU_EVAL.json, as a retain model's evaluation.

Names and nesting are those of its commit d3d7cf9 (src/evals, configs/eval/tofu_metrics).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.benchmarks.measures import HOLDOUT
from trainables.benchmarks.tofu.aggregates import Reference
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark

ATTACKS = {f"mia_{name}": f"membership_{name}" for name in ("loss", "zlib", "min_k", "min_k_plus_plus", "reference")}


def is_log(kept: Mapping[str, Any] | None) -> bool:
    """Return whether a file is a TOFU_EVAL.json."""
    return isinstance((kept or {}).get("forget_truth_ratio"), dict)


def read_log(kept: Mapping[str, Any], benchmark: Benchmark, rows: int, unseen: int, where: str) -> Reference:
    """Return what a retain model's TOFU_EVAL.json gives. Raises InputError, led by `where`, if it is of other rows.

    The file says of which rows it is by their number alone: `rows` of the forget split, `unseen` hold-out rows (0: they
    are not asked for, and what the file has of them is left out).
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
        raise InputError(
            f"{where} is of other hold-out rows: it has {max(counts - {unseen})}, this evaluation {unseen}"
        )
    return Reference(np.array(ratios, dtype=np.float64), aucs, losses)


def _read_scores(part: Mapping[str, Any]) -> list[float]:
    """Return the rows' scores in the order of their numbers."""
    return [float(row["score"]) for _, row in sorted(part["value_by_index"].items(), key=lambda item: int(item[0]))]
