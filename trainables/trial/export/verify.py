"""Written weights against the trial they came from: loaded again, evaluated again, compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.benchmarks import evaluation
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.training import model_files

TOLERANCE = 1e-3
"""The tolerance of a metric, absolute and relative, on a device like the trial's."""


def verify(trial: Trial, result: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Evaluate a model folder as the trial did: its precision, threads and determinism, on a GPU if it had one.

    Returns what the written weights gave, and the differences from the trial's metrics. Raises InputError if there are
    any on a device like the trial's; on another one rounding makes some.
    """
    import torch

    from trainables.training.runtime import device_name, prepare_process
    from trainables.trial import setup

    gpus = min(1.0, trial.resources.gpus) if torch.cuda.is_available() else 0.0
    device = prepare_process(trial.resources.model_copy(update={"ranks": 1, "gpus": gpus}), trial.seed)
    precision = "fp32" if trial.task_vector else trial.resources.precision
    network, tokenizer = model_files.load_model(Model(path=str(folder)), precision, "--output")
    reference, budget = setup.load_retain_evaluation(trial), trial.resources.evaluation_tokens
    metrics, _ = evaluation.evaluate(network.to(device), tokenizer, trial.benchmark, reference, token_budget=budget)
    wrong, verified_on = differences(result["metrics"], metrics), device_name(gpus)
    if wrong and verified_on == result["topology"]["device"]:
        raise InputError(f"--output: the written weights do not give the trial's metrics again: {'; '.join(wrong)}")
    return {"verified_metrics": metrics, "verified_on": verified_on, "differences": wrong}


def differences(first: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return the metrics of `first` that `again` does not give: `forget_rouge 0.41 is 0.52`.

    A measure that was added since the trial ran is none of `first`.
    """
    found = []
    for name in (name for name in again if name in first):
        known, value = first[name], again[name]
        same = known == value
        if isinstance(known, float) and isinstance(value, float):
            same = math.isclose(known, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not same:
            found.append(f"{name} {known} is {value}")
    return found
