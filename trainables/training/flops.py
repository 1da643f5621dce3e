"""Estimate of a trial's time: 6 N D floating-point operations of training, and its evaluations.

A forward pass of a model of N parameters over D tokens is 2 N D operations, its backward pass 4 N D; recomputed
activations add 2 N D. Generation is bound by the memory's speed: a token of each row of a pass reads all weights once.
"""

from __future__ import annotations

from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import CACHED_PER_PASS, Shape
from trainables.config.trial import Trial
from trainables.methods import method_constants
from trainables.training import memory, sampling

FORWARD, BACKWARD = 2, 4
EFFICIENCY = 0.35
"""Assumed share of a GPU's speed that training reaches."""
SPEED = {"bf16": 312e12, "fp32": 19.5e12}
"""Floating-point operations a second of an A100."""
BYTES = {"bf16": 2, "fp32": 4}
BANDWIDTH = 1e12
"""Bytes a second that generation is assumed to read from an A100's memory: half of its 2 TB/s."""
ROW_TOKENS = 256
"""Tokens of a row that is generated, with its prompt, roughly: so many have their keys and values in a pass."""


def basis(precision: str) -> str:
    """Return the assumptions behind the hours, in words."""
    speed = f"{EFFICIENCY:.0%} of an A100's {SPEED[precision] / 1e12:g} TFLOP/s"
    return f"training 6 N D at {speed}, with evaluations; generation reads {BANDWIDTH / 1e12:g} TB/s"


def hours(operations: float, precision: str) -> float:
    """Return GPU-hours."""
    return operations / (EFFICIENCY * SPEED[precision]) / 3600


def evaluation_hours(trial: Trial, shape: Shape, stage: int, points: int, read: float, generated: float) -> float:
    """Return the GPU-hours of all evaluations of a trial on `points` forget rows; those of mixtures at most.

    An evaluation reads and generates so many tokens. Ranks share it, or the first one does it while the others wait: of
    mixtures, of task vectors (in fp32), at ZeRO `stage` 3, and of adapters while training goes on.
    """
    training, resources, moved = trial.training, trial.resources, trial.task_vector is not None
    alone, precision = moved or stage == 3, "fp32" if moved else resources.precision
    count = resources.ranks if alone else 1
    count += resources.ranks * len(trial.calibration.targets) * trial.calibration.evaluations
    if training.eval_every and not moved:
        steps = sampling.count_steps(points, training.batch_size, training.epochs, training.max_steps)
        count += (resources.ranks if alone or training.lora_rank else 1) * ((steps - 1) // training.eval_every)
    rows = max(1.0, CACHED_PER_PASS * resources.evaluation_tokens / ROW_TOKENS)
    reading = FORWARD * shape.parameters * read / (EFFICIENCY * SPEED[precision])
    return count * (reading + generated / rows * shape.parameters * BYTES[precision] / BANDWIDTH) / 3600


def operations(trial: Trial, shape: Shape, points: int, tokens: float) -> float:
    """Count the floating-point operations of a trial on `points` forget rows of `tokens` tokens on average."""
    size, once = shape.parameters, FORWARD + BACKWARD
    if trial.resources.gradient_checkpointing:
        once += FORWARD
    if trial.task_vector is not None:
        return once * size * points * tokens * (trial.task_vector.steps + 2)
    training = trial.training
    steps = sampling.count_steps(points, training.batch_size, training.epochs, training.max_steps)
    settings = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
    row, needs, custom = once * tokens, METHODS[trial.method].needs, METHODS[trial.method].custom
    if RETAIN_PASS in RECTIFIERS[trial.rectifier.name].needs or "retain_multiplier" in needs:
        row += once * tokens
    if "pairs" in needs:
        row += once * tokens
    if "retain_loss" in needs and settings.retain_coefficient and (custom or not memory.shares_retain_pass(trial)):
        row += once * tokens
    if "frozen_model" in needs:
        row += (once + FORWARD) * max(tokens, memory.padded_to(trial))
    if "frozen_on_forget" in needs:
        row -= once * tokens
    drawn = steps * training.batch_size
    rows = FORWARD * (min(points, drawn) + ("pairs" in needs) * drawn) * tokens if "reference_sums" in needs else 0
    observed = -(-steps // trial.observe) if trial.observe else 0
    return size * (training.batch_size * (steps * row + observed * once * tokens) + rows)
