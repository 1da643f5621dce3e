"""What a trial's states take on each rank, in bytes, and the ZeRO stage that follows from it.

States only: weights, gradients, optimizer, GRU's moving average, a frozen copy. Activations come on top; the share of
the device that `choose_stage` fills leaves room for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.config import Precision

WIDTH: dict[str, int] = {"fp32": 4, "bf16": 2}
FILLED = 0.7
"""The share of a device's memory that states may take."""
STAGES = (1, 2, 3)


@dataclass(frozen=True)
class States:
    """Bytes on one rank."""

    weights: float
    gradients: float
    optimizer: float
    average: float
    frozen: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.average + self.frozen


def states(
    parameters: int,
    trained: int,
    *,
    ranks: int,
    stage: int,
    precision: Precision,
    average: bool,
    frozen: bool,
    offloaded: bool = False,
) -> States:
    """Of a model of `parameters`, of which `trained` have a gradient, with AdamW.

    From ZeRO 1 on the optimizer (two fp32 moments and an fp32 copy of the weights) is split over ranks, from 2 on the
    gradients, at 3 the weights; in bf16 gradients are accumulated in an fp32 shard beside. The moving average is one
    fp32 shard wherever the optimizer is split. Both are elsewhere where they are `offloaded` to the CPU.
    """
    width, fp32 = WIDTH[precision], 4
    owner = ranks if stage >= 1 else 1
    gradients = trained * width / (ranks if stage >= 2 else 1)
    if precision == "bf16":
        gradients += trained * fp32 / owner
    if offloaded:
        trained = 0
    copies = 3 if stage >= 1 or precision == "bf16" else 2
    return States(
        weights=parameters * width / (ranks if stage == 3 else 1),
        gradients=gradients,
        optimizer=copies * trained * fp32 / owner,
        average=trained * fp32 / owner if average else 0,
        frozen=parameters * width if frozen else 0,
    )


def choose_stage(
    parameters: int,
    trained: int,
    memory: float,
    *,
    ranks: int,
    precision: Precision,
    average: bool,
    frozen: bool,
    offloaded: bool = False,
) -> int:
    """The first of ZeRO 1, 2, 3 whose states fit `FILLED` of a device's `memory` (bytes), else 3; 1 for one rank."""
    if ranks == 1:
        return STAGES[0]
    for stage in STAGES:
        needed = states(
            parameters,
            trained,
            ranks=ranks,
            stage=stage,
            precision=precision,
            average=average,
            frozen=frozen,
            offloaded=offloaded,
        )
        if needed.total <= FILLED * memory:
            return stage
    return STAGES[-1]
