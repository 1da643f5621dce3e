"""transformers' Trainer, as bench/step.py sets it beside our loop."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from transformers import DataCollatorForSeq2Seq, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainables.common.tokens import Example
from trainables.config.settings import Training
from trainables.inference.scoring import IGNORED


class Spent(NamedTuple):
    """Seconds: of wall-clock, and of the process's processors, which other work on the machine changes less."""

    wall: float
    cpu: float


def moment() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def between(ended: list[Spent]) -> Spent:
    """Return what passed from the first moment to the last."""
    return Spent(ended[-1].wall - ended[0].wall, ended[-1].cpu - ended[0].cpu)


class Transformers:
    """transformers' Trainer with dynamic padding; no logging, saving, clipping or watching for NaN.

    `run(first, steps)` takes the optimizer steps `first + 1` to `first + steps` of the batches, and returns the time of
    all of them but the first, which pays for what a block of steps starts with.
    """

    def __init__(
        self, network: Any, tokenizer: Any, batches: Sequence[list[Example]], training: Training, folder: str
    ) -> None:
        self.network, self.batches = network, batches
        self.clock = _Clock()
        self.collator = DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORED)
        self.optimizer = torch.optim.AdamW(  # our engine's optimizer and settings
            network.parameters(), training.lr, training.betas, training.eps, training.weight_decay, fused=True
        )
        self.arguments: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": training.batch_size,
            "train_sampling_strategy": "sequential",
            "max_grad_norm": 0.0,
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "logging_nan_inf_filter": False,
            "remove_unused_columns": False,
            "dataloader_pin_memory": False,
            "use_cpu": True,
        }

    def run(self, first: int, steps: int) -> Spent:
        rows = [features(row) for batch in self.batches[first : first + steps] for row in batch]
        with patch.dict(os.environ):
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # the Trainer would take our process group for its own
                os.environ.pop(name, None)
            trainer = Trainer(
                model=self.network,
                args=TrainingArguments(max_steps=steps, **self.arguments),
                train_dataset=rows,  # type: ignore[arg-type]
                data_collator=self.collator,
                callbacks=[self.clock],
                optimizers=(self.optimizer, torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)),
            )
        trainer.remove_callback(PrinterCallback)
        if trainer.accelerator.num_processes != 1 or trainer.accelerator.distributed_type != "NO":
            raise AssertionError(f"the Trainer is distributed: {trainer.accelerator.distributed_type}")
        self.clock.ended.clear()
        trainer.train()
        return between(self.clock.ended)


class _Clock(TrainerCallback):
    """When each optimizer step ended."""

    def __init__(self) -> None:
        self.ended: list[Spent] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ended.append(moment())


def features(row: Example) -> dict[str, list[int]]:
    """Return a row as transformers' collators take it."""
    ids, start = list(row.input_ids), row.answer_start
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [IGNORED] * start + ids[start:]}
