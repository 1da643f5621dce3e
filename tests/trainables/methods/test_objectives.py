"""Each objective's loss and gradient against naive_objectives.py, on rows of unequal lengths."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.support import naive_objectives as naive
from tests.support.naive_objectives import Row, leaves, of_objective, of_term, rows, sums
from trainables.config.method_tables import METHODS, MethodRow
from trainables.config.settings import Objective as Settings
from trainables.methods import method_constants, objectives
from trainables.methods.method_constants import ObjectiveConstants

TOLERANCE = 1e-5
"""Losses are taken in fp32."""

REDUCTIONS = ("labels", "attended", "all_positions", "all_positions_fixed_pad")
CONSTANTS = ObjectiveConstants(
    beta=0.7,
    margin=0.3,
    forget_coefficient=0.6,
    retain_coefficient=1.7,
    kl_coefficient=2.5,
    layer=naive.LAYER,
    steering=3.0,
    alpha=40.0,
    beta2=0.4,
)
RETAIN = ((5, 2), (11, 4), (8, 7), (3, 1))
CASES = [(name, CONSTANTS) for name in naive.NAIVE]
CASES += [("npo_kl", replace(CONSTANTS, kl_reduction=reduction)) for reduction in REDUCTIONS]
CASES += [("undial", replace(CONSTANTS, kl_reduction=reduction)) for reduction in REDUCTIONS]
CASES += [("rmu", replace(CONSTANTS, rmu_reduction=reduction)) for reduction in ("all_positions", "labels")]


def forget_rows(method: str, seed: int, lengths: Any = naive.UNEQUAL) -> list[Row]:
    """Rows, with others as their other answers, of the lengths in another order, where an objective reads these."""
    made = rows(seed, lengths)
    return naive.with_others(made, rows(seed + 100, lengths[::-1])) if method.startswith("idk") else made


def gradients(loss: torch.Tensor, variables: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, variables, allow_unused=True, materialize_grads=True))


def compare(found: torch.Tensor, wanted: torch.Tensor, variables: list[torch.Tensor]) -> None:
    assert found.item() == pytest.approx(wanted.item(), rel=TOLERANCE, abs=TOLERANCE)
    for one, other in zip(gradients(found, variables), gradients(wanted, variables), strict=True):
        assert torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * float(other.abs().max()))


@pytest.mark.parametrize(("size", "world"), [(None, 1), (1, 2), (2, 1), (4, 1)])
@pytest.mark.parametrize(("method", "c"), CASES)
def test_loss_and_gradient_row_by_row(method: str, c: ObjectiveConstants, size: int | None, world: int) -> None:
    """In one piece, in micro-batches, over two ranks; nothing reaches the frozen model."""
    forget, retain = forget_rows(method, 0), rows(1, RETAIN)
    found = of_objective(objectives.make_objective(method, c), forget, retain, size, world)
    if method == "rmu":
        steering = objectives.make_objective("rmu", replace(c, rmu_reduction="labels")).terms[0]
        expected = naive.rmu(forget, retain, c, naive.control(steering))
    else:
        expected = naive.NAIVE[method](forget, retain, c)
    compare(found, expected, leaves(forget, naive.others_of(forget), retain))


def test_every_method_is_compared() -> None:
    assert {method for method, _ in CASES} == {"nll", *(row.name for row in METHODS.values() if not row.strength)}
    assert {c.kl_reduction for method, c in CASES if method == "npo_kl"} == set(get_args(method_constants.KLReduction))


shapes = st.lists(
    st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), min_size=1, max_size=6
)


@settings(max_examples=60)
@given(shapes, st.integers(1, 6), st.sampled_from(CASES))
def test_any_split_into_micro_batches_adds_up(
    shape: list[tuple[int, int]], size: int, case: tuple[str, ObjectiveConstants]
) -> None:
    forget, retain = forget_rows(case[0], 3, shape), rows(4, shape[::-1])
    objective = objectives.make_objective(*case)
    whole = of_objective(objective, forget, retain)
    compare(of_objective(objective, forget, retain, size), whole, leaves(forget, naive.others_of(forget), retain))


def test_npo_weighs_rows_by_what_is_left_of_them() -> None:
    """The gradient of row i is that of GA on its sum times 2 pi^beta / (pi^beta + pi0^beta): none once forgotten."""
    beta, batch = 0.5, rows(8)
    known = sums(batch).detach() - torch.tensor([0.0, 2.0, -2.0, 400.0, -400.0, 0.0])
    (term,) = objectives.make_objective("npo", ObjectiveConstants(beta=beta)).terms
    found = gradients(of_term(term, batch, known.tolist()), [row.logits for row in batch])
    for row, weight, gradient in zip(batch, (1, 0.537883, 1.462117, 0, 2, 1), found, strict=True):
        (wanted,) = gradients(-weight * sums([row]).sum() / len(batch), [row.logits])
        assert torch.allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_ceu_leaves_an_answer_of_one_token_alone_and_is_finite_for_a_certain_one() -> None:
    single = rows(0, ((4, 3), (7, 6)))
    found = of_objective(objectives.make_objective("ceu", ObjectiveConstants()), single, [])
    assert found.item() == 0
    assert all(not gradient.any() for gradient in gradients(found, [row.logits for row in single]))
    (certain,) = rows(0, ((4, 2),))
    with torch.no_grad():
        certain.logits[2, certain.example.input_ids[3]] = 200.0  # p = 1 in any precision
    found = of_objective(objectives.make_objective("ceu", ObjectiveConstants()), [certain], [])
    assert 150 < found.item() < 250
    assert torch.isfinite(gradients(found, [certain.logits])[0]).all()


def test_a_multiplier_grows_above_its_bound_and_is_never_negative() -> None:
    dual = objectives.make_objective(
        "pdu", ObjectiveConstants(retain_coefficient=2.0, retain_bound=0.5, dual_rate=3.0)
    ).dual
    assert dual is not None
    assert dual.start == 2.0
    assert dual.update(2.0, 0.75) == 2.75
    assert dual.update(2.0, 0.25) == 1.25
    assert dual.update(0.5, 0.0) == 0.0


@pytest.mark.parametrize("steering", [6.5, 2.0])
def test_rmus_control_vector_is_uniform_with_the_norm_of_steering(steering: float) -> None:
    chosen = ObjectiveConstants(layer=naive.LAYER, steering=steering, rmu_reduction="labels")
    made = [naive.control(objectives.make_objective("rmu", chosen, seed).terms[0], 4096) for seed in (0, 0, 1)]
    assert torch.equal(made[0], made[1])
    assert not torch.allclose(made[0], made[2], atol=1e-3)
    for vector in made:
        assert float(vector.norm()) == pytest.approx(steering, rel=1e-5)
        assert float(vector.min()) > -1e-6
        assert stats.kstest((vector / vector.max()).numpy(), "uniform").pvalue > 0.01


class Recorded:
    """Constants that note which of them are read."""

    def __init__(self, constants: ObjectiveConstants) -> None:
        self.constants = constants
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.constants, name)


@pytest.mark.parametrize("row", [row for row in METHODS.values() if not row.strength], ids=lambda row: row.name)
@pytest.mark.parametrize("preset", ["paper", "open-unlearning"])
def test_a_row_says_what_its_objective_needs_and_reads(row: MethodRow, preset: Any) -> None:
    recorded = Recorded(method_constants.resolve_constants(row.name, Settings(preset=preset), "forget05"))
    made = objectives.make_objective(row.name, recorded)  # type: ignore[arg-type]
    plain_retain, weight = any(term.side == "retain" and not term.frozen for term in made.terms), recorded.constants
    assert plain_retain == ("retain_loss" in row.needs and float(weight.retain_coefficient) > 0)
    assert made.needs_reference == ("reference_sums" in row.needs)
    assert made.needs_frozen_model == ("frozen_model" in row.needs)
    frozen = {term.side for term in made.terms if term.frozen}
    assert frozen == ({"forget" if "frozen_on_forget" in row.needs else "retain"} if made.needs_frozen_model else set())
    assert made.needs_retain == (plain_retain or "retain" in frozen)
    assert made.needs_retain == method_constants.has_retain_term(row.name, Settings(preset=preset), "forget05")
    assert ("both" in {term.answers for term in made.terms}) == ("pairs" in row.needs)
    assert any(term.answers != "own" for term in made.terms) == ("idk" in row.reads)
    assert (made.dual is not None) == ("retain_multiplier" in row.needs)
    assert recorded.read == set(row.reads) - {"idk"}
    assert {term.layer for term in made.terms} == ({7} if row.steers else {None})
    distributions = any(term.frozen and term.logits != "none" for term in made.terms)
    assert distributions == ("distributions" in row.needs)
