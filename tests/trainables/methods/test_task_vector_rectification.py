"""Task vectors: the rectification against its constraint, TRU and TV against a naive re-statement, what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.naive_vectors import Naive, make, recipe
from trainables.common.errors import InputError
from trainables.methods import method_constants, task_vector_rectification
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.trial import direction_files

SIZES = (3, 4)
VECTOR = arrays.arrays(np.float64, sum(SIZES), elements=st.floats(-10, 10, width=16))


def parts(vector: np.ndarray) -> list[torch.Tensor]:
    return list(torch.from_numpy(vector).float().split(SIZES))


def rectified(vector: np.ndarray, gradient: np.ndarray, normalise: Any = "whole") -> tuple[Any, torch.Tensor]:
    """The outcome, and the unit vector it stands for."""
    outcome = task_vector_rectification.decide_vector_rectification(
        task_vector_rectification.compute_tensor_products(parts(vector), parts(gradient)), normalise
    )
    made = [
        (t + outcome.coefficient * g) * scale
        for t, g, scale in zip(parts(vector), parts(gradient), outcome.scales, strict=True)
    ]
    return outcome, torch.cat(made).double()


@given(VECTOR, VECTOR)
def test_rectified_vector_has_length_one_and_no_negative_component_along_the_gradient(
    vector: np.ndarray, gradient: np.ndarray
) -> None:
    outcome, unit = rectified(vector, gradient)
    length = float(np.linalg.norm(gradient))
    if outcome.rectified_norm > 1e-2 * outcome.norm > 0:
        assert float(unit.norm()) == pytest.approx(1, rel=1e-3)
    assert float(unit @ torch.from_numpy(gradient)) >= -1e-3 * length
    if vector @ gradient >= 0:
        assert outcome.coefficient == 0
        assert not outcome.rectified


@given(VECTOR, VECTOR)
def test_rectification_is_the_nearest_vector_that_the_constraint_allows(
    vector: np.ndarray, gradient: np.ndarray
) -> None:
    """min ||T~ - T|| with <T~, G> >= 0: allowed itself, and no other allowed point is nearer."""
    outcome, _ = rectified(vector, gradient)
    found = vector + outcome.coefficient * gradient
    assert found @ gradient >= -1e-3 * (1 + float(np.linalg.norm(gradient)))
    distance = float(np.linalg.norm(found - vector))
    for other in np.random.default_rng(0).normal(size=(20, sum(SIZES))) * 10:
        allowed = other if other @ gradient >= 0 else -other
        assert distance <= float(np.linalg.norm(allowed - vector)) + 1e-3


def test_each_tensor_has_length_one_per_tensor_and_a_zero_one_stays_zero() -> None:
    vector = np.array([3, 4, 0, 0, 0, 0, 0], dtype=float)
    outcome, unit = rectified(vector, np.zeros(7), "per_tensor")
    assert unit.tolist() == pytest.approx([0.6, 0.8, 0, 0, 0, 0, 0])
    assert math.isnan(outcome.cos)
    assert outcome.scales[1] == 0


def test_batches_divide_the_points_by_seed() -> None:
    made = direction_files.divide_rows_into_batches(10, 4, seed=1)
    assert sorted(row for batch in made for row in batch) == list(range(10))
    assert {len(batch) for batch in made} == {2, 3}
    assert made == direction_files.divide_rows_into_batches(10, 4, seed=1)
    assert made != direction_files.divide_rows_into_batches(10, 4, seed=2)


@pytest.fixture(scope="module")
def naive(trial_inputs: Any) -> Naive:
    return Naive(trial_inputs, recipe(trial_inputs))


@pytest.fixture(scope="module")
def pairs(naive: Naive) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return naive.pairs(direction_files.divide_rows_into_batches(len(naive.examples), 5, 2))


SETTINGS = [
    ({}, 1e-4),
    ({"normalise": "per_tensor"}, 1e-3),
    ({"optimizer": "adamw", "lr": 1e-3, "normalise": "per_tensor", "steps": 2}, 2e-2),
]
"""And how far fp32 may be off: short tensors of length 1 bring out the rounding of large weights' small changes, and
Adam turns the rounding of near-zero gradients into whole steps."""


@pytest.mark.parametrize(("settings", "tolerance"), SETTINGS)
def test_tru_is_the_naive_mean_of_rectified_unit_vectors(
    trial_inputs: Any, naive: Naive, pairs: Any, tmp_path: Path, settings: dict[str, Any], tolerance: float
) -> None:
    direction = recipe(trial_inputs, **settings)
    if "optimizer" in settings:
        naive = Naive(trial_inputs, direction)
        pairs = naive.pairs(direction_files.divide_rows_into_batches(len(naive.examples), 5, 2))
    found = make(direction, tmp_path, micro_batch=2)
    units = [naive.unit(vector, gradient, direction.vector.normalise) for vector, gradient in pairs]
    expected = torch.stack(units).mean(0)
    flat = torch.cat([found[name].double().reshape(-1) for name, _ in naive.network.named_parameters()])
    assert float((flat - expected).norm() / expected.norm()) < tolerance
    records = atomic_files.read_parquet_rows(
        Storage(tmp_path).direction(direction.id()) / direction_files.VECTOR_RECORDS_FILE
    )
    assert [record["batch"] for record in records] == list(range(5))
    for record, (vector, gradient) in zip(records, pairs, strict=True):
        assert record["norm"] == pytest.approx(float(vector.norm()), rel=10 * tolerance)
        bound = 1e-2 * float(vector.norm() * gradient.norm()) * tolerance / 1e-4
        assert record["dot"] == pytest.approx(float(vector @ gradient), abs=bound)
        assert record["unmoved"] < 0.5


def test_tv_is_the_plain_vector_of_the_whole_set(trial_inputs: Any, naive: Naive, tmp_path: Path) -> None:
    direction = recipe(trial_inputs, rectified=False, batches=1)
    found = make(direction, tmp_path)
    expected = naive.vector(list(range(len(naive.examples))))
    flat = torch.cat([found[name].double().reshape(-1) for name, _ in naive.network.named_parameters()])
    assert float((flat - expected).norm() / expected.norm()) < 1e-4


def test_a_single_forget_point_is_refused() -> None:
    with pytest.raises(InputError, match="one forget point; tru rectifies each with others, so use tv"):
        method_constants.check_enough_forget_rows(1, 2, "forget01")
