"""The memory of a rank, the micro-batch and the GPU-hours of a plan's trials, from configurations alone.

A forward pass of a model of N parameters over D tokens is 2 N D operations, its backward pass 4 N D; recomputed
activations add 2 N D. Generation is bound by the memory: a token of each row of a batch reads all weights once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from search_spaces.schema.sweep import Sweep
from trainables import benchmarks
from trainables.benchmarks.base import SizeEstimate
from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import CACHED_PER_PASS, Shape
from trainables.config.shared_artifacts import Direction, direction_of
from trainables.config.trial import Trial
from trainables.training import memory, sampling

SAVING = (
    "more ranks (--set resources.ranks=N), --set resources.precision=bf16, resources.gradient_checkpointing=true, "
    "resources.offload_optimizer=true, resources.micro_batch=none, training.lora_rank=8"
)
"""What makes a trial smaller."""
SUSTAINED = 0.28
"""The share of a GPU's dense peak that training reaches: measured on an H100, 1B parameters in bf16 (docs/LOG.md), and
assumed of the others."""
READ = 0.5
"""Assumed share of the memory's bandwidth that generation reaches."""
ROW_TOKENS = 256
"""Tokens of a row that is generated, with its prompt, roughly."""
DEVICES = Path("/proc/driver/nvidia/gpus")
GPUS: dict[str, dict[str, float]] = {
    "A100": {"bf16": 312e12, "fp32": 19.5e12, "bandwidth": 2.0e12},
    "H100": {"bf16": 989e12, "fp32": 67e12, "bandwidth": 3.35e12},
    "H200": {"bf16": 989e12, "fp32": 67e12, "bandwidth": 4.8e12},
    "L40S": {"bf16": 362e12, "fp32": 91.6e12, "bandwidth": 0.86e12},
    "RTX4090": {"bf16": 165e12, "fp32": 82.6e12, "bandwidth": 1.0e12},
}
"""Dense operations a second by precision, and bytes a second of the memory: the maker's data sheets."""


def find_gpu() -> str:
    """Return the name of this machine's first GPU if it is one of GPUS, else A100."""
    models = [path.read_text().replace(" ", "") for path in sorted(DEVICES.glob("*/information"))]
    return next((name for name in GPUS if models and name in models[0]), "A100")


@dataclass(frozen=True)
class Need:
    """The memory that the trials of one method, rectifier and split need."""

    method: str
    rectifier: str
    split: str
    fit: memory.Fit

    def document(self) -> dict[str, Any]:
        """Return the need as JSON, in bytes."""
        parts = asdict(self.fit.peak)
        parts = parts.pop("states") | parts
        return {
            "method": self.method,
            "rectifier": self.rectifier,
            "split": self.split,
            "zero_stage": self.fit.stage,
            "micro_batch": self.fit.micro_batch,
            "bytes": {name: round(value) for name, value in parts.items()},
            "total_bytes": round(self.fit.peak.total),
            "limit_bytes": None if self.fit.limit is None else round(self.fit.limit),
        }


@dataclass(frozen=True)
class Budget:
    """The memory and GPU-hours of a whole plan; empty if the model's sizes are not known before it is fetched."""

    needs: tuple[Need, ...] = ()
    hours: float | None = None
    basis: str | None = None

    @property
    def largest(self) -> Need | None:
        return max(self.needs, key=lambda need: need.fit.peak.total, default=None)

    def check_fits(self) -> None:
        """Raise InputError on trials that cannot fit, with the numbers of the largest."""
        tight = [need for need in self.needs if not need.fit.fits]
        if not tight:
            return
        worst = max(tight, key=lambda need: need.fit.peak.total)
        fit = worst.fit
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in worst.document()["bytes"].items() if size >= 5e7)
        more = f"; {len(tight) - 1} other kinds of trials do not fit either" if len(tight) > 1 else ""
        size = math.ceil(fit.peak.total / memory.USABLE / 1e9)
        raise InputError(
            f"resources: {worst.method} with rectifier {worst.rectifier} on {worst.split} needs "
            f"{fit.peak.total / 1e9:.1f} GB on each rank (ZeRO {fit.stage}, micro-batch {fit.micro_batch}: {parts}), "
            f"of a GPU {(fit.limit or 0.0) / 1e9:.1f} GB are usable{more}; take {SAVING}, or GPUs of {size} GB "
            "(--set resources.gpu_memory=GB)"
        )

    def micro_batch(self, made: Direction) -> int | None:
        """Return the rows of a pass when a direction is made, None if no limit of memory is known."""
        methods = [row.name for row in METHODS.values() if row.strength and row.batched == made.rectified]
        found = [need.fit.micro_batch for need in self.needs if need.method in methods and need.fit.limit is not None]
        return min(found, default=None)


