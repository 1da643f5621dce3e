"""Settings with which trials fit their GPUs, for the message about a plan that does not fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from platform.plan.space import spell_setting
from trainables.config.method_tables import METHODS
from trainables.config.settings import Shape
from trainables.config.trial import Trial
from trainables.training import memory

RANKS = (2, 4, 8)
"""GPUs of a trial that are tried: those of one server."""
SAVING = {"precision": "bf16", "gradient_checkpointing": True, "offload_optimizer": True}
LORA = {"lora_rank": 8}

Kinds = Sequence[tuple[Trial, int]]
"""A trial of each kind, with the tokens of its longest row."""


def list_fitting_settings(kinds: Kinds, shape: Shape, device: float) -> Iterator[str]:
    """Yield settings that fit GPUs of `device` bytes, with what the largest trial then takes: fewer GPUs first.

    More GPUs only where they need fewer further settings; LoRA, which trains something else, and larger GPUs last.
    """
    resources = kinds[0][0].resources
    pinned = {name: None for name in ("zero_stage", "micro_batch") if getattr(resources, name) is not None}
    saving = [(name, value) for name, value in SAVING.items() if getattr(resources, name) != value]
    choices = [extra for count in range(len(saving) + 1) for extra in itertools.combinations(saving, count)]
    for ranks in (resources.ranks, *(ranks for ranks in RANKS if ranks > resources.ranks)):
        if any(trial.training.batch_size % ranks for trial, _ in kinds):
            continue
        more = {"ranks": ranks} if ranks != resources.ranks else {}
        for extra in choices:
            if found := _describe(kinds, shape, device, pinned | more | dict(extra)):
                yield found
                choices = [other for other in choices if len(other) < len(extra)]
                break
    if not any(METHODS[trial.method].strength or METHODS[trial.method].steers for trial, _ in kinds):
        for extra in ({}, {"gradient_checkpointing": True}):
            if found := _describe(kinds, shape, device, pinned | extra, LORA):
                yield found
                break
    least = max(memory.fit(trial, shape, longest, device).peak.total for trial, longest in kinds) / memory.USABLE
    yield f"GPUs of {math.ceil(least / 1e9)} GB (--set resources.gpu_memory=GB)"


def _describe(
    kinds: Kinds, shape: Shape, device: float, resources: Mapping[str, Any], training: Mapping[str, Any] | None = None
) -> str | None:
    """Return changed settings and the memory of the largest trial with them, None if one does not fit."""
    largest = None
    for trial, longest in kinds:
        changed = trial.model_copy(
            update={
                "resources": trial.resources.model_copy(update=dict(resources)),
                "training": trial.training.model_copy(update=dict(training or {})),
            }
        )
        fit = memory.fit(changed, shape, longest, device)
        if not fit.fits:
            return None
        largest = fit if largest is None or fit.peak.total > largest.peak.total else largest
    assert largest is not None
    typed = [f"--set resources.{name}={spell_setting(value)}" for name, value in resources.items()]
    typed += [f"--set training.{name}={value}" for name, value in (training or {}).items()]
    size = f"{largest.peak.total / 1e9:.1f} GB, ZeRO {largest.stage}, micro-batch {largest.micro_batch}"
    return f"{' '.join(typed)} ({size})"
