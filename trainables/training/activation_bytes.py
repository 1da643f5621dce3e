"""The bytes that passes of a model keep on a device: of its layers and losses in training, and in an evaluation.

Counted from transformers' layers and autograd, and checked against PyTorch's memory tracker at full size
(tests/trainables/training/test_counted_memory.py).
"""

from __future__ import annotations

from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import CACHED_PER_PASS, Precision, Shape
from trainables.config.trial import Trial
from trainables.methods import method_constants

WIDTH: dict[str, int] = {"fp32": 4, "bf16": 2}


def layer_bytes(trial: Trial, shape: Shape, length: int) -> float:
    """Return what one layer keeps of one token for its backward pass.

    Norms compute in fp32: their input, the normalised value and the result, each `hidden` wide. Attention keeps
    queries, keys and values and its result; a gated feed-forward keeps four vectors of `intermediate`, Phi's five.
    Where heads share keys and values, only flash attention (a GPU, bf16, no mask) does not repeat them. A mask is a
    row of `length`; eager attention keeps such a row of scores for each head, in fp32 PyTorch's for shared keys, too.
    """
    width, gpu = WIDTH[trial.resources.precision], trial.resources.gpus > 0
    norms = 2 * (4 + 2 * width) * shape.hidden if shape.gated else 3 * width * shape.hidden
    masked = _is_masked(trial)
    shares = shape.kv_heads < shape.heads and gpu and not masked
    keys = shape.kv_heads if shares and width == 2 else shape.heads
    attention = 2 * width * (shape.heads + keys) * shape.head_size + 4 * shape.heads + masked * width * length
    scores = shape.heads * length * (4 + 2 * width) if trial.target.attention == "eager" else 0
    if shares and width == 4 and not scores:
        scores = shape.heads * length * 4
    return norms + attention + scores + (4 if shape.gated else 5) * width * shape.intermediate


def _is_masked(trial: Trial) -> bool:
    """Return whether a term attends to padding, for it reads positions there."""
    settings = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
    row = METHODS[trial.method]
    if row.steers:
        return settings.rmu_reduction == "all_positions"
    return "distributions" in row.needs and settings.kl_reduction.startswith("all_positions")


def all_layers_bytes(trial: Trial, shape: Shape, length: int) -> float:
    """Return what all layers keep of one token.

    Of RMU only those from its first trained matrix on: with frozen weights a norm keeps its input alone, and the
    feed-forward does not keep what its last matrix reads, unless that matrix is trained.
    """
    width = WIDTH[trial.resources.precision]
    layer = layer_bytes(trial, shape, length)
    if trial.resources.gradient_checkpointing:
        return shape.layers * width * shape.hidden
    if not METHODS[trial.method].steers:
        return shape.layers * layer
    steered = method_constants.constants(trial.method, trial.objective, trial.benchmark.split).layer
    first = max(0, steered - 2)
    read = width * shape.intermediate
    passed = layer - 2 * 2 * width * shape.hidden - read
    return (shape.layers - first - 1) * passed + (steered - first + 1) * read


def loss_bytes(trial: Trial, shape: Shape, length: int) -> float:
    """Return what the loss of one token takes beside the layers.

    Three tensors over the vocabulary in fp32 (log-softmax and two gradients); five, and both models' logits, where
    distributions are compared. RMU has the hidden states of all layers of both models instead, and logits in a retain
    pass alone. With checkpointing one layer at a time is computed again, when logits are gone.
    """
    width, needs = WIDTH[trial.resources.precision], METHODS[trial.method].needs
    logits = shape.vocabulary * (20 + 2 * width if "distributions" in needs else 12)
    again = trial.resources.gradient_checkpointing * 1.5 * layer_bytes(trial, shape, length)
    if not METHODS[trial.method].steers:
        return max(logits, again)
    hidden = (2 * (shape.layers + 1) * width + 20) * shape.hidden
    retain_pass = trial.observe or RETAIN_PASS in RECTIFIERS[trial.rectifier.name].needs
    return max(hidden + again, logits if retain_pass else 0)


def evaluation_bytes(trial: Trial, shape: Shape, precision: Precision) -> float:
    """Return what an evaluation takes beside the model: keys and values of generations, or a pass over answers."""
    width, tokens = WIDTH[precision], trial.resources.evaluation_tokens
    kept = 2 * (shape.layers + 1) * shape.kv_heads * shape.head_size * width
    read = (8 + width) * shape.vocabulary + width * (8 * shape.hidden + 3 * shape.intermediate)
    return tokens * max(CACHED_PER_PASS * kept, read)
