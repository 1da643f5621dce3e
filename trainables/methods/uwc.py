"""UWC (Wang et al., 2024b): theta(w) = w theta_u + (1 - w) theta_org, with w found so that MU is as high as asked.

The paper calls w alpha. w = 1 is the unlearned model, w = 0 the target model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from trainables.config.settings import Calibration


@dataclass(frozen=True)
class ModelMixture:
    """The mixture for one target. `bracket`: MU(low) >= goal > MU(high), (1, 1) where no mixing is needed."""

    target: float
    goal: float
    weight: float
    reached: bool
    evaluations: int
    bracket: tuple[float, float]


def search_mixture(
    target: float, goal: float, known: dict[float, float], evaluate: Callable[[float], float], settings: Calibration
) -> ModelMixture:
    """Bisect for MU(w) = goal; add what is evaluated to `known`, MU by w, which holds w = 0 and w = 1.

    Where MU is not monotone there may be several brackets: the one with the largest w is kept, which forgets most.
    An unlearned model at or above the goal needs no mixing.
    """
    spent = 0
    while True:
        low, high = find_largest_weight_bracket(known, goal)
        weight = high if abs(known[high] - goal) < abs(known[low] - goal) else low
        reached = low == 1 or abs(known[weight] - goal) <= settings.tolerance
        if reached or spent == settings.evaluations:
            return ModelMixture(target, goal, weight, reached, spent, (low, high))
        middle = (low + high) / 2
        known[middle] = evaluate(middle)
        spent += 1


def find_largest_weight_bracket(known: dict[float, float], goal: float) -> tuple[float, float]:
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
