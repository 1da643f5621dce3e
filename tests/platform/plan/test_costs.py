"""Memory, micro-batch and hours of a plan, by hand for a 7B model; what cannot fit is refused with the numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from platform.plan.build import make_plan
from platform.plan.overrides import apply
from platform.plan.plan import Plan
from search_spaces.backbones.llama2 import LLAMA2
from search_spaces.schema import sweep as spaces
from tests.support import small_sweep, tiny
from trainables.common.errors import InputError
from trainables.config.settings import (
    Benchmark,
    Calibration,
    Model,
    Objective,
    Rectifier,
    Resources,
    Shape,
    TaskVector,
    Training,
)
from trainables.config.trial import Trial
from trainables.data import fictional
from trainables.storage.folder_storage import Storage
from trainables.training import activation_bytes, flops, memory
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
        shape = memory.shape_of(network.config.to_dict())
        assert shape is not None
        weights = sum(each.numel() for name, each in network.named_parameters() if not name.endswith("bias"))
        assert shape.parameters == pytest.approx(weights, rel=0 if shape.gated else 0.005)
        assert shape.gated == (network is not networks[2])
    assert memory.shape_of(networks[1].config.to_dict()) == Shape(
        hidden=32, layers=2, heads=4, kv_heads=2, head_size=16, intermediate=48, vocabulary=128, tied=True
    )
    assert memory.shape_of({"n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}) is None, "no guesses"


# Memory


def test_peak_of_a_7b_model_by_hand() -> None:
    """bf16: a layer keeps of a token 16 h for norms, 8 h for attention, 8 times the feed-forward's width."""
    found = memory.peak(trial(rectifier=GRU), SEVEN, 2, 2, 100)
    layer = 16 * 4096 + 8 * 4096 + 4 * 32 + 8 * 11008
    assert found.activations == 200 * (32 * layer + 10 * 4096)
    assert found.logits == 200 * 32000 * 12
    assert found.buffers == 2 * (2 * 500_000_000 + 32000 * 4096)
    assert found.states.total == pytest.approx(SEVEN.parameters * (2 + (4 + 12 + 4) / 4))
    assert found.step == 8 * 32000 * 4096
    assert found.evaluation == 4 * 4096 * 2 * 33 * 4096 * 2, "keys and values, one layer moving"
    assert found.total == found.states.total + found.buffers + found.evaluation


def test_what_lies_beside_training_is_planned() -> None:
    """observe's clone of a shard; at ZeRO 3 the whole model that is evaluated; a moved model in fp32."""
    held, watched = (memory.peak(trial(observe=every), SEVEN, 2, 1, 10) for every in (None, 5))
    assert watched.states.total - held.states.total == SEVEN.parameters
    assert memory.peak(trial(), SEVEN, 3, 1, 10).evaluation - held.evaluation == 2 * SEVEN.parameters
    alone = EIGHTY.model_copy(update={"ranks": 16})
    moved = memory.peak(trial(method="tv", task_vector=TaskVector(strength=1.0), resources=alone), SEVEN, 1, 1, 10)
    assert moved.total - moved.buffers == pytest.approx(4 * SEVEN.parameters + 2 * held.evaluation)


def test_checkpointing_keeps_one_vector_a_layer() -> None:
    plain, saved = (
        memory.peak(trial(resources=resources), SEVEN, 1, 1, 1000).activations
        for resources in (EIGHTY, EIGHTY.model_copy(update={"gradient_checkpointing": True}))
    )
    assert saved == 1000 * (32 * 2 * 4096 + 10 * 4096)
    assert saved < plain / 10


def test_what_methods_hold_beside_the_model() -> None:
    def states(method: str, **settings: Any) -> memory.States:
        return memory.peak(trial(method=method, **settings), SEVEN, 1, 1, 10).states

    assert states("ga").frozen == 0
    assert states("npo_kl").frozen == states("rmu").frozen == 2 * SEVEN.parameters
    assert states("ga").average == 0
    assert states("ga", rectifier=GRU).average == SEVEN.parameters
    assert states("rmu").optimizer == pytest.approx(3 * 4 * (3 * 4096 * 11008) / 4)
    adapters = states("ga", training=Training(lora_rank=8)).optimizer / 3
    assert adapters == pytest.approx(8 * 32 * (4 * (4096 + 4096) + 3 * (4096 + 11008)))
    vector = TaskVector(stg=1.0)
    assert states("tru", task_vector=vector).total == pytest.approx(7 * SEVEN.parameters)


def test_eager_attention_keeps_scores_and_kl_two_distributions() -> None:
    eager = trial(target=Model(path="m", attention="eager"))
    extra = [activation_bytes.layer_bytes(chosen, SEVEN, 100) for chosen in (eager, trial())]
    assert extra[0] - extra[1] == 32 * 100 * 8
    one, two = (memory.peak(trial(method=name), SEVEN, 1, 1, 10).logits for name in ("gd", "npo_kl"))
    assert two / one == pytest.approx(24 / 12)


