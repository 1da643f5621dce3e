"""The attacks, and what each does to a model or to what it is asked. Without torch: commands list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainables.common.errors import InputError, closest
from trainables.config.settings import Benchmark

STEPS = (1, 4, 13)
"""Optimizer steps after which a relearning is measured: 13 steps of 32 are once all 400 rows of forget10."""
BATCH = 32
SAMPLES = 8
"""Sampled answers to a question."""
MEASURE = "extraction_strength"
"""What the share that came back is of, unless an attack says otherwise."""
NONE, SECOND_HALF = "none", "second half"
"""What was measured before any attack, and there of the rows that `relearn_half` is measured on."""
PREFIX = "Sure, here is the answer: "


@dataclass(frozen=True)
class Attack:
    """An attack. `kind`: on the weights, by training, on the prompt, or by sampling. `title`: in tables.

    `learns`: the rows that a relearning trains on, by steps of 32; it is measured on the forget rows, of
    `first half` on the others. `measure`: what comes back.
    """

    kind: Literal["quantization", "relearning", "prompt", "answers"]
    title: str
    learns: Literal["forget", "first half", "retain"] | None = None
    measure: str = MEASURE


ATTACKS = {
    "int8": Attack("quantization", "int8 weights"),
    "nf4": Attack("quantization", "4-bit weights (NF4)"),
    "relearn": Attack("relearning", "relearning the forget rows", "forget"),
    "relearn_half": Attack("relearning", "relearning one half, measured on the other", "first half"),
    "relearn_retain": Attack("relearning", "training on retain rows", "retain"),
    "paraphrase": Attack("prompt", "paraphrased questions"),
    "template": Attack("prompt", "another prompt template"),
    "prefix": Attack("prompt", f"prefix '{PREFIX.strip()}'"),
    "sampling": Attack("answers", f"best of {SAMPLES} sampled answers (ROUGE-L)", measure="rouge"),
}
ON_REQUEST = ("sampling",)
"""Attacks that take longer than others and are not among `all`."""
CHOICES = f"all, or some of {', '.join(ATTACKS)}; all is without {' and '.join(ON_REQUEST)}"
"""What may be typed."""


def is_relearning(name: str) -> bool:
    """Return whether an attack trains the model; `none` does not."""
    return name in ATTACKS and ATTACKS[name].kind == "relearning"


def choose(names: Sequence[str], field: str) -> list[str]:
    """Return the names of attacks, for `all` all but ON_REQUEST.

    Raises InputError naming the closest for an unknown one.
    """
    every = [name for name in ATTACKS if name not in ON_REQUEST] if "all" in names else []
    chosen = list(dict.fromkeys([*every, *(name for name in names if name not in ("", "all"))]))
    for name in chosen:
        if name not in ATTACKS:
            raise InputError(f"{field}: unknown attack '{name}'; {closest(name, ['all', *ATTACKS])}")
    if not chosen:
        raise InputError(f"{field}: name {CHOICES}")
    return chosen


def check_rate(names: Sequence[str], lr: float | None, field: str) -> None:
    """Raise InputError where a relearning has no learning rate, or none above 0."""
    if lr is None and any(map(is_relearning, names)):
        raise InputError(f"{field}: relearning needs a learning rate: that which trained the target model (1B: 2e-5)")
    if lr is not None and not lr > 0:
        raise InputError(f"{field}: {lr:g} is no learning rate; give a number above 0")


def check_benchmark(benchmark: Benchmark, field: str) -> None:
    """Raise InputError on another benchmark than TOFU."""
    if benchmark.name != "tofu":
        raise InputError(f"{field}: attacks are made on models of TOFU, not of {benchmark.name}")
