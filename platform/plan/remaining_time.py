"""The time that a plan's outstanding trials take, by the trials that are done or else by the plan's own estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from platform.plan.plan import Plan
from trainables.common.wording import format_amount, format_duration
from trainables.storage.names import EVALUATED

ENOUGH_TRIALS = 3
"""Once this many trials are evaluated, their mean time replaces the plan's estimate."""


@dataclass(frozen=True)
class Measured:
    """How many trials were evaluated, and what they took together; a rank without a GPU counts as one GPU."""

    trials: int = 0
    gpu_seconds: float = 0.0

    @property
    def gpu_seconds_per_trial(self) -> float | None:
        """Return the mean over these trials, None if there are too few."""
        return self.gpu_seconds / self.trials if self.trials >= ENOUGH_TRIALS else None


def estimate_gpu_hours(plan: Plan, left: int, measured: Measured) -> tuple[float | None, str | None]:
    """Return the GPU-hours that are left, and what they are based on: the plan's estimate of all, or enough trials."""
    if not (plan.sweep.resources.gpus and left) or measured.gpu_seconds_per_trial is None:
        return plan.costs.hours, plan.costs.basis
    basis = f"for the {left} left, as the {measured.trials} that are done took"
    if plan.costs.hours is not None:
        basis += f"; the estimate of all was {format_amount(plan.costs.hours)}"
    return measured.gpu_seconds_per_trial * left / 3600, basis


def estimate_seconds(plan: Plan, left: int, measured: Measured, slots: int) -> tuple[float | None, str | None]:
    """Return the seconds to wait for trials without GPUs, `slots` at a time, and what they are based on."""
    resources = plan.sweep.resources
    if resources.gpus or not left or measured.gpu_seconds_per_trial is None:
        return None, None
    each = measured.gpu_seconds_per_trial / resources.ranks
    basis = f"about {format_duration(each)} each, as the {measured.trials} that are done took"
    return each * math.ceil(left / slots), basis


def measure(results: Iterable[Mapping[str, Any]]) -> Measured:
    """Return what the trials that were evaluated took."""
    evaluated = [result for result in results if result["status"] in EVALUATED]
    return Measured(len(evaluated), sum_gpu_seconds(evaluated))


def sum_gpu_seconds(results: Iterable[Mapping[str, Any]]) -> float:
    """Return the GPU-seconds of finished trials."""
    return sum(result.get("seconds", {}).get("total", 0.0) * count_gpus(result["config"]) for result in results)


def count_gpus(config: Mapping[str, Any]) -> float:
    """Return the GPUs of a trial's configuration; a rank without a GPU counts as one."""
    resources = config.get("resources", {})
    return resources.get("ranks", 1) * (resources.get("gpus") or 1)
