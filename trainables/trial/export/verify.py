"""Written weights against the trial they came from: loaded again, evaluated again, compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from trainables.benchmarks import evaluation
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import ROWS
from trainables.training import model_files

TOLERANCE = 1e-3
"""The tolerance of a metric, absolute and relative, on a device like the trial's."""
ROWS_TOLERANCE = 1e-2
"""The tolerance of the values below on another device: their mean difference, relative to those above 1."""
CONTINUOUS = ("loss", "prob", "min_k", "answer_loss", "paraphrase_loss", "perturbed_loss", "log_likelihoods")
CONTINUOUS += ("paraphrase_prob", "paraphrase_share", "membership_loss", "membership_zlib", "membership_min_k")
CONTINUOUS += ("membership_min_k_plus_plus", "membership_reference")
"""Columns of records that rounding moves a little; one greedy token or one rank more moves other numbers by a step."""


def verify(trial: Trial, result: Mapping[str, Any], folder: Path, store: Storage) -> dict[str, Any]:
    """Evaluate a model folder as the trial did: its precision, threads and determinism, on a GPU if it had one.

    Returns what the written weights gave, and the differences from the trial's metrics, of which another device makes
    some. Raises InputError if the metrics are others; on another device, if the rows' losses are.
    """
    metrics, records, device = _evaluate(trial, folder)
    wrong = differences(result["metrics"], metrics)
    before = result["topology"]["device"]
    if device == before and wrong:
        raise InputError(f"--output: the written weights do not give the trial's metrics again: {'; '.join(wrong)}")
    if device != before:
        apart = distance(atomic_files.read_rows(store.trial(trial.id()) / ROWS), records)
        if not apart <= ROWS_TOLERANCE:
            raise InputError(
                f"--output: the written weights do not give the trial's losses again: on {device} they are "
                f"{apart:.2g} from those on {before}, on average"
            )
    return {"verified_metrics": metrics, "verified_on": device, "differences": wrong}


def differences(first: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return the metrics of `first` that `again` does not give: `forget_rouge 0.41 is 0.52`.

    A measure that was added since the trial ran is none of `first`.
    """
    found = []
    for name, value in again.items():
        if name not in first:
            continue
        known = first[name]
        same = known == value
        if isinstance(known, float) and isinstance(value, float):
            same = math.isclose(known, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not same:
            found.append(f"{name} {known} is {value}")
    return found


def distance(first: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean difference of the rows' losses, probabilities and likelihoods; infinite if the rows differ."""
    one, other = _continuous_values(first), _continuous_values(again)
    if one.empty or not one.index.equals(other.index):
        return math.inf
    return float(((one - other).abs() / one.abs().clip(lower=1)).mean())


def _continuous_values(records: Sequence[Mapping[str, Any]]) -> pandas.Series:
    """Return every continuous value by row and column; lists are taken apart."""
    frame = pandas.DataFrame(records, columns=["task", "index", *CONTINUOUS]).set_index(["task", "index"])
    values: Any = frame.stack()
    return values.explode().dropna().astype(float)


def _load(trial: Trial, model: Model, field: str) -> tuple[Any, Any, float]:
    """Return a model as the trial evaluated its own, on a GPU if it had one; its tokenizer; the GPUs."""
    import torch

    from trainables.training.runtime import prepare_process

    gpus = min(1.0, trial.resources.gpus) if torch.cuda.is_available() else 0.0
    device = prepare_process(trial.resources.model_copy(update={"ranks": 1, "gpus": gpus}), trial.seed)
    precision = "fp32" if trial.task_vector else trial.resources.precision
    network, tokenizer = model_files.load_model(model, precision, field)
    return network.to(device), tokenizer, gpus


def _evaluate(trial: Trial, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Return metrics, records and the name of the device."""
    from trainables.training.runtime import device_name
    from trainables.trial import setup

    network, tokenizer, gpus = _load(trial, Model(path=str(folder)), "--output")
    reference, budget = setup.load_retain_evaluation(trial), trial.resources.evaluation_tokens
    metrics, records = evaluation.evaluate(network, tokenizer, trial.benchmark, reference, token_budget=budget)
    return metrics, records, device_name(gpus)
