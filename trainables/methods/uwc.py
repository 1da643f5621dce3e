"""UWC (Wang et al., 2024b): theta(w) = w theta_u + (1 - w) theta_org, with w found so that MU is as high as asked.

The paper calls w alpha. w = 1 is the unlearned model, w = 0 the target model.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from trainables.config.settings import Calibration


def search_mixture(
    goal: float, known: dict[float, float], evaluate: Callable[[float], float], settings: Calibration
) -> dict[str, Any]:
    """Bisect for MU(w) = goal; add what is evaluated to `known`, MU by w, which holds w = 0 and w = 1.

    Where MU is not monotone there may be several brackets: the one with the largest w is kept, which forgets most.
    An unlearned model at or above the goal needs no mixing. Returns the mixture's `weight`, whether the goal is
    `reached`, the `evaluations` spent and the `bracket`: MU(low) >= goal > MU(high), (1, 1) without mixing.
    """
    spent = 0
    while True:
        low, high = find_last_crossing_bracket(known, goal)
        weight = high if abs(known[high] - goal) < abs(known[low] - goal) else low
        reached = low == 1 or abs(known[weight] - goal) <= settings.tolerance
        if reached or spent == settings.evaluations:
            return {"goal": goal, "weight": weight, "reached": reached, "evaluations": spent, "bracket": (low, high)}
        middle = (low + high) / 2
        known[middle] = evaluate(middle)
        spent += 1


def find_last_crossing_bracket(known: dict[float, float], goal: float) -> tuple[float, float]:
    """Return the neighbours with the largest w between which MU falls below `goal`; equal ones where none falls.

    Raises ValueError where all are below it.
    """
    high = max(known)
    for low in sorted(known, reverse=True):
        if known[low] >= goal:
            return low, high
        high = low
    raise ValueError(f"no mixture reaches {goal}: the target model itself is below it")


def is_utility_monotone(known: dict[float, float], tolerance: float) -> bool:
    """Return whether MU never rises by more than `tolerance` as w grows."""
    utilities = [known[weight] for weight in sorted(known)]
    return all(value <= low + tolerance for value, low in zip(utilities, accumulate(utilities, min), strict=True))
