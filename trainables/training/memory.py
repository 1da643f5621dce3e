"""The memory plan of a trial: bytes of states, activations and logits on a rank, and the ZeRO stage and micro-batch.

States are weights, gradients, optimizer, GRU's moving average and a frozen copy; `choose_stage` fills a share of the
device with them. What a row of the micro-batch keeps for its backward pass comes on top (`peak`), and `fit` takes as
many rows as there is room for. The constants are counted from transformers' layers, autograd and DeepSpeed, and checked
against measured peaks (tests/trainables/training/test_measured_memory.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.config.methods import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import Resources, Shape
from trainables.config.trial import Trial
from trainables.methods import presets

WIDTH: dict[str, int] = {"fp32": 4, "bf16": 2}
FILLED = 0.7
"""The share of a device's memory that states may take."""
USABLE = 0.92
"""The share that a whole trial may take: the rest is CUDA's own and what its allocator cannot use."""
BUCKET = 500_000_000
"""Elements of DeepSpeed's buffer of gradients on their way, on a GPU."""
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

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.average + self.frozen


@dataclass(frozen=True)
class Peak:
    """Bytes on one rank. `step`: what the optimizer's step needs beyond states, when activations are gone."""

    states: States
    activations: float
    logits: float
    buffers: float = 0.0
    step: float = 0.0

    @property
    def total(self) -> float:
        return self.states.total + self.buffers + max(self.activations + self.logits, self.step)


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

    From ZeRO 1 on the optimizer (two fp32 moments and an fp32 copy of the weights) is split over ranks, from 2 on the
    gradients, at 3 the weights; gradients are also accumulated in an fp32 shard. The moving average is one fp32 shard
    wherever the optimizer is split. Both are on the CPU where they are offloaded.
    """
    resources = trial.resources
    ranks, width, fp32 = resources.ranks, WIDTH[resources.precision], 4
    owner = ranks if stage >= 1 else 1
    gradients = trained * width / (ranks if stage >= 2 else 1)
    if stage >= 1 or resources.precision == "bf16":
        gradients += trained * fp32 / owner
    split = 0 if _is_offloaded(resources) else trained
    copies = 3 if stage >= 1 or resources.precision == "bf16" else 2
    return States(
        weights=parameters * width / (ranks if stage == 3 else 1),
        gradients=gradients,
        optimizer=copies * split * fp32 / owner,
        average=split * fp32 / owner if RETAIN_PASS in RECTIFIERS[trial.rectifier.name].needs else 0,
        frozen=parameters * width if "frozen_model" in METHODS[trial.method].needs else 0,
    )


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


def layer_bytes(trial: Trial, shape: Shape, length: int) -> float:
    """Return what one layer keeps of one token for its backward pass.

    Norms compute in fp32: their input, the normalised value and the result, each `hidden` wide. Attention keeps
    queries, keys and values (repeated to all heads) and its result; a gated feed-forward keeps four vectors of
    `intermediate`, Phi's five. Eager attention keeps a row of `length` scores for each head.
    """
    width = WIDTH[trial.resources.precision]
    norms = 2 * (4 + 2 * width) * shape.hidden if shape.gated else 3 * width * shape.hidden
    attention = 4 * width * shape.heads * shape.head_size
    scores = shape.heads * length * (4 + 2 * width) if trial.target.attention == "eager" else 0
    return norms + attention + scores + (4 if shape.gated else 5) * width * shape.intermediate


def all_layers_bytes(trial: Trial, shape: Shape, length: int) -> float:
    """Return what all layers keep of one token.

    Of RMU only those from its first trained matrix on: with frozen weights a norm keeps its input alone, and the
    feed-forward does not keep what its last matrix reads, unless that matrix is trained.
    """
    width = WIDTH[trial.resources.precision]
    layer = layer_bytes(trial, shape, length)
    if trial.resources.gradient_checkpointing:
        return shape.layers * width * shape.hidden + layer
    if not METHODS[trial.method].steers:
        return shape.layers * layer
    steered = presets.constants(trial.method, trial.objective, trial.benchmark.split).layer
    first = max(0, steered - 2)
    read = width * shape.intermediate
    passed = layer - 2 * 2 * width * shape.hidden - read
    return (shape.layers - first - 1) * passed + (steered - first + 1) * read


def peak(trial: Trial, shape: Shape, stage: int, rows: int, length: int) -> Peak:
    """Return the peak of a training step of `rows` rows at a time, each of at most `length` tokens, all of them labels.

    Logits: three tensors over the vocabulary in fp32 in the backward pass (log-softmax and two gradients), which RMU
    has in GRU's retain pass; seven where distributions are compared. The optimizer's step needs two more fp32 shards,
    when the whole gradient is gone; on ZeRO 3, which goes by sub-groups of the shard, three of a sub-group. A task
    vector in the making is split over ranks in fp32: weights, gradients, AdamW's moments and three vectors.
    """
    resources, method = trial.resources, METHODS[trial.method]
    width, ranks, tokens = WIDTH[resources.precision], resources.ranks, rows * length
    activations = tokens * (all_layers_bytes(trial, shape, length) + 3 * width * shape.hidden)
    logits = tokens * shape.vocabulary * (28 if "distributions" in method.needs else 12)
    if method.strength is not None:
        part = shape.parameters * 4 / ranks
        return Peak(States(part, part, 2 * part, 3 * part, 0), activations, logits)
    trained = _trained(trial, shape)
    held = states(trial, shape.parameters, trained, stage)
    if stage == 0:
        return Peak(held, activations, logits)
    whole = trained * width / (ranks if stage == 2 else 1)
    shards = 0 if _is_offloaded(resources) else 2 * trained * 4 / ranks
    if stage == 3 and not _is_offloaded(resources):
        whole, shards = 0, 3 * 4 * min(SUBGROUP, trained / ranks)
    buffers = width * min(BUCKET, trained) if resources.gpus else 0
    return Peak(held, activations, logits, buffers, step=max(0.0, shards - whole))


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
    settings = presets.constants(trial.method, trial.objective, trial.benchmark.split)
    return presets.FIXED_PAD if settings.kl_reduction == "all_positions_fixed_pad" else 0
