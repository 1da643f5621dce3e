"""A model that is trained on some rows again: how soon it knows what it was made to forget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainables import benchmarks
from trainables.benchmarks.tofu import rows
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.trial import Trial
from trainables.inference.padded_batch import pad_of
from trainables.methods import method_constants, objectives, rectifiers
from trainables.robustness.attacks import BATCH
from trainables.training import engine, loop, memory, model_files
from trainables.trial import setup

MOST_ROWS = 8
"""Rows of a forward pass, unless it is planned how many fit."""


def plan_resources(model: Model, benchmark: Benchmark, resources: Resources, device: torch.device) -> Resources:
    """Return the resources with as many rows of a pass as fit the GPU, by the memory plan of trials, on one rank.

    All weights are trained, by AdamW. Raises InputError where that does not fit. Of the CPU nothing is planned.
    """
    shape = model_files.shape_of(model)
    if device.type != "cuda" or shape is None:
        return resources
    training = Training(batch_size=BATCH, max_length=rows.RULES[benchmark.dialect].max_length)
    trial = Trial(method="ga", target=model, benchmark=benchmark, training=training, resources=resources)
    longest = benchmarks.find(benchmark.name).size_estimate(benchmark, training.max_length).longest
    plan = memory.fit(trial, shape, longest, setup.gpu_memory(trial, device))
    if not plan.fits:
        sizes = (plan.peak.total, plan.peak.states.total, plan.limit or 0.0)
        needed, held, usable = (f"{size / 1e9:.1f} GB" for size in sizes)
        raise InputError(
            f"--attacks: relearning needs {needed} of one GPU (micro-batch {plan.micro_batch}; weights, gradients and "
            f"optimizer {held}), {usable} are usable; leave it out: --attacks int8,nf4,paraphrase,template,prefix"
        )
    return resources.model_copy(update={"micro_batch": plan.micro_batch})


def relearn(
    network: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    lr: float,
    steps: Sequence[int],
    seed: int,
    resources: Resources,
    measure: Callable[[int, Any], None],
) -> None:
    """Train on rows by AdamW, linearly falling rate, no weight decay, and measure the model after some steps.

    The protocol of unlearning-depth-score (scripts/meta_eval_robustness.py). `measure` is given the step and the model.
    """
    epochs = math.ceil(max(steps) * BATCH / len(examples))
    batch = min(BATCH, len(examples))
    training = Training(
        lr=lr, epochs=epochs + 1, max_steps=max(steps), batch_size=batch, schedule="linear", weight_decay=0
    )
    task = loop.TrainingTask(
        forget=examples,
        retain=(),
        objective=objectives.make_objective("nll", method_constants.Constants()),
        rectifier=rectifiers.make_rectifier("none", None, None),
        training=training,
        seed=seed,
        pad=pad_of(tokenizer),
        micro_batch=min(batch, resources.micro_batch or MOST_ROWS),
    )
    if resources.gradient_checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    run = engine.create_engine(network.train(), training, resources)
    try:
        for entry in loop.train(run, task):
            if entry["step"] in steps:
                measure(entry["step"], run.module.eval())
                run.module.train()
    finally:
        run.close()
