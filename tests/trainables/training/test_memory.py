"""The plan of a trial's states against DeepSpeed's published arithmetic, and the stage that follows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.training import memory

SEVEN = 7_000_000_000
GB = 1e9


def plan(stage: int, ranks: int, **changed: Any) -> memory.States:
    settings: dict[str, Any] = {"precision": "bf16", "average": True, "frozen": False} | changed
    size = settings.pop("parameters", SEVEN)
    return memory.states(size, size, stage=stage, ranks=ranks, **settings)


def test_a_7b_model_on_eight_ranks_by_hand() -> None:
    """bf16: 14 GB weights; ZeRO 1 splits 84 GB of optimizer, 28 GB of fp32 gradients and 28 GB of average."""
    one = plan(1, 8)
    assert (one.weights, one.gradients) == (14 * GB, 14 * GB + 3.5 * GB)
    assert (one.optimizer, one.average) == (10.5 * GB, 3.5 * GB)
    assert plan(3, 8).weights == 14 * GB / 8
    assert plan(2, 8).gradients == 14 * GB / 8 + 3.5 * GB
    assert plan(1, 8, frozen=True).total - one.total == 14 * GB
    assert one.total - plan(1, 8, average=False).total == 3.5 * GB
    assert one.total - plan(1, 8, offloaded=True).total == 10.5 * GB + 3.5 * GB


@given(ranks=st.integers(1, 64), precision=st.sampled_from(["fp32", "bf16"]), frozen=st.booleans())
def test_a_higher_stage_never_needs_more(ranks: int, precision: Any, frozen: bool) -> None:
    totals = [plan(stage, ranks, precision=precision, frozen=frozen).total for stage in (1, 2, 3)]
    assert totals == sorted(totals, reverse=True)


def test_only_what_is_trained_has_gradients_and_an_average() -> None:
    adapters = memory.states(SEVEN, 10**7, ranks=1, stage=1, precision="bf16", average=True, frozen=False)
    assert adapters.weights == 14 * GB
    assert adapters.total - adapters.weights == 10**7 * (2 + 4 + 12 + 4)


@pytest.mark.parametrize(
    ("parameters", "ranks", "memory_bytes", "stage"),
    [
        (1_400_000, 1, 24 * GB, 1),
        (SEVEN, 8, 80 * GB, 1),
        (SEVEN, 4, 80 * GB, 2),
        (SEVEN, 4, 64 * GB, 3),
        (SEVEN, 1, 80 * GB, 1),
    ],
)
def test_first_stage_that_fits(parameters: int, ranks: int, memory_bytes: float, stage: int) -> None:
    chosen = memory.choose_stage(lambda on: plan(on, ranks, parameters=parameters), memory_bytes, ranks)
    assert chosen == stage
