"""The one training loop: unlearning and fine-tuning, any objective with any rectifier, on any number of ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
class Task:
    """What a run trains on: the two sides' encoded rows, the objective and the rectifier."""

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

    def steps(self) -> int:
        training = self.training
        return sampling.steps(len(self.forget), training.batch_size, training.epochs, training.max_steps)

    def drawn(self) -> list[int]:
        """The forget rows that the run's steps see, sorted."""
        return sampling.drawn(self.seed, self.steps(), len(self.forget), self.training.batch_size)

    def forget_batch(self, step: int, attempt: int) -> list[int]:
        """The step's forget rows: no attempt takes a row that the run draws nowhere, which has no S_i^0."""
        if attempt == 0:
            return sampling.forget_batch(self.seed, step, 0, len(self.forget), self.training.batch_size)
        known = self.drawn()
        again = sampling.forget_batch(self.seed, step, attempt, len(known), self.training.batch_size)
        return [known[number] for number in again]

    def rows(self, side: objectives.Side) -> Sequence[Example]:
        return self.forget if side == "forget" else self.retain


@dataclass
class State:
    """What a run carries from step to step beside weights and optimizer."""

    reference: dict[int, float] | None
    """S_i^0 of the forget rows that the run draws, by row number."""
    step: int = 0


def begin(engine: Engine, task: Task) -> State:
    """The state before the first step: the target model's S_i^0, without dropout, where the objective needs them.

    Of the rows that the run draws alone: 20 steps see a fortieth of WMDP's texts.
    """
    if not task.objective.needs_reference:
        return State(None)
    size = task.micro_batch or task.training.batch_size // engine.world
    engine.module.eval()
    reference = effective_batch.row_sums(engine, task.forget, task.drawn(), task.pad, size)
    engine.module.train()
    return State(reference)


def run(engine: Engine, task: Task, state: State | None = None) -> Iterator[dict[str, Any]]:
    """Train from `state` on; one record an optimizer step, as in steps.parquet, after which `state` is up to date.

    Raises TrialStopped, on every rank alike, where a loss or the gradient is not finite.
    """
    state = state or begin(engine, task)
    steps = task.steps()
    while state.step < steps:
        yield _step(engine, task, state, steps)


def _step(engine: Engine, task: Task, state: State, steps: int) -> dict[str, Any]:
    started, step = time.perf_counter(), state.step
    attempt = 0
    record, outcome = _gradient(engine, task, state.reference, step, attempt)
    while outcome.degenerate and attempt + 1 < MAX_ATTEMPTS:
        attempt += 1
        engine.clear()
        record, outcome = _gradient(engine, task, state.reference, step, attempt)
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
        **_told(outcome),
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
    """Of optimizer step `step` (from 0): linear warm-up, then constant or linear to zero."""
    if step < training.warmup_steps:
        return training.lr * (step + 1) / training.warmup_steps
    if training.schedule == "constant":
        return training.lr
    return training.lr * (steps - step) / max(1, steps - training.warmup_steps)


def _gradient(
    engine: Engine, task: Task, reference: dict[int, float] | None, step: int, attempt: int
) -> tuple[dict[str, Any], rectifiers.Outcome]:
    """Leave the rectified gradient of one attempt in the engine.

    Its random numbers depend on (seed, step, attempt, rank) alone: a resumed trial draws the same ones.
    """
    torch.manual_seed(sampling.noise_seed(task.seed, step, attempt, engine.rank))
    size = task.training.batch_size
    forget = task.forget_batch(step, attempt)
    retain: list[int] = []
    if task.rectifier.needs_retain or task.objective.needs_retain:
        retain = sampling.retain_batch(task.seed, step, attempt, len(task.retain), size)
    told: dict[str, Any] = {"retain_loss": math.nan, "tokens": 0}
    if task.rectifier.needs_retain:
        told["retain_loss"], told["tokens"] = _retain_pass(engine, task, retain, step)
        task.rectifier.fold(engine.shard())
        engine.clear()
    seen = _observe(engine, task, step) if task.observe and step % task.observe == 0 else None
    plan = [(term, task.rows(term.side), forget if term.side == "forget" else retain) for term in task.objective.terms]
    told["loss"], tokens = effective_batch.effective_batch(engine, plan, task, reference)
    told["tokens"] += tokens
    _finite(told["loss"], "loss", step)
    if task.observe:
        told |= _observed(engine, seen)
    outcome = task.rectifier.apply(engine.shard(), engine.reduce)
    _finite(outcome.grad_norm, "gradient norm", step)
    return told, outcome


def _retain_pass(engine: Engine, task: Task, rows: list[int], step: int) -> tuple[float, int]:
    loss, tokens = effective_batch.effective_batch(engine, [(objectives.NLL, task.retain, rows)], task, None)
    _finite(loss, "retain loss", step)
    return loss, tokens


def _observe(engine: Engine, task: Task, step: int) -> tuple[float, list[torch.Tensor]]:
    """Retain loss and gradient on rows of their own: the engine's gradient is zero before and after."""
    rows = sampling.retain_batch(task.seed + OBSERVED, step, 0, len(task.retain), task.training.batch_size)
    loss, _ = effective_batch.effective_batch(engine, [(objectives.NLL, task.retain, rows)], task, None)
    gradient = [part.detach().clone() for part in engine.shard()]
    engine.clear()
    return loss, gradient


def _observed(engine: Engine, seen: tuple[float, list[torch.Tensor]] | None) -> dict[str, float]:
    """cos(g_u, g_r) before rectification and the retain loss; NaN between observations."""
    if seen is None:
        return {"observed_cos": math.nan, "observed_retain_loss": math.nan}
    loss, retain = seen
    dot, retain_square, square = engine.reduce(rectifiers.products(engine.shard(), retain)).tolist()
    norm = math.sqrt(retain_square * square)
    return {"observed_cos": dot / norm if norm > 0 else 0.0, "observed_retain_loss": loss}


def _finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise TrialStopped("diverged", f"{name} is {value} at step {step + 1}", step + 1)


def _told(outcome: rectifiers.Outcome) -> dict[str, Any]:
    names = ("cos_before", "cos_after", "grad_norm", "rectified_norm", "average_norm")
    names += ("dot", "coefficient", "clip_scale", "rectified")
    return {name: getattr(outcome, name) for name in names}
