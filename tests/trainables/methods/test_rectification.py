"""Rectification against what the paper proves of it, an independent solver, and float64 numpy.

The shards of the property tests hold multiples of 1/256 that are small enough for every sum of products to be exact
in fp32, so that the sign of a dot product is never a matter of rounding.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize

from trainables.config.method_tables import RECTIFIERS, RETAIN_PASS
from trainables.methods import rectifiers
from trainables.methods.rectifiers import GRU, ClippingRectifier, Outcome
from trainables.methods.rectifiers.two_gradients import TwoGradients

ROUNDING = 1e-6
"""Relative to ||g|| (or ||g|| ||m||): some ten roundings of fp32, whose unit is 6e-8."""

Array = np.ndarray

unhurried = settings(max_examples=60)


class Pair(NamedTuple):
    """An objective's gradient and a retain gradient, each as several flat tensors."""

    gradient: list[torch.Tensor]
    retain: list[torch.Tensor]


@st.composite
def pairs(draw: st.DrawFn, most: int = 9) -> Pair:
    """Up to four tensors of up to `most` numbers each."""
    sizes = draw(st.lists(st.integers(1, most), min_size=1, max_size=4))
    numbers = st.integers(-256, 256).map(lambda k: k / 256)
    sides = [draw(st.lists(numbers, min_size=sum(sizes), max_size=sum(sizes))) for _ in range(2)]
    return Pair(*(list(torch.tensor(side).split(sizes)) for side in sides))


def normal(seed: int, sizes: tuple[int, ...] = (5, 70_000, 1300)) -> Pair:
    """A pair that is in conflict, of ordinary size."""
    generator = torch.Generator().manual_seed(seed)
    retain = [torch.randn(size, generator=generator) * 0.02 for size in sizes]
    return Pair([torch.randn(part.shape, generator=generator) * 0.1 - part for part in retain], retain)


def whole(shard: Sequence[torch.Tensor]) -> Array:
    return np.concatenate([part.double().numpy() for part in shard])


def alone(value: torch.Tensor) -> torch.Tensor:
    """The reduction where there is one rank."""
    return value


def apply(pair: Pair, tau: float | None = None) -> tuple[Array, Outcome]:
    """The rectified gradient, with the retain gradient itself as the average."""
    rectifier = GRU(gamma=None, tau=tau)
    rectifier.take_retain_gradient(pair.retain)
    gradient = [part.clone() for part in pair.gradient]
    outcome = rectifier.apply(gradient, alone)
    return whole(gradient), outcome


def check_told(told: Outcome, g: Any, m: Any, found: Any) -> None:
    """Compare lengths, product and cosines with those of float64 vectors."""
    lengths = tuple(float(np.linalg.norm(each)) for each in (g, m, found))
    assert (told.grad_norm, told.average_norm, told.rectified_norm) == pytest.approx(lengths, rel=1e-5)
    assert told.dot == pytest.approx(float(g @ m), rel=1e-5)
    assert told.cos_before == pytest.approx(float(g @ m) / lengths[0] / lengths[1], abs=1e-5)
    assert told.cos_after == pytest.approx(float(found @ m) / lengths[2] / lengths[1], abs=1e-5)


@settings(max_examples=50)
@given(pairs(most=2))
def test_it_solves_the_quadratic_programme(pair: Pair) -> None:
    """Eq. 4 of the paper: min ||x - g||^2 subject to <x, m> >= 0."""
    g, m = whole(pair.gradient), whole(pair.retain)
    found, outcome = apply(pair)
    assume(m.any() and not outcome.degenerate)
    solved = optimize.minimize(
        lambda x: ((x - g) ** 2).sum(),
        np.zeros_like(g),
        jac=lambda x: 2 * (x - g),
        constraints={"type": "ineq", "fun": lambda x: x @ m, "jac": lambda x: m},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 200},
    )
    assert solved.success, solved.message
    assert found == pytest.approx(solved.x, abs=1e-5)
    if g @ m >= 0:
        assert np.array_equal(found, g)
        assert (outcome.rectified, outcome.coefficient) == (False, 0)
        assert (outcome.cos_after, outcome.rectified_norm) == (outcome.cos_before, outcome.grad_norm)


@unhurried
@given(pairs(), st.sampled_from([0.01, 0.1, 0.5, 2.0]))
def test_clip_sets_the_norm_to_tau_and_keeps_the_direction(pair: Pair, tau: float) -> None:
    free, outcome = apply(pair)
    length = np.linalg.norm(free)
    assume(not outcome.degenerate and length > 0.05 * outcome.grad_norm)  # otherwise rounding has a say
    found, told = apply(pair, tau)
    assert np.linalg.norm(found) == pytest.approx(min(tau, length), rel=2e-5)
    assert told.rectified_norm == pytest.approx(np.linalg.norm(found), rel=2e-5)
    assert found == pytest.approx(told.clip_scale * free, abs=ROUNDING)
    assert (told.clip_scale < 1) == (outcome.rectified_norm > tau)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tau", [None, 1.0])
