"""Training a model on some rows again: the steps, their memory, and the same weights with checkpointing."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.encoding import encode_rows
from trainables.benchmarks.tofu import rows
from trainables.config.settings import Benchmark, Model, Resources
from trainables.robustness.attack_runner import relearn
from trainables.training import model_files, sampling
from trainables.training.runtime import prepare_process


def test_relearning_is_adamw_with_a_falling_rate(trial_inputs: Any) -> None:
    """One row at a time in plain PyTorch: the loss is the mean over the step's answer tokens."""
    prepare_process(Resources(), 0)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    network, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    restated, _ = model_files.load_model(Model(path=str(trial_inputs.target)))
    examples = encode_rows(tokenizer, rows.read_evaluation_rows(benchmark)["forget"][:5], "llama2", "paper", 200)
    seen: list[int] = []
    found: dict[str, torch.Tensor] = {}

    def measure(step: int, model: Any) -> None:
        assert not model.training
        seen.append(step)
        found.update({name: value.detach().clone() for name, value in model.state_dict().items()})

    relearn(
        *(network, tokenizer, examples),
        lr=1e-3,
        steps=(1, 3),
        seed=4,
        resources=Resources(),
        attention="sdpa",
        measure=measure,
    )
    assert seen == [1, 3]
    optimizer = torch.optim.AdamW(restated.parameters(), lr=1e-3, weight_decay=0)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = 1e-3 * (3 - step) / 3
        total, tokens = torch.zeros(()), 0
        for number in sampling.forget_batch(4, step, 0, len(examples), len(examples)):
            ids, start = torch.tensor([examples[number].input_ids]), examples[number].answer_start
            logits = restated(input_ids=ids).logits[0, start - 1 : -1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[0, start:], reduction="sum")
            tokens += ids.shape[1] - start
        optimizer.zero_grad()
        (total / tokens).backward()
        optimizer.step()
    for name, value in restated.state_dict().items():
        assert torch.allclose(found[name], value, atol=2e-5), name
