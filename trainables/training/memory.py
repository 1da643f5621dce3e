"""What a trial takes on each rank, in bytes: states, activations, logits; the ZeRO stage and micro-batch that follow.

States are weights, gradients, optimizer, GRU's moving average and a frozen copy; `choose_stage` fills a share of the
device with them. What a row of the micro-batch keeps for its backward pass comes on top (`peak`), and `fit` takes as
many rows as there is room for. The constants are counted from transformers' layers, autograd and DeepSpeed, and checked
against measured peaks (tests/trainables/training/test_measured_memory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainables.config.methods import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import Precision, Shape
from trainables.config.trial import Trial
from trainables.methods import presets

WIDTH: dict[str, int] = {"fp32": 4, "bf16": 2}
FILLED = 0.7
"""The share of a device's memory that states may take."""
STAGES = (1, 2, 3)
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


def states(
    parameters: int,
    trained: int,
    *,
    ranks: int,
    stage: int,
    precision: Precision,
    average: bool,
    frozen: bool,
    offloaded: bool = False,
) -> States:
    """Of a model of `parameters`, of which `trained` have a gradient, with AdamW.

    From ZeRO 1 on the optimizer (two fp32 moments and an fp32 copy of the weights) is split over ranks, from 2 on the
    gradients, at 3 the weights; gradients are accumulated in an fp32 shard beside. The moving average is one
    fp32 shard wherever the optimizer is split. Both are elsewhere where they are `offloaded` to the CPU.
    """
    width, fp32 = WIDTH[precision], 4
    owner = ranks if stage >= 1 else 1
    gradients = trained * width / (ranks if stage >= 2 else 1)
    if stage >= 1 or precision == "bf16":
        gradients += trained * fp32 / owner
    if offloaded:
        trained = 0
    copies = 3 if stage >= 1 or precision == "bf16" else 2
    return States(
        weights=parameters * width / (ranks if stage == 3 else 1),
        gradients=gradients,
        optimizer=copies * trained * fp32 / owner,
        average=trained * fp32 / owner if average else 0,
        frozen=parameters * width if frozen else 0,
    )


def choose_stage(on_stage: Callable[[int], States], memory: float, ranks: int) -> int:
    """The first of ZeRO 1, 2, 3 whose states fit `FILLED` of a device's `memory` (bytes), else 3; 1 for one rank."""
    if ranks == 1:
        return STAGES[0]
    return next((stage for stage in STAGES if on_stage(stage).total <= FILLED * memory), STAGES[-1])


@dataclass(frozen=True)
class Load:
    """What one rank holds and computes. `trained`: parameters with a gradient; `vectors`: a task vector is made.

    `steered`: the layer that RMU steers, of which and of the two before it alone the last matrix is trained.
    """

    shape: Shape
    trained: int
    ranks: int
    stage: int
    precision: Precision
    average: bool = False
    frozen: bool = False
    compared: bool = False
    offloaded: bool = False
    checkpointing: bool = False
    eager: bool = False
    gpu: bool = False
    vectors: bool = False
    steered: int | None = None

    def states(self) -> States:
        return states(
            self.shape.parameters,
            self.trained,
            ranks=self.ranks,
            stage=self.stage,
            precision=self.precision,
            average=self.average,
            frozen=self.frozen,
            offloaded=self.offloaded,
        )


@dataclass(frozen=True)
class Peak:
    """Bytes on one rank. `step`: what the optimizer's step needs beyond states, when activations are gone."""

    states: States
    activations: float
    logits: float
    buffers: float
    step: float

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
    """The sizes in a config.json; None where it names them in another way, or has something else there."""
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


def load_of(trial: Trial, shape: Shape, stage: int = 1) -> Load:
    """What a rank of `trial` holds, on a ZeRO stage."""
    resources, method = trial.resources, METHODS[trial.method]
    constants = presets.constants(trial.method, trial.objective, trial.benchmark.split)
    return Load(
        shape=shape,
        trained=_trained(trial, shape),
        ranks=resources.ranks,
        stage=stage,
        precision=resources.precision,
        average=RETAIN_PASS in RECTIFIERS[trial.rectifier.name].needs,
        frozen="frozen_model" in method.needs,
        compared="distributions" in method.needs,
        offloaded=resources.offload_optimizer and resources.gpus > 0,
        checkpointing=resources.gradient_checkpointing,
        eager=trial.target.attention == "eager",
        gpu=resources.gpus > 0,
        vectors=method.strength is not None,
        steered=constants.layer if method.steers else None,
    )


def _trained(trial: Trial, shape: Shape) -> int:
    """All weights, RMU's three matrices, or the adapters of every linear layer but the head."""
    if METHODS[trial.method].steers:
        return 3 * shape.hidden * shape.intermediate
    rank = trial.training.lora_rank
    if rank is None:
        return shape.parameters
    wide, narrow = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sides = 2 * (shape.hidden + wide) + 2 * (shape.hidden + narrow)
    sides += (3 if shape.gated else 2) * (shape.hidden + shape.intermediate)
    return rank * shape.layers * sides


