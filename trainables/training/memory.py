"""The memory plan of a trial: bytes of states, activations and logits on a rank, and the ZeRO stage and micro-batch.

States are weights, gradients, optimizer, GRU's moving average and a frozen copy; `choose_stage` fills a share of the
device with them. What a row of the micro-batch keeps for its backward pass (activations.py) comes on top (`peak`), and
`fit` takes as many rows as there is room for. The constants are DeepSpeed 0.19.8's
(tests/trainables/training/test_counted_states.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import Resources, Shape
from trainables.config.trial import Trial
from trainables.methods import method_constants
from trainables.training.activation_bytes import WIDTH, all_layers_bytes, evaluation_bytes, loss_bytes

FILLED = 0.76
"""The share of a device's memory that states may take."""
USABLE = 0.92
"""The share that a whole trial may take: the rest is CUDA's own and what its allocator cannot use."""
BUCKET = 500_000_000
"""Elements of DeepSpeed's buffer of gradients on their way, on a GPU, at the most."""
GATHERED = 1_000_000_000
"""Elements of weights that ZeRO 3 keeps gathered at the most (stage3_max_live_parameters)."""
SUBGROUP = 1_000_000_000
"""Elements that ZeRO 3 updates at a time."""
UNGATED = ("phi", "gpt_neox", "gpt2", "opt")
"""Architectures, as config.json's model_type has them, whose feed-forward layer has no gate."""


@dataclass(frozen=True)
class States:
    """Bytes on one rank."""

    weights: float
    gradients: float
    optimizer: float
    average: float
    frozen: float
    retain_gradient: float = 0.0
    """A stored one: for `observe`, or where one retain pass feeds both the rectifier and the objective."""

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.average + self.frozen + self.retain_gradient


@dataclass(frozen=True)
class Peak:
    """Bytes on one rank. `step`, `evaluation`: what these need beyond states, when activations are gone."""

    states: States
    activations: float
    logits: float
    buffers: float = 0.0
    step: float = 0.0
    evaluation: float = 0.0

    @property
    def training(self) -> float:
        return self.states.total + self.buffers + max(self.activations + self.logits, self.step)

    @property
    def total(self) -> float:
        return max(self.training, self.states.total + self.buffers + self.evaluation)


@dataclass(frozen=True)
class Fit:
    """A trial on its device: `limit` is what it may take (None: unknown)."""

    stage: int
    micro_batch: int
    peak: Peak
    limit: float | None

    @property
    def fits(self) -> bool:
        return self.limit is None or self.peak.total <= self.limit


