"""How long the rest of a plan takes, told before it runs: GPU-hours, and without GPUs the time that one waits."""

from __future__ import annotations

import math

from platform.plan.value import Plan
from platform.state import history as histories
from trainables.common.cli import format_amount, format_count, format_duration


def gpu_hours(plan: Plan) -> tuple[float | None, str | None]:
    """GPU-hours and what they are reckoned from: the trials that are done tell better than the estimate of all."""
    measured = plan.history.hours(plan.outstanding) if plan.sweep.resources.gpus and plan.outstanding else None
    if measured is None:
        return plan.costs.hours, plan.costs.basis or None
    estimate = "" if plan.costs.hours is None else f"; the estimate of all was {format_amount(plan.costs.hours)}"
    return measured, f"for the {plan.outstanding} left, as the {plan.history.evaluated} that are done took{estimate}"


def seconds(plan: Plan, slots: int) -> tuple[float | None, str | None]:
    """What the trials left take without GPUs, `slots` at a time, and what that rests on: not the preparation."""
    resources, measured = plan.sweep.resources, plan.history.each
    if resources.gpus or not plan.outstanding:
        return None, None
    if measured is not None:
        each, basis = measured / resources.ranks, f"as the {plan.history.evaluated} that are done took"
    elif plan.sweep.trial_seconds is not None:
        each, basis = plan.sweep.trial_seconds, "the mean of this sweep's own trials and models on one core"
    else:
        return None, None
    return each * math.ceil(plan.outstanding / slots), f"about {format_duration(each)} each, {basis}"


def told(plan: Plan, slots: int, *, missing: bool = True) -> str | None:
    """The estimate as a line of a dry run; None: nothing is left, or nobody knows the GPU-hours.

    `missing`: something that trials share is still to be made.
    """
    hours, basis = gpu_hours(plan)
    if hours is not None:
        return f"about {format_amount(hours)} GPU-hours ({basis})"
    if plan.sweep.resources.gpus or not plan.outstanding:
        return None
    wait, basis = seconds(plan, slots)
    if wait is None:
        return f"time: not known before {histories.ENOUGH} trials are done; a dry run tells it then"
    made = "; what trials share is made before, on top of that" if missing else ""
    count = format_count(plan.outstanding, "trial")
    return f"time: about {format_duration(wait)} for {count}, {slots} at a time ({basis}{made})"
