"""The time that the rest of a plan takes: GPU-hours, or without GPUs the time to wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

from platform.plan.plan import Plan
from trainables.common.cli import format_amount, format_count, format_duration

ENOUGH = 3
"""So many trials that were evaluated are a better measure of the rest than any estimate."""


@dataclass(frozen=True)
class Measured:
    """What the trials that were evaluated took; a rank without a GPU counts as one GPU."""

    trials: int = 0
    gpu_seconds: float = 0.0

    @property
    def each(self) -> float | None:
        """GPU-seconds of a trial, on average; None if too few are done."""
        return self.gpu_seconds / self.trials if self.trials >= ENOUGH else None


def estimate_gpu_hours(plan: Plan, left: int, measured: Measured) -> tuple[float | None, str | None]:
    """Return the GPU-hours of the trials that are left, measured if enough are done, and what they are based on."""
    if not (plan.sweep.resources.gpus and left) or measured.each is None:
        return plan.costs.hours, plan.costs.basis
    estimate = "" if plan.costs.hours is None else f"; the estimate of all was {format_amount(plan.costs.hours)}"
    return measured.each * left / 3600, f"for the {left} left, as the {measured.trials} that are done took{estimate}"


def estimate_seconds(plan: Plan, left: int, measured: Measured, slots: int) -> tuple[float | None, str | None]:
    """Return the seconds of the trials left without GPUs, `slots` at a time and without the preparation, and why."""
    resources = plan.sweep.resources
    each, basis = plan.sweep.trial_seconds, "the mean of this sweep's own trials and models on one core"
    if measured.each is not None:
        each, basis = measured.each / resources.ranks, f"as the {measured.trials} that are done took"
    if resources.gpus or not left or each is None:
        return None, None
    return each * math.ceil(left / slots), f"about {format_duration(each)} each, {basis}"


def describe_estimate(plan: Plan, left: int, measured: Measured, slots: int, *, missing: bool = True) -> str | None:
    """Return the estimate as a line, None if nothing is left or the GPU-hours are not known.

    `missing`: something that trials share is still to be made.
    """
    hours, basis = estimate_gpu_hours(plan, left, measured)
    if hours is not None:
        return f"about {format_amount(hours)} GPU-hours ({basis})"
    if plan.sweep.resources.gpus or not left:
        return None
    wait, basis = estimate_seconds(plan, left, measured, slots)
    if wait is None:
        return f"time: not known before {ENOUGH} trials are done; a dry run tells it then"
    made = "; what trials share is made before, on top of that" if missing else ""
    return f"time: about {format_duration(wait)} for {format_count(left, 'trial')}, {slots} at a time ({basis}{made})"