def layer_bytes(load: Load, length: int) -> float:
    """What one layer keeps of one token for its backward pass.

    Norms compute in fp32: their input, the normalised value and the result, each `hidden` wide. Attention keeps
    queries, keys and values (repeated to all heads) and its result; a gated feed-forward keeps four vectors of
    `intermediate`, Phi's five. Eager attention keeps a row of `length` scores for each head.
    """
    shape, width = load.shape, WIDTH[load.precision]
    norms = 2 * (4 + 2 * width) * shape.hidden if shape.gated else 3 * width * shape.hidden
    attention = 4 * width * shape.heads * shape.head_size
    scores = shape.heads * length * (4 + 2 * width) if load.eager else 0
    return norms + attention + scores + (4 if shape.gated else 5) * width * shape.intermediate


def all_layers_bytes(load: Load, length: int) -> float:
    """What all layers keep of one token.

    Of RMU only those from its first trained matrix on: with frozen weights a norm keeps its input alone, and the
    feed-forward does not keep what its last matrix reads, but where that one is trained.
    """
    shape, width = load.shape, WIDTH[load.precision]
    layer = layer_bytes(load, length)
    if load.checkpointing:
        return shape.layers * width * shape.hidden + layer
    if load.steered is None:
        return shape.layers * layer
    first = max(0, load.steered - 2)
    read = width * shape.intermediate
    passed = layer - 2 * 2 * width * shape.hidden - read
    return (shape.layers - first - 1) * passed + (load.steered - first + 1) * read


def peak(load: Load, rows: int, length: int) -> Peak:
    """A training step of `rows` rows at a time, each of at most `length` tokens, all of them labels.

    Logits: three tensors over the vocabulary in fp32 in the backward pass (log-softmax and two gradients), which RMU
    has in GRU's retain pass; seven where distributions are compared. The optimizer's step needs two more fp32 shards,
    when the whole gradient is gone; on ZeRO 3, which goes by sub-groups of the shard, three of a sub-group.
    """
    shape, width, tokens = load.shape, WIDTH[load.precision], rows * length
    kept = all_layers_bytes(load, length)
    logits = tokens * shape.vocabulary * (28 if load.compared else 12)
    found = Peak(load.states(), tokens * (kept + 3 * width * shape.hidden), logits, 0.0, 0.0)
    if load.vectors:
        return replace(found, states=_vector_states(load))
    if load.stage == 0:
        return found
    whole = load.trained * width / (load.ranks if load.stage == 2 else 1)
    shards = 0 if load.offloaded else 2 * load.trained * 4 / load.ranks
    if load.stage == 3 and not load.offloaded:
        whole, shards = 0, 3 * 4 * min(SUBGROUP, load.trained / load.ranks)
    buffers = width * min(BUCKET, load.trained) if load.gpu else 0
    return replace(found, buffers=buffers, step=max(0.0, shards - whole))


def _vector_states(load: Load) -> States:
    """A task vector in the making, split over ranks in fp32: beside weights, gradients and AdamW three vectors."""
    part = load.shape.parameters * 4 / load.ranks
    return States(weights=part, gradients=part, optimizer=2 * part, average=3 * part, frozen=0)


def fit(trial: Trial, shape: Shape, longest: int, memory: float | None) -> Fit:
    """ZeRO stage and micro-batch of a trial on devices of `memory` bytes, as far as the configuration leaves them open.

    The micro-batch is the share of a rank in as few equal parts as fit; a row is refused by `Fit.fits`, not here.
    """
    resources, load = trial.resources, load_of(trial, shape)
    stage = resources.zero_stage
    if stage is None:
        stage = 1 if memory is None else choose_stage(lambda on: replace(load, stage=on).states(), memory, load.ranks)
    load = replace(load, stage=stage)
    length = max(longest, padded_to(trial))
    share, limit = trial.training.batch_size // resources.ranks, None if memory is None else USABLE * memory
    rows = resources.micro_batch or share
    if resources.micro_batch is None and limit is not None:
        one, none = peak(load, 1, length), peak(load, 0, length)
        room = limit - none.states.total - none.buffers
        parts = -(-share // max(1, int(room / (one.activations + one.logits))))
        rows = -(-share // parts)
    return Fit(stage, rows, peak(load, rows, length), limit)


def padded_to(trial: Trial) -> int:
    """Tokens that a term over all positions pads its rows to at least; 0: only to each other."""
    if "distributions" not in METHODS[trial.method].needs:
        return 0
    settings = presets.constants(trial.method, trial.objective, trial.benchmark.split)
    return presets.FIXED_PAD if settings.kl_reduction == "all_positions_fixed_pad" else 0
