"""The memory of a rank, the micro-batch and the GPU-hours of a plan's trials, from configurations alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from platform.plan import hours
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks
from trainables.benchmarks.base import SizeEstimate
from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS
from trainables.config.settings import Shape
from trainables.config.shared_artifacts import Direction, direction_of
from trainables.config.trial import Trial
from trainables.training import memory

SAVING = (
    "more ranks (--set resources.ranks=N), --set resources.precision=bf16, resources.gradient_checkpointing=true, "
    "resources.offload_optimizer=true, resources.micro_batch=none, training.lora_rank=8"
)
"""What makes a trial smaller."""


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


def estimate_budget(sweep: Sweep, trials: Sequence[Trial], shape: Shape | None, per_study: int | None = None) -> Budget:
    """Return the memory of every kind of trial and the GPU-hours of all.

    `shape` is the target model's. `per_study`: of an Optuna study only so many trials count.
    """
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
    total, basis = _estimate_hours(trials, shape, sizes, per_study) if resources.gpus else (None, None)
    return Budget(tuple(needs.values()), total, basis)


def _estimate_hours(
    trials: Sequence[Trial], shape: Shape, sizes: Mapping[Any, SizeEstimate], per_study: int | None
) -> tuple[float | None, str | None]:
    """Return the GPU-hours of all trials and their basis; None where the number of rows is not known."""
    resources = trials[0].resources
    gpu, total = resources.gpu_name or hours.find_gpu(), 0.0
    asked: Counter[str] = Counter()
    trained: set[str] = set()
    for trial in trials:
        asked[trial.study()] += 1
        if per_study is not None and asked[trial.study()] > per_study:
            continue
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
            total += hours.training_hours(trial, shape, points, size.mean, gpu)
        evaluation = benchmarks.find(trial.benchmark.name).evaluation_size(trial.benchmark)
        total += hours.evaluation_hours(trial, shape, points, evaluation.read, evaluation.generated, gpu)
    peak = getattr(hours.GPUS[gpu], resources.precision) / 1e12
    basis = f"6 N D operations at {hours.SUSTAINED:.0%} of the {peak:g} TFLOP/s of one {gpu}, with evaluations"
    if any(trial.benchmark.tasks for trial in trials):
        basis += "; questions of benchmark.tasks are not counted"
    return total, basis
