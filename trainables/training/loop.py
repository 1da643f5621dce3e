"""The one training loop: unlearning and fine-tuning, any objective with any rectifier, on any number of ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from trainables.common.errors import TrialStopped
from trainables.common.tokens import Example
from trainables.config.settings import Training
from trainables.methods import objectives, rectifiers
from trainables.training import effective_batch, runtime, sampling
from trainables.training.engine import Engine

MAX_ATTEMPTS = 10
OBSERVED = 1 << 20
"""Added to the seed of the rows that `observe` measures on, so that they are not the step's own."""


@dataclass(frozen=True)
class TrainingTask:
    """The parts of a run: the two sides' encoded rows, the objective and the rectifier."""

    forget: Sequence[Example]
    retain: Sequence[Example]
    objective: objectives.Objective
    rectifier: rectifiers.Rectifier
    training: Training
    seed: int
    pad: int
    micro_batch: int | None = None
    observe: int | None = None
    frozen: Any = None

    def count_steps(self) -> int:
        training = self.training
        return sampling.count_steps(len(self.forget), training.batch_size, training.epochs, training.max_steps)

    def sampled_rows(self) -> list[int]:
        """Return the forget rows that the run's steps take at their first attempts, sorted."""
        return sampling.sampled_rows(self.seed, self.count_steps(), len(self.forget), self.training.batch_size)

    def forget_batch(self, step: int, attempt: int) -> list[int]:
        """Return the step's forget rows. Another attempt takes only rows of `sampled_rows`, which have an S_i^0."""
        if attempt == 0:
            return sampling.forget_batch(self.seed, step, 0, len(self.forget), self.training.batch_size)
        known = self.sampled_rows()
        again = sampling.forget_batch(self.seed, step, attempt, len(known), self.training.batch_size)
        return [known[number] for number in again]

    def rows(self, side: objectives.Side) -> Sequence[Example]:
        return self.forget if side == "forget" else self.retain


@dataclass
class TrainingState:
    """The part that changes from step to step, apart from weights and optimizer. `reference`: S_i^0 by row number."""

    reference: dict[int, float] | None
    step: int = 0


def initial_state(engine: Engine, task: TrainingTask) -> TrainingState:
    """Return the state before the first step: the target model's S_i^0, without dropout, if the objective needs them.

    They are of the rows of the run alone: 20 steps see a fortieth of WMDP's texts.
    """
    if not task.objective.needs_reference:
        return TrainingState(None)
    size = task.micro_batch or task.training.batch_size // engine.world
    engine.module.eval()
    reference = effective_batch.row_sums(engine, task.forget, task.sampled_rows(), task, size)
    engine.module.train()
    return TrainingState(reference)


def train(engine: Engine, task: TrainingTask, state: TrainingState | None = None) -> Iterator[dict[str, Any]]:
    """Train from `state` on; one record an optimizer step, as in steps.parquet, after which `state` is up to date.

    Raises TrialStopped, on every rank alike, where a loss or the gradient is not finite.
    """
    state = state or initial_state(engine, task)
    steps = task.count_steps()
    while state.step < steps:
        yield _step(engine, task, state, steps)


def _step(engine: Engine, task: TrainingTask, state: TrainingState, steps: int) -> dict[str, Any]:
    started, step = time.perf_counter(), state.step
    attempt = 0
    record, outcome = _rectified_gradient(engine, task, state.reference, step, attempt)
    while outcome.degenerate and attempt + 1 < MAX_ATTEMPTS:
        attempt += 1
        engine.clear()
        record, outcome = _rectified_gradient(engine, task, state.reference, step, attempt)
    lr = learning_rate(task.training, step, steps)
    if outcome.degenerate:
        engine.clear()
    else:
        engine.step(lr)
    state.step = step + 1
    tokens = record.pop("tokens")
    return {
        "step": step + 1,
        **record,
        **{name: value for name, value in asdict(outcome).items() if name != "degenerate"},
        "skipped": outcome.degenerate,
        "attempts": attempt + 1,
        "lr": lr,
        "tokens_per_second": tokens / (time.perf_counter() - started),
        "peak_memory_bytes": runtime.peak_memory(engine.device),
    }


