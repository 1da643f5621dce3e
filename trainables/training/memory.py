"""The memory plan of a trial: bytes of a rank from the model's sizes, and the ZeRO stage and micro-batch that fit.

Bounds, not counts: a run that is out of memory all the same starts again with half the micro-batch.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import KV_CACHE_FACTOR, LABELS_PER_CHUNK, ModelShape, Resources
from trainables.config.trial import Trial
from trainables.methods import method_constants

WEIGHT_BYTES = {"fp32": 4, "bf16": 2}
MAX_STATES_SHARE_OF_MEMORY, USABLE_SHARE = 0.76, 0.92
"""The shares of a device's memory that states and a whole trial may take: the rest is CUDA's and its allocator's."""
GRADIENT_BUCKET_ELEMENTS, GATHERED_WEIGHT_ELEMENTS = 500_000_000, 1_000_000_000
"""Elements at the most of DeepSpeed's buffer of gradients, and of weights that ZeRO 3 keeps gathered."""
CPU_PROCESS_BYTES = 0.52e9
"""Bytes of a process that has imported torch, transformers and Ray (torch 2.13, its CPU build), before any model."""
MIN_EVALUATION_PASS_TOKENS, CPU_PASS_TOKENS, MAX_PASS_TOKENS = 1024, 4096, 65536
"""Padded tokens of an evaluation's pass: at least and at most where a GPU's memory decides, and where it does not."""
CPU_TRAINING_PASS_TOKENS = 1024
"""About so many tokens of a training pass stay in a CPU's caches (docs/LOG.md, 2026-11-24: up to 1.4 times as fast)."""
OWN_CGROUPS_FILE = Path("/proc/self/cgroup")
CGROUP_LIMITS = {"": Path("/sys/fs/cgroup/memory.max"), "memory": Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")}
"""Linux's control groups that this process is in, and their files of the most memory, of version 2 and 1."""
UNGATED_MODEL_TYPES = ("phi", "gpt_neox", "gpt2", "opt")
"""Architectures, as config.json's model_type has them, whose feed-forward layer has no gate."""


@dataclass(frozen=True)
class ModelStates:
    """Bytes on one rank. `average`: of retain gradients, moving averages of them and those that are kept for a step."""

    weights: float
    gradients: float
    optimizer: float
    average: float
    frozen: float

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


@dataclass(frozen=True)
class PeakMemory:
    """Bytes on one rank: a pass has activations beside the states, an evaluation its own when those are gone.

    `buffers`: DeepSpeed's on a GPU. `process`: on a CPU, with the target model that it keeps for its next trials.
    """

    states: ModelStates
    process: float
    buffers: float
    activations: float
    evaluation: float

    @property
    def training_bytes(self) -> float:
        return self.states.total + self.process + self.buffers + self.activations

    @property
    def total(self) -> float:
        return self.states.total + self.process + self.buffers + max(self.activations, self.evaluation)


@dataclass(frozen=True)
class MemoryFit:
    """A trial on its device: `limit` is what it may take (None: unknown); `least`: its bytes with small evaluations."""

    stage: int
    micro_batch: int
    peak: PeakMemory
    limit: float | None
    least: float

    @property
    def fits(self) -> bool:
        return self.limit is None or self.peak.total <= self.limit


def read_usable_machine_memory() -> int:
    """Return the bytes that processes here may take: the machine's, or fewer of a container or a job of Slurm."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in OWN_CGROUPS_FILE.read_text().splitlines() if OWN_CGROUPS_FILE.is_file() else ():
        _, kinds, place = line.split(":", 2)
        if kinds in CGROUP_LIMITS:
            group = CGROUP_LIMITS[kinds].parent / place.strip("/")
            files = [folder / CGROUP_LIMITS[kinds].name for folder in (group, *group.parents)]  # each binds those below
            said = [file.read_text().strip() for file in files if file.is_file()]
            sizes += [int(size) for size in said if size.isdigit()]
    return min(sizes)


def compute_usable_gpu_share(resources: Resources) -> float:
    """Return the share of a GPU's memory that a process may take: less than its part, for its neighbours."""
    return 1.0 if resources.gpus >= 1 else USABLE_SHARE * resources.gpus


def parse_model_shape(settings: Mapping[str, Any]) -> ModelShape | None:
    """Return the sizes in a config.json; None if it names them in another way, or has something else there."""
    try:
        heads, hidden = settings["num_attention_heads"], settings["hidden_size"]
        return ModelShape(
            hidden=hidden,
            layers=settings["num_hidden_layers"],
            heads=heads,
            kv_heads=settings.get("num_key_value_heads") or heads,
            head_size=settings.get("head_dim") or hidden // heads,
            intermediate=settings["intermediate_size"],
            vocabulary=settings["vocab_size"],
            gated=settings.get("model_type") not in UNGATED_MODEL_TYPES,
            tied=bool(settings.get("tie_word_embeddings")),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def estimate_states(trial: Trial, parameters: int, trained: int, stage: int, *, several: bool = True) -> ModelStates:
    """Return the states of a model of `parameters`, of which `trained` have a gradient, with AdamW.

    From ZeRO 1 on ranks share the optimizer (two fp32 moments, an fp32 copy of the weights) and an fp32 gradient, which
    is whole in bf16 at ZeRO 1; at 3 the weights, too. With offload_optimizer shards in fp32 lie on the CPU.
    The plain engine has autograd's gradient and a flat one, as wide as the weights, with several micro-batches one in
    fp32, and an fp32 copy of bf16 weights.
    """
    resources = trial.resources
    width, owner = WEIGHT_BYTES[resources.precision], resources.ranks if stage >= 1 else 1
    whole = stage == 1 and resources.precision == "bf16"
    split = 0 if resources.offload_optimizer and resources.gpus else 4 * trained / owner
    gradients, copies = trained * (width + 4 if whole else 4 / owner), 3 if stage >= 1 else 2
    if resources.uses_plain_engine:
        gradients, copies = trained * (2 * width + 4 * several), 3 if resources.precision == "bf16" else 2
    # retain gradients: those of the rectifier, that of `observe`, and one that serves the rectifier and a retain term
    row, needs = RECTIFIERS[trial.rectifier.name], METHODS[trial.method].needs
    kept = (trial.rectifier.parts or row.parts) if RETAIN_PASS in row.needs else 0
    term = trial_has_retain_loss(trial)
    apart = "retain_multiplier" in needs or (term and trial.objective.retain_coefficient == "balanced")
    shared = (kept == 1 and term) or (kept <= 1 and apart)
    return ModelStates(
        weights=parameters * width / (resources.ranks if stage == 3 else 1),
        gradients=gradients,
        optimizer=copies * split,
        average=(kept + bool(trial.observe) + shared) * split,
        frozen=parameters * width if "frozen_model" in needs else 0,
    )


def trial_has_retain_loss(trial: Trial) -> bool:
    settings = method_constants.resolve_constants(trial.method, trial.objective, trial.benchmark.split)
    return "retain_loss" in METHODS[trial.method].needs and settings.retain_coefficient != 0


def choose_fitting_zero_stage(trial: Trial, parameters: int, trained: int, memory: float | None) -> int:
    """Return the first ZeRO stage with states in MAX_STATES_SHARE_OF_MEMORY of `memory` (bytes), else 3; alone 0 or 1.

    Of bf16 on several ranks from 2 on: at 1 DeepSpeed keeps a whole fp32 gradient on every rank. `memory` None: any.
    """
    if trial.resources.ranks == 1:
        return 0 if trial.resources.uses_plain_engine else 1
    room = math.inf if memory is None else MAX_STATES_SHARE_OF_MEMORY * memory
    stages = (2,) if trial.resources.precision == "bf16" else (1, 2)
    return next((stage for stage in stages if estimate_states(trial, parameters, trained, stage).total <= room), 3)


def estimate_peak_memory(
    trial: Trial, shape: ModelShape, stage: int, rows: int, length: int, limit: float | None = None
) -> PeakMemory:
    """Return the peak of a trial that reads `rows` rows of at most `length` tokens at a time, all of them labels.

    Rank 0 evaluates a whole model at ZeRO 3, and one with adapters folded in; a moved one in fp32. `limit`: the bytes
    that an evaluation without a size of its own chooses its size by.
    """
    resources, method = trial.resources, METHODS[trial.method]
    tokens = rows * length * (2 if "pairs" in method.needs else 1)
    activations = tokens * _token_bytes(trial, shape, length)
    width = 4 if method.strength is not None else WEIGHT_BYTES[resources.precision]
    kept_target = width * shape.parameter_count if resources.ranks == 1 else 0
    process = 0 if resources.gpus else CPU_PROCESS_BYTES + kept_target
    if method.strength is not None:  # weights, gradients, AdamW's moments and three vectors, in fp32
        part = 4 * shape.parameter_count / resources.ranks
        held = ModelStates(part, part, 2 * part, 3 * part, 0)
        moved = 4 * shape.parameter_count
        tokens = choose_evaluation_token_budget(resources, shape, 4, None if limit is None else limit - moved)
        left = max(0.0, moved + _evaluation_bytes(tokens, shape, 4) - held.total)
        return PeakMemory(held, process, 0, activations, left)
    trained = _count_trained(trial, shape)
    copied = stage == 3 or (trial.training.lora_rank and trial.training.eval_every)
    copy = width * shape.parameter_count if copied else 0
    buffers = 0 if resources.uses_plain_engine else 2 * min(GRADIENT_BUCKET_ELEMENTS, trained)
    if stage == 3 and resources.ranks > 1:
        buffers += min(GRADIENT_BUCKET_ELEMENTS, trained) + min(GATHERED_WEIGHT_ELEMENTS, shape.parameter_count)
    # Even with one micro-batch a step may need an fp32 gradient: where terms on forget and retain rows are summed, a
    # gradient is observed, or a rule writes it: any but these four, which bounds the rules of two gradients.
    summed = trial_has_retain_loss(trial) or "frozen_model" in method.needs
    several = summed or bool(trial.observe) or trial.rectifier.name not in ("none", "clip", "agem", "gru")
    several = several or rows < trial.training.batch_size // resources.ranks
    held = estimate_states(trial, shape.parameter_count, trained, stage, several=several)
    taken = width * buffers if resources.gpus else 0
    room = None if limit is None else limit - held.total - process - taken - copy
    tokens = choose_evaluation_token_budget(resources, shape, width, room)
    return PeakMemory(held, process, taken, activations, copy + _evaluation_bytes(tokens, shape, width))


def _count_trained(trial: Trial, shape: ModelShape) -> int:
    if METHODS[trial.method].steers:
        return 3 * shape.hidden * shape.intermediate
    rank = trial.training.lora_rank
    if rank is None:
        return shape.parameter_count
    wide, narrow = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sides = 2 * (shape.hidden + wide) + 2 * (shape.hidden + narrow)
    sides += (3 if shape.gated else 2) * (shape.hidden + shape.intermediate)
    return rank * shape.layers * sides


def _token_bytes(trial: Trial, shape: ModelShape, length: int) -> float:
    """Return what layers and loss keep of one token for the backward pass.

    A layer: norms in fp32 and their results, queries, keys, values, output, five vectors of the feed-forward, a mask.
    The loss: three tensors over the vocabulary in fp32, six for distributions. Checkpointing keeps a vector a layer.
    """
    width = WEIGHT_BYTES[trial.resources.precision]
    layer = (8 + 4 * width) * shape.hidden + 4 * width * shape.heads * shape.head_size
    layer += 5 * width * shape.intermediate + width * length
    if trial.target.attention == "eager":
        layer += shape.heads * length * (4 + 2 * width)
    layers = shape.layers * layer
    if trial.resources.gradient_checkpointing:
        layers = shape.layers * width * shape.hidden + layer
    distributions = "distributions" in METHODS[trial.method].needs
    return layers + shape.vocabulary * (24 if distributions else 12)


def choose_evaluation_token_budget(
    resources: Resources, shape: ModelShape | None, width: int, room: float | None
) -> int:
    """Return the padded tokens of an evaluation's pass: as set, or as many as `room` bytes of a GPU hold.

    `shape` None, `room` None: where sizes are not known, and on a CPU.
    """
    if resources.evaluation_tokens is not None:
        return resources.evaluation_tokens
    if shape is None or room is None:
        return CPU_PASS_TOKENS
    tokens = MAX_PASS_TOKENS
    while tokens > MIN_EVALUATION_PASS_TOKENS and _evaluation_bytes(tokens, shape, width) > room:
        tokens //= 2
    return tokens


def _evaluation_bytes(tokens: int, shape: ModelShape, width: int) -> float:
    """Return the bytes of keys and values of generations, or of a pass over answers, of which all tokens are labels."""
    kept = 2 * (shape.layers + 1) * shape.kv_heads * shape.head_size * width
    read = width * (shape.vocabulary + 8 * shape.hidden + 3 * shape.intermediate)
    return max(tokens * KV_CACHE_FACTOR * kept, tokens * read + min(tokens, LABELS_PER_CHUNK) * 8 * shape.vocabulary)


def fit_trial_to_memory(trial: Trial, shape: ModelShape, longest: int, memory: float | None) -> MemoryFit:
    """Return ZeRO stage and micro-batch on devices of `memory` bytes, as far as the configuration leaves them open.

    A micro-batch is the share of a rank in as few equal parts as fit; too large a row shows in `MemoryFit.fits`.
    """
    resources, stage = trial.resources, trial.resources.zero_stage
    if stage is None:
        stage = choose_fitting_zero_stage(trial, shape.parameter_count, _count_trained(trial, shape), memory)
    length = max(longest, find_loss_padding_length(trial))
    share, limit = trial.training.batch_size // resources.ranks, None if memory is None else USABLE_SHARE * memory
    rows = resources.micro_batch or share
    whole = estimate_peak_memory(trial, shape, stage, rows, length, limit)
    if resources.micro_batch is None and limit is not None and whole.training_bytes > limit:
        one = estimate_peak_memory(trial, shape, stage, 1, length)
        parts = -(-share // max(1, int((limit - one.states.total - one.process - one.buffers) / one.activations)))
        rows = -(-share // parts)
    least = estimate_peak_memory(trial, shape, stage, rows, length).total
    return MemoryFit(stage, rows, estimate_peak_memory(trial, shape, stage, rows, length, limit), limit, least)


def choose_cpu_micro_batch(trial: Trial, mean_tokens: float) -> int:
    """Return the rows of a CPU's pass, equal parts of about CPU_TRAINING_PASS_TOKENS; `mean_tokens`: of a row."""
    rows = max(1, int(CPU_TRAINING_PASS_TOKENS / max(mean_tokens, find_loss_padding_length(trial))))
    share = trial.training.batch_size // trial.resources.ranks
    return -(-share // -(-share // rows))


def find_loss_padding_length(trial: Trial) -> int:
    """Return the tokens that a term over all positions pads its rows to at least; 0: only to each other."""
    settings = method_constants.resolve_constants(trial.method, trial.objective, trial.benchmark.split)
    padded = "distributions" in METHODS[trial.method].needs and settings.kl_reduction == "all_positions_fixed_pad"
    return method_constants.TOFU_ROW_TOKENS if padded else 0
