"""A model that is trained on some rows again: how soon it knows what it was made to forget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from trainables.common.tokenized_row import Example
from trainables.config.settings import Attention, Resources, Training
from trainables.robustness.attacks import RELEARNING_BATCH_SIZE
from trainables.training import engine, loop
from trainables.trial import setup

DEFAULT_PASS_ROWS = 8


def relearn(
    network: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    lr: float,
    steps: Sequence[int],
    seed: int,
    resources: Resources,
    attention: Attention,
    measure: Callable[[int, Any], None],
) -> None:
    """Train on rows by AdamW, linearly falling rate, no weight decay; `measure` is given step and model after `steps`.

    The protocol of unlearning-depth-score (scripts/meta_eval_robustness.py).
    """
    epochs = math.ceil(max(steps) * RELEARNING_BATCH_SIZE / len(examples))
    batch = min(RELEARNING_BATCH_SIZE, len(examples))
    training = Training(
        lr=lr, epochs=epochs + 1, max_steps=max(steps), batch_size=batch, schedule="linear", weight_decay=0
    )
    rows = min(batch, resources.micro_batch or DEFAULT_PASS_ROWS)
    task = setup.make_fine_tuning_task(examples, training, tokenizer, seed, rows, clip=None)
    if resources.gradient_checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    run = engine.create_engine(network.train(), training, resources, attention)
    try:
        for entry in loop.train(run, task):
            if entry["step"] in steps:
                measure(entry["step"], run.module.eval())
                run.module.train()
    finally:
        run.close()