def find_collapse(bar: float | None, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return an error of kind `collapsed` if a measured retain loss is above its bar: the same on every rank."""
    losses = [record.get(name, math.nan) for name in ("retain_loss", "observed_retain_loss")]
    highest = max(filter(math.isfinite, losses), default=-math.inf)
    if bar is None or highest <= bar:
        return None
    message = f"retain loss {highest:.4g} is above training.stop_above={bar:g} at step {record['step']}"
    return {"kind": "collapsed", "message": message, "step": record["step"]}


def learning_rate(training: Training, step: int, steps: int) -> float:
    """Return that of optimizer step `step` (from 0): linear warm-up, then constant or linear to zero."""
    if step < training.warmup_steps:
        return training.lr * (step + 1) / training.warmup_steps
    if training.schedule == "constant":
        return training.lr
    return training.lr * (steps - step) / max(1, steps - training.warmup_steps)


def _rectified_gradient(
    engine: Engine, task: TrainingTask, reference: dict[int, float] | None, step: int, attempt: int
) -> tuple[dict[str, Any], rectifiers.Outcome]:
    """Leave the rectified gradient of one attempt in the engine.

    Its random numbers depend on (seed, step, attempt, rank) alone: a resumed trial takes the same ones.
    """
    torch.manual_seed(sampling.noise_seed(task.seed, step, attempt, engine.rank))
    forget = task.forget_batch(step, attempt)
    retain: list[int] = []
    if task.rectifier.needs_retain or task.objective.needs_retain:
        retain = sampling.retain_batch(task.seed, step, attempt, len(task.retain), task.training.batch_size)
    record: dict[str, Any] = {"retain_loss": math.nan, "tokens": 0}
    if task.rectifier.needs_retain:
        record["retain_loss"], record["tokens"] = _retain_pass(engine, task, retain)
        _check_finite(record["retain_loss"], "retain loss", step)
        task.rectifier.update_average(engine.shard())
        engine.clear()
    observed = _observe(engine, task, step) if task.observe and step % task.observe == 0 else None
    terms = [(term, task.rows(term.side), forget if term.side == "forget" else retain) for term in task.objective.terms]
    record["loss"], tokens = effective_batch.accumulate_gradient(engine, terms, task, reference)
    record["tokens"] += tokens
    _check_finite(record["loss"], "loss", step)
    loss, gradient = observed or (math.nan, None)
    if task.observe:
        record |= {"observed_cos": _cosine(engine, gradient), "observed_retain_loss": loss}
    outcome = task.rectifier.apply(engine.shard(), engine.reduce)
    if task.observe:
        record["observed_cos_after"] = _cosine(engine, gradient)
    _check_finite(outcome.grad_norm, "gradient norm", step)
    return record, outcome


def _retain_pass(engine: Engine, task: TrainingTask, rows: list[int]) -> tuple[float, int]:
    """Leave the gradient of the plain loss on retain rows in the engine; return loss and label tokens."""
    return effective_batch.accumulate_gradient(engine, [(objectives.NLL, task.retain, rows)], task, None)


def _observe(engine: Engine, task: TrainingTask, step: int) -> tuple[float, list[torch.Tensor]]:
    """Return loss and gradient on further retain rows; the engine's gradient is zero before and after."""
    rows = sampling.retain_batch(task.seed + OBSERVED, step, 0, len(task.retain), task.training.batch_size)
    loss, _ = _retain_pass(engine, task, rows)
    gradient = [part.detach().clone() for part in engine.shard()]
    engine.clear()
    return loss, gradient


def _cosine(engine: Engine, retain: list[torch.Tensor] | None) -> float:
    """Return the cosine of the engine's gradient and an observed one; NaN between observations."""
    if retain is None:
        return math.nan
    dot, retain_square, square = engine.reduce(rectifiers.products(engine.shard(), retain)).tolist()
    norm = math.sqrt(retain_square * square)
    return dot / norm if norm > 0 else 0.0


def _check_finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise TrialStopped("diverged", f"{name} is {value} at step {step + 1}", step + 1)