def test_what_it_tells_is_what_float64_says(seed: int, tau: float | None) -> None:
    pair = normal(seed)
    g, m = whole(pair.gradient), whole(pair.retain)
    found, told = apply(pair, tau)
    expected = g - (g @ m) / (m @ m) * m
    scale = 1.0 if tau is None else tau / np.linalg.norm(expected)
    assert told.rectified
    assert found == pytest.approx(scale * expected, abs=ROUNDING)
    check_told(told, g, m, found)
    assert told.coefficient == pytest.approx(-(g @ m) / (m @ m), rel=1e-5)
    assert told.clip_scale == pytest.approx(scale, rel=ROUNDING)


@pytest.mark.parametrize("gamma", [0.01, 0.5, 0.99, 1.0, None])
def test_moving_average_is_its_closed_form(gamma: float | None) -> None:
    """m_k = sum_j gamma (1 - gamma)^(k - j) g_j, in fp32 and no view of what is handed over; gamma None is 1."""
    rectifier = GRU(gamma, tau=None)
    gradients = [[part.bfloat16() for part in normal(seed, (4, 6)).retain] for seed in range(7)]
    for gradient in gradients:
        handed = [part.clone() for part in gradient]
        rectifier.take_retain_gradient(handed)
        for part in handed:
            part.zero_()
    assert all(part.dtype == torch.float32 for part in rectifier.average)
    gamma = 1.0 if gamma is None else gamma
    expected = sum(gamma * (1 - gamma) ** (6 - j) * whole(gradient) for j, gradient in enumerate(gradients))
    assert whole(rectifier.average) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("noise", "degenerate"), [(0.0, True), (1e-4, True), (0.05, False)])
def test_opposite_gradients_are_degenerate_and_left_alone(noise: float, degenerate: bool) -> None:
    """Theorem 1a: at cos = -1 nothing of the gradient would remain; the loop skips the step."""
    pair = normal(0)
    against = [-3 * part + noise * part.abs() for part in pair.retain]
    found, outcome = apply(Pair(against, pair.retain))
    assert outcome.degenerate == degenerate
    assert outcome.cos_before < -0.999
    assert outcome.rectified_norm == pytest.approx(0 if degenerate else np.linalg.norm(found), rel=0.01)
    assert np.array_equal(found, whole(against)) == degenerate


def test_a_zero_retain_gradient_changes_nothing_and_a_zero_gradient_stays_zero() -> None:
    pair, zero = normal(0), [torch.zeros_like(part) for part in normal(0).retain]
    found, outcome = apply(Pair(pair.gradient, zero))
    assert np.array_equal(found, whole(pair.gradient))
    assert (outcome.cos_before, outcome.cos_after, outcome.average_norm) == (0, 0, 0)
    assert not outcome.rectified
    assert not outcome.degenerate
    found, outcome = apply(Pair(zero, pair.retain), tau=1.0)
    assert not found.any()
    assert (outcome.grad_norm, outcome.rectified_norm, outcome.cos_before, outcome.clip_scale) == (0, 0, 0, 1)


@unhurried
@given(pairs(), st.sampled_from([0.01, 0.5, 3.0]))
def test_plain_with_tau_is_gradient_clipping(pair: Pair, tau: float) -> None:
    g = whole(pair.gradient)
    norm = float(np.linalg.norm(g))
    told = ClippingRectifier(tau=tau).apply(pair.gradient, alone)
    assert whole(pair.gradient) == pytest.approx(g * min(1.0, tau / norm) if norm else g, abs=1e-7)
    assert told.grad_norm == pytest.approx(norm)
    assert told.rectified_norm == pytest.approx(min(norm, tau))
    assert math.isnan(told.cos_before)
    assert not told.rectified


def test_names_find_rectifiers_that_need_what_their_rows_say() -> None:
    assert vars(rectifiers.find_rectifier_class("agem")())["gamma"] == 1.0
    for name, row in RECTIFIERS.items():
        rectifier = rectifiers.find_rectifier_class(name)(0.3 if name == "gru" else None, 2.0)
        assert rectifier.needs_retain == (RETAIN_PASS in row.needs)
        assert rectifier.adds_retain == row.adds_retain
        assert rectifier.by_tensor == (row.scope == "tensor")
        if "scope" in row.takes:
            assert isinstance(rectifier, TwoGradients)
            assert rectifiers.find_rectifier_class(name)(scope="tensor").by_tensor
