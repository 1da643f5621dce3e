"""The one training loop: unlearning and fine-tuning, any objective with any rectifier."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainables import objectives, rectification, sampling, scoring
from trainables.config import Training
from trainables.engine import Engine
from trainables.errors import TrialStopped
from trainables.templates import Example

MAX_ATTEMPTS = 10


@dataclass(frozen=True)
class Task:
    """What a run trains on: the two sides' encoded rows, the objective and the rectifier."""

    forget: Sequence[Example]
    retain: Sequence[Example]
    objective: objectives.Objective
    rectifier: rectification.Rectifier
    training: Training
    seed: int
    pad: int
    micro_batch: int | None = None

    def steps(self) -> int:
        training = self.training
        return sampling.steps(len(self.forget), training.batch_size, training.epochs, training.max_steps)


def run(engine: Engine, task: Task) -> Iterator[dict[str, Any]]:
    """Train; one record an optimizer step, as in steps.parquet. Raises TrialStopped where the loss is not finite."""
    reference = _reference(engine, task) if task.objective.needs_reference else None
    steps = task.steps()
    for step in range(steps):
        started = time.perf_counter()
        for attempt in range(MAX_ATTEMPTS):
            record, outcome = _gradient(engine, task, reference, step, attempt)
            if not outcome.degenerate:
                break
            engine.clear()
        lr = learning_rate(task.training, step, steps)
        if outcome.degenerate:
            engine.clear()
        else:
            engine.step(lr)
        seconds = time.perf_counter() - started
        tokens = record.pop("tokens")
        yield {
            "step": step + 1,
            **record,
            **_told(outcome),
            "skipped": outcome.degenerate,
            "attempts": attempt + 1,
            "lr": lr,
            "tokens_per_second": tokens / seconds,
            "peak_memory_bytes": peak_memory(engine.device),
        }


def learning_rate(training: Training, step: int, steps: int) -> float:
    """Of optimizer step `step` (from 0): linear warm-up, then constant or linear to zero."""
    if step < training.warmup_steps:
        return training.lr * (step + 1) / training.warmup_steps
    if training.schedule == "constant":
        return training.lr
    return training.lr * (steps - step) / max(1, steps - training.warmup_steps)


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU where there is one, else this process's resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _gradient(
    engine: Engine, task: Task, reference: list[float] | None, step: int, attempt: int
) -> tuple[dict[str, Any], rectification.Outcome]:
    """Leave the rectified gradient of one attempt in the engine."""
    size = task.training.batch_size
    forget = sampling.forget_batch(task.seed, step, attempt, len(task.forget), size)
    retain: list[int] = []
    if task.rectifier.needs_retain or task.objective.needs_retain:
        retain = sampling.retain_batch(task.seed, step, attempt, len(task.retain), size)
    tokens, retain_loss = 0, math.nan
    if task.rectifier.needs_retain:
        term = objectives.Term("retain", objectives.nll)
        retain_loss, tokens = _pass(engine, task, [(term, retain)], None)
        _finite(retain_loss, "retain loss", step)
        task.rectifier.fold(engine.shard())
        engine.clear()
    plan = [(term, forget if term.side == "forget" else retain) for term in task.objective.terms]
    loss, more = _pass(engine, task, plan, reference)
    _finite(loss, "loss", step)
    outcome = task.rectifier.apply(engine.shard(), engine.reduce)
    _finite(outcome.grad_norm, "gradient norm", step)
    return {"loss": loss, "retain_loss": retain_loss, "tokens": tokens + more}, outcome


def _pass(
    engine: Engine,
    task: Task,
    plan: list[tuple[objectives.Term, list[int]]],
    reference: list[float] | None,
) -> tuple[float, int]:
    """Forward and backward over whole effective batches, micro-batch by micro-batch: loss and label tokens."""
    pieces = []
    for term, rows in plan:
        source = task.forget if term.side == "forget" else task.retain
        totals = objectives.Totals(sum(source[row].answer_tokens for row in rows), len(rows))
        size = task.micro_batch or len(rows)
        pieces += [(term, source, rows[k : k + size], totals) for k in range(0, len(rows), size)]
    total = torch.zeros((), dtype=torch.float64)
    for number, (term, source, rows, totals) in enumerate(pieces, 1):
        losses = _token_losses(engine, [source[row] for row in rows], task.pad)
        known = None
        if reference is not None and term.side == "forget":
            known = torch.tensor([reference[row] for row in rows], device=losses.device)
        loss = term.loss(losses, known, totals)
        engine.backward(loss, last=number == len(pieces))
        total += loss.detach().double().cpu()
    tokens = sum(totals.tokens for totals in {id(piece[3]): piece[3] for piece in pieces}.values())
    return float(total), tokens


def _token_losses(engine: Engine, examples: Sequence[Example], pad: int) -> torch.Tensor:
    batch = {name: tensor.to(engine.device) for name, tensor in scoring.collate(examples, pad).items()}
    output = engine.inner(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False)
    return scoring.token_losses(output.logits, batch["labels"])


def _reference(engine: Engine, task: Task) -> list[float]:
    """The target model's S_i of every forget row, before the first step."""
    size = task.micro_batch or task.training.batch_size
    sums: list[float] = []
    with torch.no_grad():
        for start in range(0, len(task.forget), size):
            losses = _token_losses(engine, task.forget[start : start + size], task.pad)
            sums += losses.sum(1).tolist()
    return sums


def _finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise TrialStopped("diverged", f"{name} is {value} at step {step + 1}", step + 1)


def _told(outcome: rectification.Outcome) -> dict[str, Any]:
    names = ("cos_before", "cos_after", "grad_norm", "rectified_norm", "average_norm")
    names += ("dot", "coefficient", "clip_scale", "rectified")
    return {name: getattr(outcome, name) for name in names}
