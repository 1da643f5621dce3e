"""The one training loop: unlearning and fine-tuning, any objective with any rectifier, on any number of ranks."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from operator import mul
from typing import Any

import torch

from trainables.common.errors import TrialDiverged
from trainables.common.tokenized_row import Example
from trainables.config.settings import Training
from trainables.methods import rectifiers
from trainables.methods.objectives.base import NLL_TERM, Objective, Term, compute_balancing_weight, nll, scale_loss
from trainables.methods.rectifiers.base import shard_dot_products
from trainables.training import forward_backward, runtime, sampling
from trainables.training.engine import Engine, PlainEngine

MAX_BATCH_ATTEMPTS = 10
OBSERVED_SEED_OFFSET = 1 << 20
"""Added to the seed of the rows that `observe` measures on, so that they are not the step's own."""


@dataclass(frozen=True)
class TrainingTask:
    """The parts of a run: the two sides' encoded rows, the objective and the rectifier."""

    forget: Sequence[Example]
    retain: Sequence[Example]
    objective: Objective
    rectifier: rectifiers.Rectifier
    training: Training
    seed: int
    pad: int
    micro_batch: int | None = None
    observe: int | None = None
    frozen: Any = None

    def count_steps(self) -> int:
        return sampling.count_steps(self.training, len(self.forget))

    def list_sampled_forget_rows(self) -> list[int]:
        """Return the forget rows that the run's steps take at their first attempts, sorted: all from one epoch on."""
        rows, taken = len(self.forget), self.count_steps() * self.training.batch_size
        return sorted(sampling.draw_forget_row_numbers(self.seed, 0, 0, rows, min(rows, taken)))

    def draw_forget_batch(self, step: int, attempt: int) -> list[int]:
        """Return the step's forget rows; at another attempt only `list_sampled_forget_rows`, which have an S_i^0."""
        size = self.training.batch_size
        known: Sequence[int] = range(len(self.forget)) if attempt == 0 else self.list_sampled_forget_rows()
        numbers = sampling.draw_forget_row_numbers(self.seed, step, attempt, len(known), size)
        drawn = [known[number] for number in numbers]
        if isinstance(self.forget, sampling.AlternativeAnswerRows):  # whose answers are others in each epoch
            rows = len(self.forget)
            return [row + (step * size + place) // rows * rows for place, row in enumerate(drawn)]
        return drawn


@dataclass
class TrainingState:
    """The part that changes from step to step, apart from weights and optimizer.

    `reference`: S_i^0 by row number, less that of its other answer where there is one. `multiplier`: that of a dual.
    """

    reference: dict[int, float] | None
    step: int = 0
    multiplier: float | None = None


@dataclass(frozen=True)
class RetainPassResults:
    """A step's retain rows, and what was found there: by `observe`, and by the rectifier's or dual's pass, if any.

    `losses` are on the device, by their column in the record. `gradient` is kept only where a term of the objective is
    the same loss (`Term.nll_weight`), which then has no pass.
    """

    rows: list[int]
    losses: dict[str, torch.Tensor]
    observed: list[torch.Tensor] | None = None
    tokens: int = 0
    gradient: list[torch.Tensor] | None = None


def make_initial_state(engine: Engine, task: TrainingTask) -> TrainingState:
    """Return the state before the first step: the target model's S_i^0, without dropout, if the objective needs them.

    They are of the rows of the run alone: 20 steps see a fortieth of WMDP's texts.
    """
    state = TrainingState(None, multiplier=task.objective.dual and task.objective.dual.start)
    if not task.objective.needs_reference:
        return state
    rows, numbers, batch = task.forget, task.list_sampled_forget_rows(), task.training.batch_size
    size = task.micro_batch or batch // engine.world
    engine.module.eval()
    state.reference = forward_backward.compute_row_loss_sums(engine, rows, numbers, task, size)
    if isinstance(rows, sampling.AlternativeAnswerRows):
        epochs = -(-task.count_steps() * batch // len(rows))
        items = [epoch * len(rows) + number for epoch in range(epochs) for number in numbers]
        term = Term("forget", nll, answers="other")
        others = forward_backward.compute_row_loss_sums(engine, rows, items, task, size, term)
        state.reference = {item: state.reference[item % len(rows)] - others[item] for item in items}
    if not all(map(math.isfinite, state.reference.values())):
        raise TrialDiverged("the target model's loss of a forget row is not finite")
    engine.module.train()
    return state


def train_steps(engine: Engine, task: TrainingTask, state: TrainingState | None = None) -> Iterator[dict[str, Any]]:
    """Train from `state` on; one record an optimizer step, as in steps.parquet, after which `state` is up to date.

    Raises TrialDiverged, on every rank alike, where a loss or the gradient is not finite.
    """
    state = state or make_initial_state(engine, task)
    steps = task.count_steps()
    while state.step < steps:
        yield _step(engine, task, state, steps)


def _step(engine: Engine, task: TrainingTask, state: TrainingState, steps: int) -> dict[str, Any]:
    started, step = time.perf_counter(), state.step
    passed = _retain_passes(engine, task, step)
    record, outcome = _rectified_gradient(engine, task, state, passed, step, 0)
    attempts = 1
    while outcome.degenerate and attempts < MAX_BATCH_ATTEMPTS:  # other rows; the average has its retain gradient
        engine.clear_gradients()
        torch.manual_seed(sampling.make_noise_seed(task.seed, step, attempts, engine.rank))
        record, outcome = _rectified_gradient(engine, task, state, passed, step, attempts)
        attempts += 1
    training = task.training
    warmup = int(training.warmup_epochs * len(task.forget) // training.batch_size) or training.warmup_steps
    lr = compute_learning_rate(training, step, steps, warmup)
    if outcome.degenerate:
        engine.clear_gradients()
    else:
        engine.step(lr)
    state.step = step + 1
    if task.objective.dual is not None and state.multiplier is not None:
        record["retain_multiplier"] = state.multiplier
        if step >= task.objective.dual.warmup * len(task.forget) // training.batch_size:
            state.multiplier = task.objective.dual.update(state.multiplier, record["retain_loss"])
    tokens = record.pop("tokens")
    return {
        "step": step + 1,
        **record,
        **{name: value for name, value in asdict(outcome).items() if name != "degenerate"},
        "skipped": outcome.degenerate,
        "attempts": attempts,
        "lr": lr,
        "tokens_per_second": tokens / (time.perf_counter() - started),
        "peak_memory_bytes": runtime.read_peak_memory(engine.device),
    }


def find_retain_collapse(bar: float | None, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return an error of kind `collapsed` if a measured retain loss is above its bar: the same on every rank."""
    losses = [record.get(name, math.nan) for name in ("retain_loss", "observed_retain_loss")]
    highest = max(filter(math.isfinite, losses), default=-math.inf)
    if bar is None or highest <= bar:
        return None
    message = f"retain loss {highest:.4g} is above training.stop_above={bar:g} at step {record['step']}"
    return {"kind": "collapsed", "message": message, "step": record["step"]}


def compute_learning_rate(training: Training, step: int, steps: int, warmup: int) -> float:
    """Return that of optimizer step `step` (from 0): linear warm-up, then constant or linear to zero."""
    if step < warmup:
        return training.lr * (step + 1) / warmup
    if training.schedule == "constant":
        return training.lr
    return training.lr * (steps - step) / max(1, steps - warmup)


def _retain_passes(engine: Engine, task: TrainingTask, step: int) -> RetainPassResults:
    """Take the passes of a step that come once, whatever its attempts; the engine's gradient is zero after them."""
    observed, found = None, {}
    if task.observe and step % task.observe == 0:  # first, and with random numbers of its own: it changes nothing
        seed = task.seed + OBSERVED_SEED_OFFSET
        torch.manual_seed(sampling.make_noise_seed(seed, step, 0, engine.rank))
        rows = sampling.draw_retain_row_numbers(seed, step, 0, len(task.retain), task.training.batch_size)
        terms = [(NLL_TERM, task.retain, rows)]
        found["observed_retain_loss"], _ = forward_backward.accumulate_gradient(engine, terms, task)
        observed = [part.clone() for part in engine.grad_shard()]
        engine.clear_gradients()
    torch.manual_seed(sampling.make_noise_seed(task.seed, step, 0, engine.rank))
    rows = []
    if task.rectifier.needs_retain or task.objective.needs_retain:
        rows = sampling.draw_retain_row_numbers(task.seed, step, 0, len(task.retain), task.training.batch_size)
    if not (task.rectifier.needs_retain or task.objective.dual or task.objective.has_balanced_retain_weight):
        return RetainPassResults(rows, found, observed)
    parts = task.rectifier.parts
    shared = parts == 1 and any(map(_is_retain_nll, task.objective.terms))
    losses, counts, gradient = [], [], None
    for part in range(parts):
        terms = [(NLL_TERM, task.retain, rows[part::parts])]
        loss, tokens = forward_backward.accumulate_gradient(engine, terms, task)
        if task.rectifier.needs_retain:
            task.rectifier.take_retain_gradient(engine.gradients())
        gradient = [each.clone() for each in engine.grad_shard()] if shared else None
        engine.clear_gradients()
        losses.append(loss)
        counts.append(tokens)
    found["retain_loss"] = losses[0] if parts == 1 else sum(map(mul, losses, counts)) / sum(counts)
    return RetainPassResults(rows, found, observed, sum(counts), gradient)


def _rectified_gradient(
    engine: Engine, task: TrainingTask, state: TrainingState, passed: RetainPassResults, step: int, attempt: int
) -> tuple[dict[str, Any], rectifiers.Outcome]:
    """Leave the rectified gradient of one attempt in the engine."""
    forget, terms, balanced = task.draw_forget_batch(step, attempt), [], task.objective.has_balanced_retain_weight
    weight: Any = 0.0
    for term in task.objective.terms:
        if _is_retain_nll(term) and state.multiplier is not None:
            loss = scale_loss(nll, state.multiplier)
            term = replace(term, loss=loss, nll_weight=state.multiplier)
        if _is_retain_nll(term) and passed.gradient is not None:
            weight += 0.0 if balanced else term.nll_weight or 0.0
        else:
            rows = (task.forget, forget) if term.side == "forget" else (task.retain, passed.rows)
            terms.append((term, *rows))
    loss, tokens = forward_backward.accumulate_gradient(engine, terms, task, state.reference)
    if passed.gradient is not None:
        if balanced:  # stays on the device, as a GPU would be waited for
            pair = shard_dot_products(engine.grad_shard(), passed.gradient)
            weight = compute_balancing_weight(engine.sum_over_shards(pair))
        loss += weight * passed.losses["retain_loss"]
        for part, kept in zip(engine.grad_shard(), passed.gradient, strict=True):
            if balanced:
                part.addcmul_(kept, weight.to(part))
            else:
                part.add_(kept, alpha=weight)
    asked = passed.losses | {"loss": loss} | ({"retain_multiplier": weight} if balanced else {})
    found, products = _read(engine, task.rectifier, asked, step)
    record = {"retain_loss": math.nan, "tokens": passed.tokens + tokens, **found}
    if task.observe:
        cosine = _cosine(engine, passed.observed, step)
        record = {"observed_retain_loss": math.nan, **record, "observed_cos": cosine}
    if task.rectifier.by_tensor:
        task.rectifier.segments = engine.segments
    if task.rectifier.needs_metric:
        task.rectifier.metric = engine.adam_second_moments()
    try:
        outcome = _rectify(engine, task.rectifier, products)
    except FloatingPointError as error:
        raise TrialDiverged(f"{error} at step {step + 1}", step + 1) from error
    if task.observe:
        record["observed_cos_after"] = _cosine(engine, passed.observed, step)
    _check_finite(outcome.grad_norm, "gradient norm", step)
    return record, outcome


def _read(
    engine: Engine, rectifier: rectifiers.Rectifier, losses: dict[str, torch.Tensor], step: int
) -> tuple[dict[str, float], list[float]]:
    """Return the losses, and the products that the rectifier decides by, read together: a step waits for a GPU once.

    A rule that writes the gradient has none of these; it, and the cosines of `observe`, read for themselves.
    """
    wanted = [*losses.values()]
    if isinstance(engine, PlainEngine) and rectifier.combines:
        wanted += shard_dot_products(engine.gradients(), rectifier.average or engine.gradients())
    values = torch.stack(wanted).tolist()
    found = dict(zip(losses, values, strict=False))
    for name, value in found.items():
        _check_finite(value, name.replace("_", " "), step)
    return found, values[len(losses) :]


def _rectify(engine: Engine, rectifier: rectifiers.Rectifier, products: list[float]) -> rectifiers.Outcome:
    """Rectify the engine's gradient: written there, or left to the optimizer's own reading where both can."""
    if not products or not isinstance(engine, PlainEngine):
        return rectifier.apply(engine.grad_shard(), engine.sum_over_shards)
    found = rectifier.decide(*products)
    if not found.outcome.degenerate:
        engine.combine(found, rectifier.average)
    return found.outcome


def _is_retain_nll(term: Term) -> bool:
    return term.side == "retain" and term.nll_weight is not None


def _cosine(engine: Engine, retain: list[torch.Tensor] | None, step: int) -> float:
    """Return the cosine of the engine's gradient and an observed one; NaN between observations."""
    if retain is None:
        return math.nan
    dot, retain_square, square = engine.sum_over_shards(shard_dot_products(engine.grad_shard(), retain)).tolist()
    _check_finite(retain_square, "squared norm of the observed retain gradient", step)
    norm = math.sqrt(retain_square * square)
    return dot / norm if norm > 0 else 0.0


def _check_finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise TrialDiverged(f"{name} is {value} at step {step + 1}", step + 1)
