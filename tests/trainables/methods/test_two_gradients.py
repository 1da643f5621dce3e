"""Rules of two gradients against float64 statements of them as vectors, their published identities, and properties."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from scipy import optimize

from tests.trainables.methods.test_rectification import Pair, alone, check_told, normal, pairs, whole
from trainables.config.method_tables import RECTIFIERS
from trainables.methods import rectifiers
from trainables.methods.rectifiers.base import DEGENERATE_TOLERANCE, AdamSecondMoments, Outcome, TensorSegments

Vector = torch.Tensor
ROUNDING = 1e-5
"""Relative to the longer of the two gradients and the result."""
RULES = [name for name, row in RECTIFIERS.items() if "memory" in row.takes]
BY_TENSOR = [name for name in RULES if "scope" in RECTIFIERS[name].takes]
unhurried = settings(max_examples=60)


# each rule once more, as the papers state it, on whole vectors in float64


def off(vector: Vector, other: Vector) -> Vector:
    """What is left of a vector without its part along another one."""
    return vector - (vector @ other) / (other @ other) * other if other.any() else vector


def pcgrad(u: Vector, r: Vector) -> Vector:
    return r + (off(u, r) if u @ r < 0 else u)


def pcgrad_symmetric(u: Vector, r: Vector) -> Vector:
    return off(u, r) + off(r, u) if u @ r < 0 else u + r


def blur(u: Vector, r: Vector) -> Vector:
    return u + off(r, u)


def bisector(u: Vector, r: Vector) -> Vector:
    both = u / u.norm() + r / r.norm()
    return math.sqrt(2) * both / both.norm()


def mgda(u: Vector, r: Vector) -> Vector:
    return combine(minimise(lambda x: float(combine(x, u, r).norm())), u, r)


def cagrad(u: Vector, r: Vector) -> Vector:
    mean, kappa = (u + r) / 2, 0.5

    def objective(x: float) -> float:
        mixed = combine(x, u, r)
        return float(mixed @ mean + kappa * mean.norm() * mixed.norm())

    worst = combine(minimise(objective), u, r)
    return (mean + kappa * mean.norm() * worst / worst.norm()) / (1 + kappa)


def combine(x: float, u: Vector, r: Vector) -> Vector:
    return x * u + (1 - x) * r


def minimise(function: Callable[[float], float]) -> float:
    inside = optimize.minimize_scalar(function, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
    return min((0.0, 1.0, float(inside.x)), key=function)


def hamu_q(u: Vector, r: Vector, share: float = 1.0) -> Vector:
    """min <g_r, -g> subject to <g_u, g> >= q and |g| <= |g_r|, both gradients being at most 1 long."""
    gain = 0.5 * share
    if u @ r >= gain:
        return r
    if gain > u.norm() * r.norm():
        return gain / (u @ u) * u
    across = off(r, u)
    return gain / (u @ u) * u + (r @ r - gain**2 / (u @ u)).sqrt() * across / across.norm()


def hamu_u(u: Vector, r: Vector, share: float = 1.0) -> Vector:
    return hamu_q(r, u, share)


def gu(u: Vector, r: Vector) -> Vector:
    """Before Adam has moments."""
    return r + off(u, r)


def sago(u: Vector, r: Vector) -> Vector:
    return torch.tensor([b if a * b < 0 else a for a, b in zip(u.tolist(), r.tolist(), strict=True)], dtype=u.dtype)


STATED = {rule.__name__: rule for rule in (pcgrad, pcgrad_symmetric, blur, bisector, mgda, cagrad, gu, sago)}
STATED |= {
    name: lambda u, r, rule=rule: rule(clip(u), clip(r)) for name, rule in (("hamu_q", hamu_q), ("hamu_u", hamu_u))
}


def clip(vector: Vector) -> Vector:
    return vector / max(1.0, float(vector.norm()))


def apply(name: str, pair: Pair, gamma: float | None = None, **settings: Any) -> tuple[Vector, Outcome]:
    scope = {"scope": "global"} if name in BY_TENSOR else {}
    rectifier = rectifiers.find_rectifier_class(name)(gamma, **scope | settings)
    rectifier.take_retain_gradient(pair.retain)
    cuts = [[(number, 0, part.numel())] for number, part in enumerate(pair.gradient)]
    rectifier.segments = TensorSegments(len(cuts), cuts)
    gradient = [part.clone() for part in pair.gradient]
    outcome = rectifier.apply(gradient, alone)
    return torch.from_numpy(whole(gradient)), outcome


def vectors(pair: Pair) -> tuple[Vector, Vector]:
    return torch.from_numpy(whole(pair.gradient)), torch.from_numpy(whole(pair.retain))


def close(found: Vector, expected: Vector, u: Vector, r: Vector) -> bool:
    scale = max(float(each.norm()) for each in (u, r, expected))
    return float((found - expected).norm()) <= ROUNDING * scale


@pytest.mark.parametrize("conflict", [True, False])
@pytest.mark.parametrize("length", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_what_float64_says(name: str, length: float, conflict: bool) -> None:
    pair = normal(1)
    pair = Pair([length * part for part in pair.gradient], pair.retain if conflict else [-m for m in pair.retain])
    u, r = vectors(pair)
    found, told = apply(name, pair)
    assert close(found, STATED[name](u, r), u, r)
    assert (told.dot < 0) == conflict
    assert told.rectified == (conflict or name == "sago")
    check_told(told, u, r, found)


@unhurried
@pytest.mark.parametrize("name", RULES)
@given(pair=pairs())
def test_a_rule_is_what_float64_says_of_any_pair(name: str, pair: Pair) -> None:
    u, r = vectors(pair)
    assume(u.any() and r.any())
    sine = 1 - float(u @ r / u.norm() / r.norm()) ** 2
    assume(sine > 1e-4)  # nearer to one line fp32's rounding decides
    assert close(apply(name, pair)[0], STATED[name](u, r), u, r)


@pytest.mark.parametrize("name", BY_TENSOR)
def test_by_tensor_is_the_rule_on_each_tensor(name: str) -> None:
    pair = normal(2, (50, 40, 9))
    pair.gradient[1].neg_()
    pair.retain[2].zero_()
    found, told = apply(name, pair, scope="tensor")
    if name.startswith("hamu"):
        u, r = (clip(each) for each in vectors(pair))
        each = list(zip(u.split([50, 40, 9]), r.split([50, 40, 9]), strict=True))
        lengths = [float(a.norm() * b.norm()) for a, b in each]
        rule = {"hamu_q": hamu_q, "hamu_u": hamu_u}[name]
        parts = [
            rule(a, b, length / sum(lengths)) if length else {"hamu_q": b, "hamu_u": a}[name]
            for (a, b), length in zip(each, lengths, strict=True)
        ]
        expected = torch.cat(parts)
    else:
        expected = torch.cat([apply(name, Pair([g], [m]))[0] for g, m in zip(*pair, strict=True)])
    assert close(found, expected, *vectors(pair))
    conflicts = [float(g @ m) < 0 for g, m in zip(*pair, strict=True)]
    assert set(conflicts) == {True, False}
    assert told.conflict_share == pytest.approx(sum(conflicts) / 3)
    assert math.isnan(told.coefficient)


# promises: what the papers prove or their algebra gives (RECTIFIERS 0.2)


def test_sago_agrees_with_the_retain_gradient_in_every_element() -> None:
    pair = normal(6)
    pair.gradient[0][:2] = 0.0
    pair.gradient[0][2] = 1e-30  # whose product with the retain gradient is 0 in fp32
    pair.retain[0][2] = -1e-30
    u, r = vectors(pair)
    found, told = apply("sago", pair)
    assert bool((found * r >= 0).all())
    assert found[:3].tolist() == pytest.approx([0, 0, -1e-30])
    against = (u * r < 0) & (u != 0)
    assert told.conflict_share == pytest.approx(float(against.double().mean()), abs=1e-4)


def test_gu_disentangles_what_adam_makes_of_the_gradients() -> None:
    """In the coordinates z = g / sqrt(h), as derived: the step h^-1 g of the forget part is across the retain gradient.

    Adam's moments lie in other parts than the gradient, as with ZeRO.
    """
    pair = normal(14, (40, 60))
    moments = torch.rand(100, generator=torch.Generator().manual_seed(1)) ** 4 * 1e-3
    rectifier = rectifiers.find_rectifier_class("gu")()
    rectifier.take_retain_gradient(pair.retain)
    rectifier.metric = AdamSecondMoments(list(moments.split([10, 0, 75, 15])), 1e-4)
    gradient = [part.clone() for part in pair.gradient]
    rectifier.apply(gradient, alone)
    u, r = vectors(pair)
    h = moments.double().sqrt() + 1e-4
    found = torch.from_numpy(whole(gradient))
    expected = h.sqrt() * off(u / h.sqrt(), r / h.sqrt()) + r
    assert close(found, expected, u, r)
    assert not close(found, gu(u, r), u, r)
    assert abs(float((found - r) / h @ r)) <= ROUNDING * float((u / h).norm() * r.norm())


@pytest.mark.parametrize("name", [name for name in RULES if not name.startswith("hamu")])
def test_a_rule_does_not_depend_on_the_scale_of_both(name: str) -> None:
    """No epsilon beside squared norms: tiny gradients are treated as large ones."""
    pair, tiny = normal(7), Pair(*([part * 2.0**-40 for part in side] for side in normal(7)))
    found, small = apply(name, pair)[0], apply(name, tiny)[0]
    assert close(small * (1.0 if name == "bisector" else 2.0**40), found, *vectors(pair))


# a known conflict, traps of published code


@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", RULES)
def test_zero_gradients_have_finite_results(name: str, scope: str) -> None:
    pair = normal(9, (5, 3))
    chosen: dict[str, Any] = {"scope": scope} if name in BY_TENSOR else {}
    zero = [torch.zeros_like(part) for part in pair.retain]
    for one in (Pair(zero, zero), Pair(pair.gradient, zero), Pair(zero, pair.retain)):
        found, told = apply(name, one, **chosen)
        assert bool(found.isfinite().all())
        assert not told.degenerate
    assert not apply(name, Pair(zero, zero), **chosen)[0].any()
    unchanged = {"mgda": 0.0, "hamu_q": 0.0}
    unchanged |= dict.fromkeys(("sago", "gu", "blur", "pcgrad", "pcgrad_symmetric"), 1.0)
    if name in unchanged:
        found, _ = apply(name, Pair(pair.gradient, zero), **chosen)
        assert np.allclose(found, unchanged[name] * vectors(pair)[0])


@pytest.mark.parametrize("name", ["pcgrad_symmetric", "bisector", "mgda", "cagrad"])
def test_opposite_gradients_are_degenerate_and_left_alone(name: str) -> None:
    """What would be left is rounding."""
    pair = normal(10)
    against = [-part for part in pair.retain]
    found, told = apply(name, Pair(against, pair.retain))
    assert told.degenerate
    assert torch.equal(found, torch.from_numpy(whole(against)))
    noisy = apply(name, Pair([-part + 0.1 * part.abs() for part in pair.retain], pair.retain))
    assert not noisy[1].degenerate
    assert float(noisy[0].norm()) > DEGENERATE_TOLERANCE
