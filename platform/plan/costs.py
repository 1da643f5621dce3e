"""The memory of a rank, the micro-batch and the GPU-hours of a plan's trials, from configurations alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from platform.plan.fitting_settings import list_fitting_settings
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS
from trainables.config.settings import Shape
from trainables.config.shared_artifacts import Direction, direction_of
from trainables.config.trial import Trial
from trainables.training import flops, memory


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
    fitting: tuple[str, ...] = ()
    """Settings with which the trials fit, where one does not."""

    @property
    def largest(self) -> Need | None:
        return max(self.needs, key=lambda need: need.fit.peak.total, default=None)

    def check_fits(self) -> None:
        """Raise InputError on trials that cannot fit, with the numbers of the largest."""
        tight = [need for need in self.needs if not need.fit.fits]
        if not tight:
            return
        worst = max(tight, key=lambda need: need.fit.peak.total)
        fit, sizes = worst.fit, worst.document()["bytes"]
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in sizes.items() if size >= 5e7 and name != "step")
        more = f"; {len(tight) - 1} other kinds of trials do not fit either" if len(tight) > 1 else ""
        raise InputError(
            f"resources: {worst.method} with rectifier {worst.rectifier} on {worst.split} needs "
            f"{fit.peak.total / 1e9:.1f} GB on each rank (ZeRO {fit.stage}, micro-batch {fit.micro_batch}: {parts}), "
            f"of a GPU {(fit.limit or 0.0) / 1e9:.1f} GB are usable{more}; what fits: {'; or '.join(self.fitting)}"
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
    kinds: dict[tuple[Any, ...], Trial] = {}
    counted: dict[str, Trial] = {}
    evaluated: list[tuple[Trial, tuple[Any, ...]]] = []
    asked: Counter[str] = Counter()
    for trial in trials:
        training = trial.training
        sizes = (training.batch_size, training.max_length, training.lora_rank, training.optimizer, trial.objective)
        sizes = (*sizes, trial.rectifier.parts)
        kind = (trial.method, trial.rectifier.name, trial.benchmark.split, *sizes)
        kinds.setdefault(kind, trial)
        asked[trial.study()] += 1
        if per_study is None or asked[trial.study()] <= per_study:
            evaluated.append((trial, kind))
            made = direction_of(trial)  # trials that differ by their strength alone share it
            counted.setdefault(made.id() if made else trial.id(), trial)
    texts = dict.fromkeys((trial.benchmark, trial.training.max_length) for trial in trials)
    estimates = {text: benchmarks.find(text[0].name).size_estimate(*text) for text in texts}
    extents = {trial: estimates[trial.benchmark, trial.training.max_length] for trial in trials}
    fits = {key: memory.fit(trial, shape, extents[trial].longest, device) for key, trial in kinds.items()}
    needs: dict[tuple[str, ...], Need] = {}
    for key, fit in fits.items():  # of each kind the trial that takes most
        if (known := needs.get(key[:3])) is None or fit.peak.total > known.fit.peak.total:
            needs[key[:3]] = Need(key[0], key[1], key[2], fit)
    fitting: tuple[str, ...] = ()
    if device is not None and not all(fit.fits for fit in fits.values()):
        sized = [(trial, extents[trial].longest) for trial in kinds.values()]
        fitting = tuple(list_fitting_settings(sized, shape, device))
    points = {trial: count for trial, _ in evaluated if (count := _count_points(trial, extents[trial])) is not None}
    if any(trial not in points for trial, _ in evaluated) or not resources.gpus:
        return Budget(tuple(needs.values()), fitting=fitting)
    operations = (flops.operations(trial, shape, points[trial], extents[trial].mean) for trial in counted.values())
    hours = flops.hours(sum(operations), resources.precision)
    sizes = {benchmark: benchmarks.find(benchmark.name).evaluation_size(benchmark) for benchmark, _ in texts}
    for trial, kind in evaluated:
        size = sizes[trial.benchmark]
        hours += flops.evaluation_hours(trial, shape, fits[kind].stage, points[trial], size.read, size.generated)
    basis = flops.basis(resources.precision)
    if any(benchmark.tasks for benchmark in sizes):
        basis += "; questions of benchmark.tasks are not counted"
    return Budget(tuple(needs.values()), hours, basis, fitting)


def _count_points(trial: Trial, extent: benchmarks.SizeEstimate) -> int | None:
    """Return the rows that a trial reads, None if neither the number of rows nor that of steps is known."""
    if extent.points is None and trial.training.max_steps is not None:
        return trial.training.max_steps * trial.training.batch_size
    return extent.points