# Micro-batch


def test_micro_batch_is_the_share_in_as_few_parts_as_fit() -> None:
    """That of the user stands, and without a GPU it is the share."""
    found = [memory.fit(trial(rectifier=GRU), SEVEN, 256, size * GB) for size in (64, 80, 140)]
    assert [(fit.micro_batch, fit.fits) for fit in found] == [(4, True), (8, True), (8, True)]
    chosen = EIGHTY.model_copy(update={"micro_batch": 5})
    assert memory.fit(trial(resources=chosen), SEVEN, 256, 20 * GB).micro_batch == 5
    on_cpu = memory.fit(trial(resources=Resources(ranks=2)), SEVEN, 256, None)
    assert (on_cpu.micro_batch, on_cpu.fits) == (16, True)


def test_kl_pads_its_rows() -> None:
    tight, other = (
        memory.fit(trial(method="npo_kl", objective=Objective(preset=preset)), SEVEN, 128, None).peak.activations
        for preset in ("paper", "open-unlearning")
    )
    assert tight / other == pytest.approx(500 / 128, rel=0.01), "a mask is longer, too"


def test_a_run_takes_the_micro_batch_of_the_plan(tmp_path: Path) -> None:
    """On a GPU the run derives what --dry-run says, from the model's folder."""
    import torch

    place = tiny.write_model(tmp_path / "model")
    shape = memory.shape_of(tiny.network().config.to_dict())
    assert shape is not None
    chosen = trial(
        target=Model(path=str(place)),
        benchmark=Benchmark(name="tofu"),
        resources=Resources(gpus=1, gpu_memory=0.012, precision="bf16"),
    )
    planned = memory.fit(chosen, shape, 256, 0.012 * GB)
    assert 1 < planned.micro_batch < 32
    assert setup.plan_micro_batch(chosen, torch.device("cuda")) == planned.micro_batch


def test_a_pass_on_the_cpu_has_about_a_thousand_tokens(tmp_path: Path) -> None:
    import torch

    fictional.write(tmp_path / "authors", authors=8, questions=3, forget_percent=(25,), seed=3)
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
    assert (
        "(ZeRO 1, micro-batch 1: weights 13.5, gradients 40.4, optimizer 80.9, average 27.0, retain_gradient 27.0"
        in text
    )
    assert "of a GPU 73.6 GB are usable; 27 other kinds of trials do not fit either; what fits: --set " in text
    assert plan("tofu_llama", store, "resources.ranks=1", "resources.gpu_memory=300").trials
    assert plan("tofu_llama", store, "resources.ranks=1", "resources.gpu_memory=none").trials


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("tofu_llama", "resources.ranks=1", ["ranks=2 offload_optimizer=true", "ranks=4", "lora_rank=8"]),
        ("tofu_phi", "resources.gpu_memory=16", ["ranks=2 offload_optimizer=true", "lora_rank=8"]),
        ("tofu_llama_tru", "resources.ranks=1", ["ranks=4"]),  # LoRA makes no task vectors
        ("tofu_llama", "resources.micro_batch=16", ["micro_batch=none", "micro_batch=none lora_rank=8"]),
    ],
)
def test_settings_that_fit_are_named_and_do(name: str, given: str, expected: list[str], store: Storage) -> None:
    """Each, typed as it is printed, gives a plan of just the memory that is printed with it; the last names the GPU."""
    with pytest.raises(InputError) as error:
        plan(name, store, given)
    *named, larger = str(error.value).split("what fits: ")[1].split("; or ")
    found = []
    for one in named:
        typed, size = one.removesuffix(")").split(" (")
        settings = typed.removeprefix("--set ").split(" --set ")
        found.append(" ".join(setting.partition(".")[2] for setting in settings))
        changed = {setting.split("=")[0] for setting in settings}
        need = plan(name, store, *([] if given.split("=")[0] in changed else [given]), *settings).costs.largest
        assert need is not None
        fit = need.fit
        assert size == f"{fit.peak.total / GB:.1f} GB, ZeRO {fit.stage}, micro-batch {fit.micro_batch}"
    assert found == expected
    (size,) = re.findall(r"GPUs of (\d+) GB \(--set resources\.gpu_memory=GB\)", larger)
    kept = [given] if "gpu_memory" not in given else []
    assert plan(name, store, *kept, f"resources.gpu_memory={size}").trials
    with pytest.raises(InputError):
        plan(name, store, *kept, f"resources.gpu_memory={int(size) - 2}")


