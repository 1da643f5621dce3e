"""States and buffers of the memory plan against the live tensors of DeepSpeed: all stages, precisions, 1 to 4 ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import live_states
from trainables.config.settings import Model, Rectifier, Resources, Training
from trainables.config.trial import Trial
from trainables.training import memory

JOBS: list[dict[str, Any]] = [
    {"stage": stage, "precision": precision, "observe": observe}
    for stage, precision, observe in (
        *((stage, "fp32", None) for stage in range(4)),
        *((stage, "bf16", None) for stage in (1, 2, 3)),
        (2, "bf16", 1),
    )
]


def plan(world: int, stage: int, precision: Any, observe: int | None) -> memory.Peak:
    trial = Trial(
        method="ga",
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m"),
        training=Training(batch_size=world),
        resources=Resources(ranks=world, gpus=1, zero_stage=stage, precision=precision),
        observe=observe,
    )
    shape = memory.shape_of(live_states.SIZES)
    assert shape is not None
    return memory.peak(trial, shape, stage, 1, live_states.LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_rank_holds_what_is_planned(world: int, tmp_path: Path) -> None:
    """ZeRO 3 keeps its bucket and, on several ranks, small weights gathered between passes, too."""
    for job, found in zip(JOBS, live_states.run(world, JOBS, tmp_path), strict=True):
        planned = plan(world, **job)
        print(world, job, {name: round(size / 1e6, 2) for name, size in found.items()}, planned)
        kept = planned.buffers if job["stage"] == 3 else 0
        held = planned.states.total
        assert held <= 1.01 * found["held"] <= 1.01 * (1.01 * held + kept), job
        assert 0.75 * planned.training <= found["peak"] <= planned.training, job
