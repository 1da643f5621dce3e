"""GPU-hours of trials: 6 N D operations of training at a GPU's sustained rate, and their evaluations.

A forward pass of a model of N parameters over D tokens is 2 N D operations, its backward pass 4 N D; recomputed
activations add 2 N D. Generation is bound by the memory: a token of each row of a batch reads all weights once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import CACHED_PER_PASS, Shape
from trainables.config.trial import Trial
from trainables.training import memory, sampling

SUSTAINED = 0.28
"""The share of a GPU's dense peak that training reaches: measured on an H100, 1B parameters in bf16 (docs/LOG.md), and
assumed of the others."""
READ = 0.5
"""Assumed share of the memory's bandwidth that generation reaches."""
ROW_TOKENS = 256
"""Tokens of a row that is generated, with its prompt, roughly."""
DEVICES = Path("/proc/driver/nvidia/gpus")


class Gpu(NamedTuple):
    """Dense operations a second in bf16 and in fp32, bytes a second of the memory: the maker's data sheets."""

    bf16: float
    fp32: float
    bandwidth: float


GPUS = {
    "A100": Gpu(312e12, 19.5e12, 2.0e12),
    "H100": Gpu(989e12, 67e12, 3.35e12),
    "H200": Gpu(989e12, 67e12, 4.8e12),
    "L40S": Gpu(362e12, 91.6e12, 0.86e12),
    "RTX4090": Gpu(165e12, 82.6e12, 1.0e12),
}


def find_gpu() -> str:
    """Return the name of this machine's first GPU if it is one of GPUS, else A100."""
    models = [path.read_text().replace(" ", "") for path in sorted(DEVICES.glob("*/information"))]
    return next((name for name in GPUS if models and name in models[0]), "A100")


def training_hours(trial: Trial, shape: Shape, points: int, tokens: float, gpu: str) -> float:
    """Return the GPU-hours of a trial's training on `points` forget rows of `tokens` tokens on average."""
    once = 8 if trial.resources.gradient_checkpointing else 6
    rate = 3600 * SUSTAINED * getattr(GPUS[gpu], trial.resources.precision) / shape.parameters
    if trial.task_vector is not None:
        return once * points * tokens * (trial.task_vector.steps + 2) / rate
    needs, rectifier = METHODS[trial.method].needs, RECTIFIERS[trial.rectifier.name]
    retain_passes = (RETAIN_PASS in rectifier.needs or "retain_multiplier" in needs) + memory.has_retain_term(trial)
    if (trial.rectifier.parts or rectifier.parts) <= 1:
        retain_passes = min(1, retain_passes)  # one serves the rectifier and the term
    row = once * (1 + retain_passes + ("pairs" in needs) + 1 / (trial.observe or float("inf"))) * tokens
    if "frozen_model" in needs:
        row += (2 + once * ("frozen_on_forget" not in needs)) * max(tokens, memory.padded_to(trial))
    return _count_steps(trial, points) * trial.training.batch_size * row / rate


def evaluation_hours(trial: Trial, shape: Shape, points: int, read: float, generated: float, gpu: str) -> float:
    """Return the GPU-hours of all evaluations of a trial, of mixtures at most: each reads and generates so many tokens.

    Ranks share an evaluation, but for those of task vectors and mixtures, where the others wait for the first.
    """
    resources, alone = trial.resources, trial.task_vector is not None
    precision = "fp32" if alone else resources.precision
    count = resources.ranks if alone else 1
    count += resources.ranks * len(trial.calibration.targets) * trial.calibration.evaluations
    if trial.training.eval_every and not alone:
        count += (_count_steps(trial, points) - 1) // trial.training.eval_every
    batch = max(1.0, CACHED_PER_PASS * resources.evaluation_tokens / ROW_TOKENS)
    reading = 2 * read / (SUSTAINED * getattr(GPUS[gpu], precision))
    generating = generated / batch * memory.WIDTH[precision] / (READ * GPUS[gpu].bandwidth)
    return count * shape.parameters * (reading + generating) / 3600


def _count_steps(trial: Trial, points: int) -> int:
    training = trial.training
    return sampling.count_steps(points, training.batch_size, training.epochs, training.max_steps)