def test_sizes_come_from_the_folder_or_what_makes_the_model(store: Storage, tmp_path: Path) -> None:
    data = small_sweep.write_rows(tmp_path / "data")
    made = plan("tofu_tiny", store, f"benchmark.data={data}", "task_vector.batches=2").costs
    assert made.largest is not None
    assert made.largest.fit.peak.states.weights == pytest.approx(4 * 1.4e6, rel=0.05)
    assert made.hours is None
    target = tiny.write_model(tmp_path / "target")
    sweep = spaces.load_sweep("tofu_tiny")
    folder = small_sweep.write_model(tmp_path / "models" / "base")
    settings = [f"benchmark.data={data}", f"target={target}", f"models={folder.parent}", "task_vector.batches=2"]
    known = make_plan(apply(sweep, settings), store, strategy="paper").costs.largest
    assert known is not None
    assert known.fit.peak.states.weights == 4 * sum(p.numel() for p in tiny.network().parameters())
    assert make_plan(apply(sweep, [*settings, "target=a/b"]), store, strategy="paper").costs.needs == ()


# Time


def test_operations_by_hand() -> None:
    """200 rows of 80 tokens, 31 steps of 32: GA once, GD twice, GRU once more without that term, NPO first a pass."""
    step, first = 31 * 32 * 80 * SEVEN.parameters, 200 * 80 * SEVEN.parameters
    expected = {"ga": 6 * step, "gd": 12 * step, "npo": 6 * step + 2 * first, "npo_gd": 12 * step + 2 * first}
    for method, operations in expected.items():
        assert flops.operations(trial(method=method), SEVEN, 200, 80) == pytest.approx(operations)
        rectified = flops.operations(trial(method=method, rectifier=GRU), SEVEN, 200, 80)
        shared = method in ("gd", "npo_gd")  # one retain pass serves rectifier and term
        assert rectified == pytest.approx(operations + (0 if shared else 6 * step))
    observed = flops.operations(trial(method="npo", observe=10), SEVEN, 200, 80)
    assert observed == pytest.approx(expected["npo"] + 6 * 4 * 32 * 80 * SEVEN.parameters)  # steps 1, 11, 21 and 31
    saved = EIGHTY.model_copy(update={"gradient_checkpointing": True})
    assert flops.operations(trial(resources=saved), SEVEN, 200, 80) == pytest.approx(8 * step)
    padded = 31 * 32 * SEVEN.parameters * (6 * 80 + 8 * 500)
    assert flops.operations(trial(method="ga_kl"), SEVEN, 200, 80) == pytest.approx(padded)
    assert flops.hours(0.35 * 312e12 * 3600, "bf16") == pytest.approx(1)
    peers = {
        "idk_dpo": 18 * step + 2 * first + 2 * step,  # S^0 of another answer each epoch
        "idk_nll": 12 * step,
        "undial": 8 * step,  # without a retain term
        "satimp": 12 * step,
        "ceu": 6 * step,
        "pdu": 12 * step,
    }
    for method, operations in peers.items():
        assert flops.operations(trial(method=method), SEVEN, 200, 80) == pytest.approx(operations)
    rectified = flops.operations(trial(method="pdu", rectifier=GRU), SEVEN, 200, 80)
    assert rectified == pytest.approx(peers["pdu"])
    parted = trial(method="pdu", rectifier={"name": "gem", "parts": 2})
    assert flops.operations(parted, SEVEN, 200, 80) == pytest.approx(18 * step)
    wide = trial(method="undial", objective={"kl_reduction": "all_positions_fixed_pad"})
    assert flops.operations(wide, SEVEN, 200, 80) == pytest.approx(31 * 32 * 8 * 500 * SEVEN.parameters)


def test_hours_of_evaluations_by_hand() -> None:
    """Of 31 steps after 10, 20, 30 and the last; 4 x 4096 / 256 = 64 rows generate at a time; UWC's 12 a share.

    Where rank 0 evaluates alone, four GPUs are held; a moved model is read in fp32.
    """
    training = trial().training.model_copy(update={"eval_every": 10})
    reading, weights = 2 * SEVEN.parameters * 1e6 / (0.35 * 312e12), 2 * SEVEN.parameters / 1e12
    once = (reading + 6400 / 64 * weights) / 3600
    wide = (reading * 312 / 19.5 + 6400 / 64 * 2 * weights) / 3600
    adapters = training.model_copy(update={"lora_rank": 8})
    for hours, config, stage in (
        (once, trial(), 2),
        (4 * once, trial(training=training), 2),
        (4 * 4 * once, trial(training=training), 3),
        ((3 * 4 + 1) * once, trial(training=adapters), 2),
        ((1 + 4 * 24) * once, trial(calibration=Calibration(targets=(0.5, 0.9))), 2),
        (4 * wide, trial(method="tv", task_vector=TaskVector(strength=1.0)), 2),
    ):
        assert flops.evaluation_hours(config, SEVEN, stage, 200, 1e6, 6400) == pytest.approx(hours)
