"""Memory, micro-batch and hours of a plan, by hand for a 7B model; what cannot fit is refused with the numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from platform.plan.plan import Plan
from search_spaces.backbones.llama2 import LLAMA2
from tests.support import small_sweep, tiny
from trainables.common.errors import InputError
from trainables.config.settings import (
    Benchmark,
    Model,
    Rectifier,
    Resources,
    Shape,
    Training,
)
from trainables.config.trial import Trial
from trainables.data import fictional
from trainables.storage.folder_storage import Storage
from trainables.training import memory
from trainables.trial import setup

GB = 1e9
SEVEN = LLAMA2.shape
GRU = Rectifier(name="gru", gamma=0.8)
EIGHTY = Resources(ranks=4, gpus=1, precision="bf16")


def trial(**settings: Any) -> Trial:
    return Trial(**{"method": "ga", "target": Model(path="m"), "resources": EIGHTY, **settings})


def plan(name: str, store: Storage, *settings: str, **options: Any) -> Plan:
    return small_sweep.plan_named(name, store, *settings, **{"strategy": "paper", **options})


# Sizes


SMALL: dict[str, Any] = {"vocab_size": 128, "hidden_size": 32, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 48, "num_hidden_layers": 2}


def test_parameters_are_those_of_the_model() -> None:
    """Also with shared keys and tied embeddings; Phi has no gate, and few biases, which are not counted."""
    from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

    shared: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True}
    phi = {**SMALL, "hidden_size": 64, "intermediate_size": 256, "vocab_size": 512}
    networks = (tiny.network(), LlamaForCausalLM(LlamaConfig(**SMALL, **shared)), PhiForCausalLM(PhiConfig(**phi)))
    for network in networks:
        shape = memory.parse_model_shape(network.config.to_dict())
        assert shape is not None
        weights = sum(each.numel() for name, each in network.named_parameters() if not name.endswith("bias"))
        assert shape.parameter_count == pytest.approx(weights, rel=0 if shape.gated else 0.005)
        assert shape.gated == (network is not networks[2])
    assert memory.parse_model_shape(networks[1].config.to_dict()) == Shape(
        hidden=32, layers=2, heads=4, kv_heads=2, head_size=16, intermediate=48, vocabulary=128, tied=True
    )
    assert memory.parse_model_shape({"n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}) is None, (
        "no guesses"
    )


# Memory


def test_peak_of_a_7b_model_by_hand() -> None:
    """bf16: a layer keeps of a token 16 h for norms, 8 h for attention, 10 times the feed-forward's width, a mask."""
    found = memory.estimate_peak(trial(rectifier=GRU), SEVEN, 2, 2, 100)
    layer = 16 * 4096 + 8 * 4096 + 10 * 11008 + 2 * 100
    assert found.activations == 200 * (32 * layer + 32000 * 12)
    assert found.buffers == 2 * 2 * 500_000_000
    assert found.states.total == pytest.approx(SEVEN.parameter_count * (2 + (4 + 12 + 4) / 4))
    assert found.evaluation == 4 * 4096 * 2 * 33 * 4096 * 2, "keys and values, one layer moving"
    assert found.total == found.states.total + found.buffers + found.evaluation


# Micro-batch


def test_micro_batch_is_the_share_in_as_few_parts_as_fit() -> None:
    """That of the user stands, and without a GPU it is the share."""
    found = [memory.fit_memory(trial(rectifier=GRU), SEVEN, 256, size * GB) for size in (64, 80, 140)]
    assert [(fit.micro_batch, fit.fits) for fit in found] == [(4, True), (8, True), (8, True)]
    chosen = EIGHTY.model_copy(update={"micro_batch": 5})
    assert memory.fit_memory(trial(resources=chosen), SEVEN, 256, 20 * GB).micro_batch == 5
    on_cpu = memory.fit_memory(trial(resources=Resources(ranks=2)), SEVEN, 256, None)
    assert (on_cpu.micro_batch, on_cpu.fits) == (16, True)


def test_a_run_takes_the_micro_batch_of_the_plan(tmp_path: Path) -> None:
    """On a GPU the run derives what --dry-run says, from the model's folder."""
    import torch

    place = tiny.write_model(tmp_path / "model")
    shape = memory.parse_model_shape(tiny.network().config.to_dict())
    assert shape is not None
    chosen = trial(
        target=Model(path=str(place)),
        benchmark=Benchmark(name="tofu"),
        resources=Resources(gpus=1, gpu_memory=0.012, precision="bf16"),
    )
    planned = memory.fit_memory(chosen, shape, 256, 0.012 * GB)
    assert 1 < planned.micro_batch < 32
    assert setup.plan_micro_batch(chosen, torch.device("cuda")) == planned.micro_batch


def test_a_pass_on_the_cpu_has_about_a_thousand_tokens(tmp_path: Path) -> None:
    import torch

    fictional.write_fictional_authors(tmp_path / "authors", authors=8, questions=3, forget_percent=(25,), seed=3)
    rows = Benchmark(name="tofu", data=str(tmp_path / "authors"), split="forget25")
    model = Model(path=str(tiny.write_model(tmp_path / "model")))

    def passed(method: str = "gd", size: int = 64, **resources: Any) -> int | None:
        training = Training(batch_size=size)
        chosen = trial(method=method, target=model, benchmark=rows, training=training, resources=Resources(**resources))
        return setup.plan_micro_batch(chosen, torch.device("cpu"))

    lengths = [len(row.input_ids) for side in setup.load_examples(trial(target=model, benchmark=rows)) for row in side]
    assert passed() == int(1024 * len(lengths) / sum(lengths))
    assert passed("ga_kl") == 2, "its rows are padded to 500 tokens"
    assert (passed(size=4), passed(size=4, ranks=2)) == (4, 2), "no more than a rank has"
    assert passed(micro_batch=3) == 3


# Plans


def test_what_cannot_fit_is_refused_with_the_numbers(store: Storage) -> None:
    with pytest.raises(InputError) as error:
        plan("tofu_llama", store, "resources.ranks=1")
    text = str(error.value)
    assert text.startswith("resources: gd with rectifier gru on forget05 needs ")
    assert "(ZeRO 0, micro-batch 1: weights 13.5, gradients 53.9, optimizer 80.9, average 53.9" in text
    assert "of a GPU 73.6 GB are usable; 27 other kinds of trials do not fit either; take more ranks " in text
    (size,) = re.findall(r"GPUs of (\d+) GB \(--set resources\.gpu_memory=GB\)", text)
    assert plan("tofu_llama", store, "resources.ranks=1", f"resources.gpu_memory={size}").trials
    assert plan("tofu_llama", store, "resources.ranks=1", "resources.gpu_memory=none").trials
