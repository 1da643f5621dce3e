"""Which settings change a trial of a method and a rectifier, as METHODS and RECTIFIERS say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainables.config.method_tables import METHODS, RECTIFIERS, SETTINGS
from trainables.config.trial import Trial


def has_effect(path: str, method: str, rectifier: str, axes: Mapping[str, Any] | None = None) -> bool:
    """Return whether a setting changes the trials of a method with a rectifier.

    `axes` of the sweep: without a moving average on them, a rule of two gradients has no use for gamma.
    """
    row, (section, _, name) = METHODS[method], path.rpartition(".")
    match section:
        case "rectifier":
            takes, averages = RECTIFIERS[rectifier].takes, axes is None or "average" in axes.get("rectifier.memory", ())
            unused = name == "gamma" and "memory" in takes and not averages
            return name == "name" or (name in takes and not unused)
        case "objective":
            return not row.strength and (row.custom or name in row.reads or (name == "preset" and bool(row.presets)))
        case "task_vector":
            other = name in ("stg", "strength") and name != row.strength
            of_batches = name in ("batches", "normalise")  # of task vectors that are made of several
            return bool(row.strength) and not other and (row.batched or not of_batches)
        case "training":
            return not row.strength or name == "max_length"
        case _:
            return path != "seed" or not row.strength or row.batched  # in other vectors nothing is random


def name_trial(trial: Trial, axes: Iterable[str]) -> str:
    """Return a trial's readable name, with its values on those of these axes that have an effect on it."""
    return trial.label([path for path in axes if has_effect(path, trial.method, trial.rectifier.name)])


def requires_value(rectifier: str, path: str) -> bool:
    """Return whether a rectifier needs a value of gamma or tau, so that `none` is no point of its axis."""
    section, _, name = path.rpartition(".")
    return section == "rectifier" and name in SETTINGS and name in RECTIFIERS[rectifier].requires
