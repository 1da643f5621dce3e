"""One step of a model of 1.24B parameters on the CPU: the shape of Llama-3.2-1B with random weights."""

from __future__ import annotations

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from search_spaces.backbones.llama3 import LLAMA32_1B
from trainables.common.tokenized_row import Example
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, loop
from trainables.training.runtime import prepare_process

NEEDED = 15e9
"""Bytes: weights and gradients in fp32, and room."""


@pytest.mark.slow
def test_a_step_of_gradient_ascent_on_a_billion_parameters() -> None:
    if psutil.virtual_memory().available < NEEDED:
        pytest.skip(f"less than {NEEDED / 1e9:.0f} GB of memory are free")
    shape = LLAMA32_1B.shape
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(0)
    network = LlamaForCausalLM(config)
    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(1.24e9, rel=0.005)
    training = Training(lr=1e-3, max_steps=1, batch_size=2, optimizer="sgd", weight_decay=0)
    examples = [Example(tuple(range(start, start + 24)), 8) for start in (5, 105)]
    task = loop.TrainingTask(
        forget=examples,
        retain=(),
        objective=objectives.make_objective("ga", method_constants.Constants()),
        rectifier=rectifiers.make_rectifier("none"),
        training=training,
        seed=0,
        pad=0,
    )

    def loss(model: torch.nn.Module) -> float:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([one.input_ids for one in examples])).logits[:, 7:-1]
        labels = torch.tensor([one.input_ids[8:] for one in examples])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()

    before = loss(network.eval())
    resources = Resources(zero_stage=0)
    prepare_process(resources, 0)
    run = engine.create_engine(network.train(), training, resources)
    (entry,) = loop.train(run, task)
    assert entry["step"] == 1
    assert loss(run.module.eval()) > before, "ascent makes the forget rows less likely"
    run.close()
