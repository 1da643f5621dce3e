"""A small Llama's training steps in this process, and the peak of its anonymous memory: run by test_measured_memory.

Anonymous pages alone (RssAnon): files that are mapped, such as libraries, are not counted. Sampled from a thread.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainables import engine, loop, objectives, presets, rectification
from trainables.config import Resources, Training
from trainables.templates import Example

SAMPLED_EVERY = 0.002


def anonymous() -> int:
    """Bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def train(sizes: dict[str, Any], micro_batch: int, length: int, *, checkpointing: bool = False, stage: int = 1) -> None:
    """Two steps of GD with GRU on rows that are labels from the second token on, two micro-batches a step."""
    network = LlamaForCausalLM(LlamaConfig(max_position_embeddings=length, **sizes))
    if checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    training = Training(lr=1e-4, batch_size=2 * micro_batch, epochs=2, max_steps=2)
    runner = engine.create(network.train(), training, Resources(zero_stage=stage))
    generator = torch.Generator().manual_seed(0)
    rows = [
        Example(tuple(torch.randint(3, sizes["vocab_size"], (length,), generator=generator).tolist()), 1)
        for _ in range(2 * micro_batch)
    ]
    task = loop.Task(
        forget=rows,
        retain=rows,
        objective=objectives.make("gd", presets.Constants()),
        rectifier=rectification.make("gru", 0.8, None),
        training=training,
        seed=0,
        pad=0,
        micro_batch=micro_batch,
    )
    for _ in loop.run(runner, task):
        pass
    runner.close()


def main(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    engine.join(torch.device("cpu"))
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    train({**small, "vocab_size": 64}, 1, 8)  # what libraries take at first use is not the plan's
    before, highest, done = anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.is_set():
            highest = max(highest, anonymous())
            time.sleep(SAMPLED_EVERY)

    thread = threading.Thread(target=watch)
    thread.start()
    train(**job)
    done.set()
    thread.join()
    print(json.dumps({"bytes": highest - before}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