def shape_of(settings: Mapping[str, Any]) -> Shape | None:
    """Return the sizes in a config.json; None if it names them in another way, or has something else there."""
    try:
        heads, hidden = settings["num_attention_heads"], settings["hidden_size"]
        return Shape(
            hidden=hidden,
            layers=settings["num_hidden_layers"],
            heads=heads,
            kv_heads=settings.get("num_key_value_heads") or heads,
            head_size=settings.get("head_dim") or hidden // heads,
            intermediate=settings["intermediate_size"],
            vocabulary=settings["vocab_size"],
            gated=settings.get("model_type") not in UNGATED,
            tied=bool(settings.get("tie_word_embeddings")),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def states(trial: Trial, parameters: int, trained: int, stage: int) -> States:
    """Return the states of a model of `parameters`, of which `trained` have a gradient, with AdamW.

    From ZeRO 1 on the optimizer (two fp32 moments and an fp32 copy of the weights) and an fp32 gradient are split over
    ranks, at 3 the weights. In bf16 at ZeRO 1 DeepSpeed has the whole fp32 gradient on every rank, beside that of
    autograd. The moving average is one fp32 shard, a kept retain gradient another. Both are on the CPU where the
    optimizer is.
    """
    resources = trial.resources
    ranks, width, fp32 = resources.ranks, WIDTH[resources.precision], 4
    owner = ranks if stage >= 1 else 1
    whole = stage == 1 and resources.precision == "bf16"
    split = 0 if _is_offloaded(resources) else trained
    return States(
        weights=parameters * width / (ranks if stage == 3 else 1),
        gradients=trained * (width + fp32 if whole else fp32 / owner),
        optimizer=(3 if stage >= 1 else 2) * split * fp32 / owner,
        average=split * fp32 / owner * count_retain_shards(trial),
        frozen=parameters * width if "frozen_model" in METHODS[trial.method].needs else 0,
        retain_gradient=split * fp32 / owner * (bool(trial.observe) + shares_retain_pass(trial)),
    )


def count_retain_shards(trial: Trial) -> int:
    """Return how many retain gradients, or averages of them, the rectifier keeps."""
    row = RECTIFIERS[trial.rectifier.name]
    return (trial.rectifier.parts or row.parts) if RETAIN_PASS in row.needs else 0


def shares_retain_pass(trial: Trial) -> bool:
    """Return whether a retain pass of its own may serve a term of the objective too (trainables.training.loop).

    Of an objective in custom/ with a retain term, what its gradient takes is planned, and the pass that it may save.
    """
    method = METHODS[trial.method]
    settings = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
    shards, coefficient = count_retain_shards(trial), settings.retain_coefficient
    if "retain_multiplier" in method.needs:
        return shards <= 1
    return shards == 1 and "retain_loss" in method.needs and coefficient > 0


def choose_stage(trial: Trial, parameters: int, trained: int, memory: float | None) -> int:
    """Return the first ZeRO stage whose states fit `FILLED` of a device's `memory` (bytes), else 3; 1 for one rank.

    Of bf16 on several ranks from 2 on: at 1 DeepSpeed keeps a whole fp32 gradient on every rank. `memory` None: any.
    """
    if trial.resources.ranks == 1:
        return 1
    room = math.inf if memory is None else FILLED * memory
    stages = (2,) if trial.resources.precision == "bf16" else (1, 2)
    return next((stage for stage in stages if states(trial, parameters, trained, stage).total <= room), 3)


def _is_offloaded(resources: Resources) -> bool:
    return resources.offload_optimizer and resources.gpus > 0


def _trained(trial: Trial, shape: Shape) -> int:
    """Count trained parameters: all, RMU's three matrices, or the adapters of every linear layer but the head."""
    if METHODS[trial.method].steers:
        return 3 * shape.hidden * shape.intermediate
    rank = trial.training.lora_rank
    if rank is None:
        return shape.parameters
    wide, narrow = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sides = 2 * (shape.hidden + wide) + 2 * (shape.hidden + narrow)
    sides += (3 if shape.gated else 2) * (shape.hidden + shape.intermediate)
    return rank * shape.layers * sides


def peak(trial: Trial, shape: Shape, stage: int, rows: int, length: int) -> Peak:
    """Return the peak of a training step of `rows` rows at a time, each of at most `length` tokens, all of them labels.

    The optimizer's step copies the fp32 shard of the gradient (ZeRO 3: of a sub-group), and takes the largest
    parameter's norm in fp64. Beside what trains, rank 0 evaluates a whole model at ZeRO 3, and
    with LoRA one that has the adapters folded in.
    """
    resources, method = trial.resources, METHODS[trial.method]
    width, ranks = WIDTH[resources.precision], resources.ranks
    tokens = rows * length * (2 if "pairs" in method.needs else 1)
    activations = tokens * (all_layers_bytes(trial, shape, length) + 5 * width * shape.hidden)
    logits = tokens * loss_bytes(trial, shape, length)
    if method.strength is not None:
        return _task_vector_peak(trial, shape, activations, logits)
    trained = _trained(trial, shape)
    held = states(trial, shape.parameters, trained, stage)
    largest = min(trained, shape.hidden * max(shape.vocabulary, shape.intermediate))
    shard = 0 if _is_offloaded(resources) else 4 * trained / ranks
    step = {0: 0.0, 3: min(shard, 4 * SUBGROUP)}.get(stage, 0.0 if resources.precision == "bf16" else shard)
    copied = stage == 3 or (trial.training.lora_rank and trial.training.eval_every)
    whole = shape.parameters * width if copied else 0
    buffers = _buffer_bytes(resources, shape, trained, largest, stage) if resources.gpus else 0
    evaluation = evaluation_bytes(trial, shape, resources.precision) + whole
    return Peak(held, activations, logits, buffers, max(step, 8 * largest / (ranks if stage == 3 else 1)), evaluation)


def _buffer_bytes(resources: Resources, shape: Shape, trained: int, largest: int, stage: int) -> float:
    """Return DeepSpeed's buckets of gradients and their reduced copies, the newest gradient, ZeRO 3's gathered weights.

    Counted as live tensors: tests/trainables/training/test_counted_states.py.
    """
    width, bucket = WIDTH[resources.precision], min(BUCKET, trained)
    copies = {0: 1, 1: 2 if width == 4 else 0, 2: 2, 3: 2 + 4 / width}[stage]
    gathered = min(GATHERED, shape.parameters) if stage == 3 and resources.ranks > 1 else 0
    return width * (copies * bucket + largest + gathered)


def _task_vector_peak(trial: Trial, shape: Shape, activations: float, logits: float) -> Peak:
    """Return the peak of the making of a task vector, or of the evaluation of the model that was moved along it.

    Split over ranks in fp32: weights, gradients, AdamW's moments and three vectors. Gathered in the precision of the
    passes: embeddings and two layers. Rank 0 evaluates in fp32, whatever the precision.
    """
    resources = trial.resources
    part = shape.parameters * 4 / resources.ranks
    held = States(part, part, 2 * part, 3 * part, 0)
    embeddings = 2 * shape.vocabulary * shape.hidden
    gathered = embeddings + 2 * (shape.parameters - embeddings) / shape.layers
    buffers = WIDTH[resources.precision] * gathered if resources.ranks > 1 or resources.precision == "bf16" else 0
    evaluation = max(0.0, 4 * shape.parameters + evaluation_bytes(trial, shape, "fp32") - held.total)
    return Peak(held, activations, logits, buffers, evaluation=evaluation)


def fit(trial: Trial, shape: Shape, longest: int, memory: float | None) -> Fit:
    """Return ZeRO stage and micro-batch on devices of `memory` bytes, as far as the configuration leaves them open.

    The micro-batch is the share of a rank in as few equal parts as fit; one row that is too large shows in `Fit.fits`.
    """
    resources, stage = trial.resources, trial.resources.zero_stage
    if stage is None:
        stage = choose_stage(trial, shape.parameters, _trained(trial, shape), memory)
    length = max(longest, padded_to(trial))
    share, limit = trial.training.batch_size // resources.ranks, None if memory is None else USABLE * memory
    rows = resources.micro_batch or share
    if resources.micro_batch is None and limit is not None:
        one = peak(trial, shape, stage, 1, length)
        room = limit - one.states.total - one.buffers
        parts = -(-share // max(1, int(room / (one.activations + one.logits))))
        rows = -(-share // parts)
    return Fit(stage, rows, peak(trial, shape, stage, rows, length), limit)


def padded_to(trial: Trial) -> int:
    """Return the tokens that a term over all positions pads its rows to at least; 0: only to each other."""
    if "distributions" not in METHODS[trial.method].needs:
        return 0
    settings = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
    return method_constants.FIXED_PAD if settings.kl_reduction == "all_positions_fixed_pad" else 0
