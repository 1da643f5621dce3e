"""What a plan's trials take: memory of a rank, micro-batch and GPU-hours, from configurations alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from search_spaces.schema.sweep import Sweep
from trainables import benchmarks
from trainables.common import paths
from trainables.common.errors import InputError
from trainables.config.methods import METHODS
from trainables.config.settings import Benchmark, Shape
from trainables.config.trial import Direction, Recipe, Trial, direction
from trainables.storage import files
from trainables.training import flops, memory

ADVICE = (
    "what helps: more resources.ranks, a higher zero_stage, a smaller micro_batch, gradient_checkpointing=true, "
    "offload_optimizer=true, or GPUs of a larger resources.gpu_memory"
)


@dataclass(frozen=True)
class Need:
    """Of the trials of one method, rectifier and split."""

    method: str
    rectifier: str
    split: str
    fit: memory.Fit

    def document(self) -> dict[str, Any]:
        """As JSON, in bytes."""
        peak = self.fit.peak
        parts = asdict(peak.states) | {"activations": peak.activations, "logits": peak.logits, "buffers": peak.buffers}
        return {
            "method": self.method,
            "rectifier": self.rectifier,
            "split": self.split,
            "zero_stage": self.fit.stage,
            "micro_batch": self.fit.micro_batch,
            "bytes": {name: round(value) for name, value in (parts | {"step": peak.step}).items()},
            "total_bytes": round(peak.total),
            "limit_bytes": None if self.fit.limit is None else round(self.fit.limit),
        }

    def refusal(self) -> str:
        """Return the message for a trial that cannot fit, with the numbers."""
        peak, limit = self.fit.peak, self.fit.limit or 0.0
        sizes = self.document()["bytes"]
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in sizes.items() if size >= 5e7 and name != "step")
        return (
            f"resources: {self.method} with rectifier {self.rectifier} on {self.split} needs {peak.total / 1e9:.1f} GB "
            f"on each rank (ZeRO {self.fit.stage}, micro-batch {self.fit.micro_batch}: {parts}), of a GPU "
            f"{limit / 1e9:.1f} GB are usable"
        )


@dataclass(frozen=True)
class Budget:
    """Of a whole plan; empty where the model's sizes are not known before it is fetched."""

    needs: tuple[Need, ...] = ()
    operations: float | None = None
    hours: float | None = None
    basis: str = ""

    @property
    def largest(self) -> Need | None:
        return max(self.needs, key=lambda need: need.fit.peak.total, default=None)

    def check_fits(self) -> None:
        """Raise InputError on trials that cannot fit, with the numbers of the largest."""
        tight = [need for need in self.needs if not need.fit.fits]
        if not tight:
            return
        worst = max(tight, key=lambda need: need.fit.peak.total)
        more = f"; {len(tight) - 1} other kinds of trials do not fit either" if len(tight) > 1 else ""
        raise InputError(f"{worst.refusal()}{more}; {ADVICE}")

    def micro_batch(self, made: Direction) -> int | None:
        """Rows of a pass when a direction is made; None: nothing is known, or the user's own."""
        made_so = [row.name for row in METHODS.values() if row.strength and row.batched == made.rectified]
        found = [need.fit.micro_batch for need in self.needs if need.method in made_so and need.fit.limit is not None]
        return min(found, default=None)


def estimate_budget(sweep: Sweep, trials: Sequence[Trial], recipes: dict[str, Recipe]) -> Budget:
    """The memory of every kind of trial, and the GPU-hours of all. Nothing is refused here: see Budget.check_fits."""
    if not trials:
        return Budget()
    shape = shape_of(sweep, trials[0], recipes)
    if shape is None:
        return Budget()
    resources = sweep.resources
    device = None if not resources.gpus or resources.gpu_memory is None else resources.gpu_memory * 1e9
    device = device and device * min(1.0, resources.gpus)
    kinds: dict[tuple[str, str, str], Trial] = {}
    total: float | None = 0.0
    made: set[str] = set()
    extents = _extents()
    for trial in trials:
        kinds.setdefault((trial.method, trial.rectifier.name, trial.benchmark.split), trial)
        once = direction(trial)
        if once is not None and once.id() in made:
            continue
        made |= {once.id()} if once is not None else set()
        found = _operations(trial, shape, extents(trial))
        total = None if total is None or found is None else total + found
    needs = tuple(Need(*key, memory.fit(trial, shape, extents(trial).longest, device)) for key, trial in kinds.items())
    hours = flops.hours(total, resources.precision) if total is not None and resources.gpus else None
    return Budget(needs, total, hours, flops.basis(resources.precision) if hours is not None else "")


def shape_of(sweep: Sweep, trial: Trial, recipes: dict[str, Recipe]) -> Shape | None:
    """The target's sizes: its folder's, those of what it is made from, or the backbone's."""
    model = trial.target
    while model.path in recipes:
        recipe = recipes[model.path]
        if recipe.base is None:
            settings = {"vocab_size": recipe.vocabulary, "model_type": "llama", **dict(recipe.architecture)}
            return memory.shape_of(settings)
        model = recipe.base
    found = files.read_json(paths.expand(model.path) / "config.json")
    if found:
        return memory.shape_of(found)
    return sweep.backbone.shape if sweep.backbone else None


def _extents() -> Callable[[Trial], benchmarks.SizeEstimate]:
    """What is read of a trial's rows, which many trials share, each file once."""
    known: dict[tuple[Benchmark, int], benchmarks.SizeEstimate] = {}

    def of_trial(trial: Trial) -> benchmarks.SizeEstimate:
        key = (trial.benchmark, trial.training.max_length)
        if key not in known:
            known[key] = benchmarks.find(trial.benchmark.name).size_estimate(*key)
        return known[key]

    return of_trial


def _operations(trial: Trial, shape: Shape, extent: benchmarks.SizeEstimate) -> float | None:
    """None where nobody knows how many rows there are, and no number of steps is set."""
    steps, points = trial.training.max_steps, extent.points
    if points is None and steps is not None:
        points = steps * trial.training.batch_size
    return None if points is None else flops.operations(trial, shape, points, extent.mean)
