"""Equivalent configurations give one trajectory: ranks, ZeRO stages and micro-batches change nothing but rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from copies import tied
from pydantic import ValidationError

from trainables import models
from trainables.config import Model, Resources

SERIES = ("loss", "retain_loss", "cos_before", "grad_norm", "rectified_norm", "average_norm", "dot")
ONE = [{"stage": 1}, {"stage": 0}, {"stage": 2, "micro_batch": 1}, {"stage": 3, "micro_batch": 8}]
TWO = [{"stage": 0, "micro_batch": 1}, {"stage": 1}, {"stage": 2, "micro_batch": 1}, {"stage": 3, "micro_batch": 2}]
OFFLOADED = [{"stage": stage, "micro_batch": size, "offload": True} for stage in (1, 2, 3) for size in (2, 8)]
WRITES = [
    {"stage": 0, "write": True},
    *(
        {"stage": stage, "precision": kind, "offload": offload, "write": True}
        for stage in (1, 2, 3)
        for kind in ("fp32", "bf16")
        for offload in (False, True)
    ),
]


def start(house: Any, lora: int | None = None) -> torch.Tensor:
    network, _ = models.load(Model(path=str(house.target)))
    if lora:
        torch.manual_seed(ranks.SEED)
        network = models.with_adapters(network, lora, 16)
    parts = network.named_parameters(remove_duplicate=False)
    return torch.cat([part.detach().double().reshape(-1) for _, part in parts])


def agree(found: dict[str, Any], pinned: dict[str, Any], origin: torch.Tensor, tolerance: float = 1e-4) -> None:
    """The same series and the same update, relative."""
    for name in SERIES:
        series = [record[name] for record in found["records"]]
        assert series == pytest.approx([record[name] for record in pinned["records"]], rel=tolerance), name
    update = pinned["weights"] - origin
    assert float((found["weights"] - pinned["weights"]).norm() / update.norm()) <= tolerance


@pytest.fixture(scope="module")
def pinned(house: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return ranks.run(1, ONE, house, tmp_path_factory.mktemp("one"))


def test_stages_and_micro_batches_on_one_rank(house: Any, pinned: list[dict[str, Any]]) -> None:
    assert all(record["rectified"] for record in pinned[0]["records"])
    for found in pinned[1:]:
        agree(found, pinned[0], start(house))


def test_two_ranks_are_one(house: Any, pinned: list[dict[str, Any]], tmp_path: Path) -> None:
    for found in ranks.run(2, TWO, house, tmp_path):
        agree(found, pinned[0], start(house))


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_an_optimizer_on_the_cpu_changes_nothing(
    house: Any, pinned: list[dict[str, Any]], tmp_path: Path, world: int
) -> None:
    """Two steps' gradients must not meet: DeepSpeed goes on summing in buffers of its own until it steps."""
    for found in ranks.run(world, OFFLOADED, house, tmp_path):
        agree(found, pinned[0], start(house))


@pytest.mark.parametrize("kind", ["adapters", pytest.param("tied", marks=pytest.mark.slow)])
def test_two_ranks_are_one_with_few_or_shared_weights(
    house: Any, pinned: list[dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    """LoRA: only adapters have a gradient. Tied: input and output embedding are one tensor, counted once."""
    place, more = (house, {"lora": 2}) if kind == "adapters" else (tied(house, tmp_path / "tied"), {})
    origin = start(place, **more)
    one = ranks.run(1, [{"stage": 1, **more}], place, tmp_path)[0]
    assert one["records"][0]["grad_norm"] != pytest.approx(pinned[0]["records"][0]["grad_norm"], rel=1e-3)
    for found in ranks.run(2, [{"stage": stage, "micro_batch": stage, **more} for stage in (1, 2, 3)], place, tmp_path):
        agree(found, one, origin)


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_constant_written_over_the_gradient_reaches_the_step(house: Any, tmp_path: Path, world: int) -> None:
    """Plain SGD, because Adam hides a wrong scale; and a cleared gradient leaves nothing behind."""
    for job, found in zip(WRITES, ranks.run(world, WRITES, house, tmp_path), strict=True):
        assert torch.allclose(found["moved"], torch.full_like(found["moved"], 0.25), atol=1e-6), job
        assert found["norms"][0] > 0, job
        assert found["norms"][1] == pytest.approx(found["norms"][0], rel=1e-6), job


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", ["ga", "gd", "npo"])
def test_every_stage_rank_and_micro_batch(house: Any, tmp_path: Path, method: str, optimizer: str) -> None:
    jobs = [
        {"stage": stage, "micro_batch": size, "method": method, "optimizer": optimizer, "lr": lr}
        for stage in (0, 1, 2, 3)
        for size in (1, 8)
        for lr in [0.05 if optimizer == "sgd" else 1e-3]
    ]
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = ranks.run(1, jobs, house, tmp_path / "one")
    two = ranks.run(2, jobs, house, tmp_path / "two")
    for found in [*one, *two]:
        agree(found, one[0], start(house))


def test_bf16_follows_fp32_as_far_as_its_rounding_lets_it(
    house: Any, pinned: list[dict[str, Any]], tmp_path: Path
) -> None:
    jobs = [
        {"stage": stage, "precision": "bf16", "offload": offload} for stage in (1, 2, 3) for offload in (False, True)
    ]
    for found in ranks.run(1, jobs, house, tmp_path):
        agree(found, pinned[0], start(house), tolerance=0.08)


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"zero_stage": 0, "precision": "bf16"}, "zero_stage=0 with precision=bf16"),
        ({"zero_stage": 0, "offload_optimizer": True}, "zero_stage=0 with offload_optimizer=true"),
    ],
)
def test_what_cannot_be_rectified_is_refused_by_name(resources: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Resources(**resources)