def estimate_budget(sweep: Sweep, trials: Sequence[Trial], shape: Shape | None, planned: Mapping[str, int]) -> Budget:
    """Return the costs of all trials. `planned`: how many an Optuna study is to have; its known ones stand for all."""
    if shape is None:
        return Budget()
    resources, device = sweep.resources, None
    if resources.gpus and resources.gpu_memory is not None:
        device = resources.gpu_memory * 1e9 * min(1.0, resources.gpus)
    texts = dict.fromkeys((trial.benchmark, trial.training.max_length) for trial in trials)
    sizes = {text: benchmarks.find(text[0].name).size_estimate(*text) for text in texts}
    kinds = {
        (one.method, one.rectifier.name, one.benchmark.split, one.training, one.objective, one.rectifier.parts): one
        for one in trials
    }
    needs: dict[tuple[str, str, str], Need] = {}
    for (method, rectifier, split, *_), trial in kinds.items():  # of each cell the trial that takes most
        longest = sizes[trial.benchmark, trial.training.max_length].longest
        need = Need(method, rectifier, split, memory.fit(trial, shape, longest, device))
        cell = (method, rectifier, split)
        needs[cell] = max(needs.get(cell, need), need, key=lambda one: one.fit.peak.total)
    total, basis = _estimate_hours(trials, shape, sizes, planned) if resources.gpus else (None, None)
    return Budget(tuple(needs.values()), total, basis)


def _estimate_hours(
    trials: Sequence[Trial], shape: Shape, sizes: Mapping[Any, SizeEstimate], planned: Mapping[str, int]
) -> tuple[float | None, str | None]:
    """Return the GPU-hours of all trials and their basis; None where the number of rows is not known."""
    resources = trials[0].resources
    gpu, total = resources.gpu_name or find_gpu(), 0.0
    known = Counter(trial.study() for trial in trials)
    trained: set[str] = set()
    for trial in trials:
        share = planned.get(trial.study(), known[trial.study()]) / known[trial.study()]
        size = sizes[trial.benchmark, trial.training.max_length]
        points = size.points
        if points is None and trial.training.max_steps is not None:
            points = trial.training.max_steps * trial.training.batch_size
        if points is None:
            return None, None
        made = direction_of(trial)  # trials that differ by their strength alone share it
        key = made.id() if made else trial.id()
        if key not in trained:
            trained.add(key)
            total += (1 if made else share) * training_hours(trial, shape, points, size.mean, gpu)
        evaluation = benchmarks.find(trial.benchmark.name).evaluation_size(trial.benchmark)
        total += share * evaluation_hours(trial, shape, points, evaluation.read, evaluation.generated, gpu)
    peak = GPUS[gpu][resources.precision] / 1e12
    basis = f"6 N D operations at {SUSTAINED:.0%} of the {peak:g} TFLOP/s of one {gpu}, with evaluations"
    if any(trial.benchmark.tasks for trial in trials):
        basis += "; questions of benchmark.tasks are not counted"
    return total, basis


def training_hours(trial: Trial, shape: Shape, points: int, tokens: float, gpu: str) -> float:
    """Return the GPU-hours of a trial's training on `points` forget rows of `tokens` tokens on average."""
    once = 8 if trial.resources.gradient_checkpointing else 6
    rate = 3600 * SUSTAINED * GPUS[gpu][trial.resources.precision] / shape.parameters
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
    batch = max(1.0, CACHED_PER_PASS * (resources.evaluation_tokens or memory.MOST_TOKENS) / ROW_TOKENS)
    reading = 2 * read / (SUSTAINED * GPUS[gpu][precision])
    generating = generated / batch * memory.WIDTH[precision] / (READ * GPUS[gpu]["bandwidth"])
    return count * shape.parameters * (reading + generating) / 3600


def _count_steps(trial: Trial, points: int) -> int:
    training = trial.training
    return sampling.count_steps(points, training.batch_size, training.epochs, training.max_steps)
