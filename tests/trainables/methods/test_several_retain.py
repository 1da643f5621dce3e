"""GEM and OrthoGrad against float64 and independent solvers, and what they promise."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.trainables.methods.test_rectification import alone, check_told, whole
from trainables.methods import rectifiers
from trainables.methods.rectifiers import Outcome

Parts = list[torch.Tensor]
unhurried = settings(max_examples=60)


def normal(seed: int, count: int, sizes: tuple[int, ...] = (5, 700, 30)) -> tuple[Parts, list[Parts]]:
    """A forget gradient against the first of `count` retain gradients, which have much in common."""
    generator = torch.Generator().manual_seed(seed)
    common = [torch.randn(size, generator=generator) for size in sizes]
    retain = [[part + torch.randn(part.shape, generator=generator) for part in common] for _ in range(count)]
    return [torch.randn(part.shape, generator=generator) - part for part in retain[0]], retain


@st.composite
def small(draw: st.DrawFn) -> tuple[Parts, list[Parts]]:
    """Few numbers, so that retain gradients are often parallel, zero, or as many as there are dimensions."""
    size, count = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    numbers = st.lists(st.integers(-8, 8).map(lambda k: k / 8), min_size=size, max_size=size)
    return [torch.tensor(draw(numbers))], [[torch.tensor(draw(numbers))] for _ in range(count)]


def apply(name: str, gradient: Parts, retain: list[Parts]) -> tuple[np.ndarray, Outcome]:
    rectifier = rectifiers.find_rectifier_class(name)(parts=len(retain))
    for one in retain:
        rectifier.take_retain_gradient(one)
    changed = [part.clone() for part in gradient]
    outcome = rectifier.apply(changed, alone)
    return whole(changed), outcome


def gem(u: np.ndarray, retain: np.ndarray) -> np.ndarray:
    """min ||x - u||^2 subject to <x, g_k> >= 0 for every k: the nearest feasible projection off any set of them."""
    projected = [
        u - retain[list(chosen)].T @ np.linalg.lstsq(retain[list(chosen)].T, u, rcond=None)[0]
        for count in range(1, len(retain) + 1)
        for chosen in itertools.combinations(range(len(retain)), count)
    ]
    feasible = [x for x in (u, *projected) if (retain @ x >= -1e-9).all()]
    return min(feasible, key=lambda x: np.linalg.norm(x - u))


def orthograd(u: np.ndarray, retain: np.ndarray) -> np.ndarray:
    axes, values, _ = np.linalg.svd(retain.T, full_matrices=False)
    axes = axes[:, values > 1e-3 * values.max(initial=0)]
    return u - axes @ (axes.T @ u) + retain.mean(0)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("name", ["gem", "orthograd"])
def test_it_is_what_float64_says(name: str, count: int) -> None:
    gradient, retain = normal(count, count, (5, 40))
    u, r = whole(gradient), np.stack([whole(one) for one in retain])
    found, told = apply(name, gradient, retain)
    assert found == pytest.approx({"gem": gem, "orthograd": orthograd}[name](u, r), abs=1e-4)
    check_told(told, u, r.mean(0), found)
    assert told.conflict_share == pytest.approx((r @ u < 0).mean())


ZERO_AMONG_OTHERS = [[0.0, -0.125, -0.125], [0.0, 0.0, 0.0], [0.0, 0.0, -0.125], [0.125, -0.125, 0.0]]
"""Retain gradients: rounding gave the second one a direction, of which GEM took 3e15 times as much."""


@unhurried
@given(small())
@example(([torch.tensor([0.0, 0.125, 0.0])], [[torch.tensor(one)] for one in ZERO_AMONG_OTHERS]))
def test_gem_leaves_no_conflict_and_is_never_longer(drawn: tuple[Parts, list[Parts]]) -> None:
    gradient, retain = drawn
    found, told = apply("gem", gradient, retain)
    assume(not told.degenerate)
    length = np.linalg.norm(whole(gradient))
    for one in retain:
        assert found @ whole(one) >= -1e-4 * length * np.linalg.norm(whole(one))
    assert np.linalg.norm(found) <= (1 + 1e-4) * length
    if all(whole(gradient) @ whole(one) >= 0 for one in retain):
        assert found == pytest.approx(whole(gradient), abs=1e-12)
        assert not told.rectified


@unhurried
@given(small())
def test_orthograds_forget_part_is_across_every_retain_gradient(drawn: tuple[Parts, list[Parts]]) -> None:
    gradient, retain = drawn
    found, told = apply("orthograd", gradient, retain)
    assume(not told.degenerate)
    across = found - np.mean([whole(one) for one in retain], 0)
    longest = max(np.linalg.norm(whole(one)) for one in [gradient, *retain])
    for one in retain:
        assert abs(across @ whole(one)) <= 1e-3 * longest**2


@pytest.mark.parametrize("length", [1.0, 1e-4, 1e-8])
def test_gem_counts_the_direction_of_a_short_retain_gradient(length: float) -> None:
    gradient, retain = [torch.tensor([-1.0, -1.0, 1.0])], [[torch.tensor([1.0, 0, 0])], [torch.tensor([0, length, 0])]]
    assert apply("gem", gradient, retain)[0] == pytest.approx([0, 0, 1], abs=1e-6)


@pytest.mark.parametrize("name", ["gem", "orthograd"])
def test_equal_and_zero_retain_gradients_count_once_or_not_at_all(name: str) -> None:
    """Retain rows are drawn with replacement, so that parts may be equal."""
    gradient, retain = normal(4, 1)
    zero = [torch.zeros_like(part) for part in gradient]
    once = apply(name, gradient, retain)[0]
    assert apply(name, gradient, [retain[0], retain[0], retain[0]])[0] == pytest.approx(once, abs=1e-5)
    found = apply(name, gradient, [zero, retain[0]])[0]
    added = 0.5 * whole(retain[0]) if name == "orthograd" else 0.0
    assert found == pytest.approx(once - added, abs=1e-5)
    assert np.array_equal(apply(name, gradient, [zero, zero])[0], whole(gradient))
    assert np.isfinite(apply(name, zero, retain)[0]).all()


def test_the_next_steps_gradients_replace_those_of_the_last() -> None:
    gradient, retain = normal(6, 4)
    rectifier = rectifiers.find_rectifier_class("gem")(parts=2)
    for one in retain:
        rectifier.take_retain_gradient(one)
        for part in one:
            part.mul_(1)  # what it keeps is its own
    assert rectifier.state() == []
    changed = [part.clone() for part in gradient]
    rectifier.apply(changed, alone)
    assert whole(changed) == pytest.approx(apply("gem", gradient, retain[2:])[0])
    retain[3][0][0] = math.nan
    rectifier.take_retain_gradient(retain[2])
    rectifier.take_retain_gradient(retain[3])
    with pytest.raises(FloatingPointError, match="retain gradient is nan"):
        rectifier.apply(changed, alone)
