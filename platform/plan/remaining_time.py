"""The time that a plan's outstanding trials take, by the trials that are done or else by the plan's own estimate.

It is in GPU-hours, or without GPUs in seconds of waiting. Here is also what the trials that are done took.
"""

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
    """Return the GPU-hours that are left and what they are based on.

    While fewer than ENOUGH_TRIALS are done it is the plan's estimate for all trials.
    """
    if not (plan.sweep.resources.gpus and left) or measured.gpu_seconds_per_trial is None:
        return plan.costs.hours, plan.costs.basis
    basis = f"for the {left} left, as the {measured.trials} that are done took"
    if plan.costs.hours is not None:
        basis += f"; the estimate of all was {format_amount(plan.costs.hours)}"
    return measured.gpu_seconds_per_trial * left / 3600, basis


def estimate_seconds(plan: Plan, left: int, measured: Measured, slots: int) -> tuple[float | None, str | None]:
    """Return the seconds to wait for the trials that are left, and what they are based on; None for trials with GPUs.

    `slots` trials run at a time. What trials share is made before, and is not counted.
    """
    resources = plan.sweep.resources
    each, basis = plan.sweep.trial_seconds, "the mean of this sweep's own trials and models on one core"
    if measured.gpu_seconds_per_trial is not None:
        each, basis = measured.gpu_seconds_per_trial / resources.ranks, f"as the {measured.trials} that are done took"
    if resources.gpus or not left or each is None:
        return None, None
    return each * math.ceil(left / slots), f"about {format_duration(each)} each, {basis}"


def measure(results: Iterable[Mapping[str, Any]]) -> Measured:
    """Return what the trials that were evaluated took."""
    evaluated = [result for result in results if result["status"] in EVALUATED]
    return Measured(len(evaluated), sum_gpu_seconds(evaluated))


def sum_gpu_seconds(results: Iterable[Mapping[str, Any]]) -> float:
    """Return the GPU-seconds of finished trials."""
    timed = (result for result in results if "seconds" in result)
    return sum(result["seconds"].get("total", 0.0) * count_gpus(result["config"]) for result in timed)


def count_gpus(config: Mapping[str, Any]) -> float:
    """Return the GPUs of a trial's configuration; a rank without a GPU counts as one."""
    resources = config.get("resources", {})
    return resources.get("ranks", 1) * (resources.get("gpus") or 1)
