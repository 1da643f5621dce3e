"""Memory, micro-batch and hours of a plan, by hand for a 7B model; what cannot fit is refused with the numbers."""

import re
from pathlib import Path
from typing import Any

import pytest

from platform.plan import costs
from platform.plan.costs import estimate_device_rates
from platform.plan.plan import Plan
from search_spaces.backbones.published import LLAMA2_7B_CHAT
from tests.support import small_sweep, tiny
from trainables.benchmarks.base import EvaluationSize
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Calibration, Model, ModelShape, Resources, TaskVector, Training
from trainables.config.trial import Rectifier, Trial
from trainables.data import fictional
from trainables.storage.folder_storage import Storage
from trainables.training import memory
from trainables.trial import setup

GB = 1e9
SEVEN = LLAMA2_7B_CHAT.shape
GRU = Rectifier(name="gru", gamma=0.8)
A100 = Resources(ranks=4, gpus=1, precision="bf16", gpu_name="A100", evaluation_tokens=4096)


def trial(**settings: Any) -> Trial:
    return Trial(**{"method": "ga", "target": Model(path="m"), "resources": A100, **settings})


def plan(name: str, store: Storage, *settings: str, **options: Any) -> Plan:
    return small_sweep.plan_named(name, store, *settings, **{"strategy": "paper", **options})


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
    assert memory.parse_model_shape(networks[1].config.to_dict()) == ModelShape(
        hidden=32, layers=2, heads=4, kv_heads=2, head_size=16, intermediate=48, vocabulary=128, tied=True
    )
    unknown = {"n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}
    assert memory.parse_model_shape(unknown) is None, "no guesses"


def test_peak_of_a_7b_model_by_hand() -> None:
    """bf16: a layer keeps of a token 16 h for norms, 8 h for attention, 10 times the feed-forward's width, a mask."""
    found = memory.estimate_peak_memory(trial(rectifier=GRU), SEVEN, 2, 2, 100)
    layer = 16 * 4096 + 8 * 4096 + 10 * 11008 + 2 * 100
    assert found.activations == 200 * (32 * layer + 32000 * 12)
    assert found.buffers == 2 * 2 * 500_000_000
    assert found.states.total == pytest.approx(SEVEN.parameter_count * (2 + (4 + 12 + 4) / 4))
    assert found.evaluation == 4 * 4096 * 2 * 33 * 4096 * 2, "keys and values, one layer moving"
    assert found.total == found.states.total + found.buffers + found.evaluation


@pytest.mark.parametrize(("method", "ranks", "kept"), [("npo", 1, 2), ("npo", 2, 0), ("tv", 1, 4)])
def test_on_a_cpu_a_process_and_the_target_that_it_keeps_count(method: str, ranks: int, kept: int) -> None:
    """In bf16, of a task vector in fp32; several ranks keep none, and a GPU's memory holds neither."""
    settings: dict[str, Any] = {"method": method, "task_vector": {"strength": 1.0} if method == "tv" else None}
    on_cpu, on_gpu = (
        memory.estimate_peak_memory(
            trial(**settings, resources=Resources(precision="bf16", ranks=ranks, gpus=gpus)), SEVEN, 2, 2, 100
        )
        for gpus in (0, 1)
    )
    assert (on_cpu.process, on_gpu.process) == (memory.CPU_PROCESS_BYTES + kept * SEVEN.parameter_count, 0)


def test_micro_batch_is_the_share_in_as_few_parts_as_fit() -> None:
    """That of the user stands, and where the memory is not known it is the share."""
    found = [memory.fit_trial_to_memory(trial(rectifier=GRU), SEVEN, 256, size * GB) for size in (64, 80, 140)]
    assert [(fit.micro_batch, fit.fits) for fit in found] == [(4, True), (8, True), (8, True)]
    chosen = A100.model_copy(update={"micro_batch": 5})
    assert memory.fit_trial_to_memory(trial(resources=chosen), SEVEN, 256, 20 * GB).micro_batch == 5
    on_cpu = memory.fit_trial_to_memory(trial(resources=Resources(ranks=2)), SEVEN, 256, None)
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
    planned = memory.fit_trial_to_memory(chosen, shape, 256, 0.012 * GB)
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

    lengths = [
        len(row.input_ids) for side in setup.load_training_examples(trial(target=model, benchmark=rows)) for row in side
    ]
    assert passed() == 64 // -(-64 // int(1024 * len(lengths) / sum(lengths)))
    assert passed("ga_kl") == 2, "its rows are padded to 500 tokens"
    assert (passed(size=4), passed(size=4, ranks=2)) == (4, 2), "no more than a rank has"
    assert passed(micro_batch=3) == 3
    for many in (64, 10**6):  # the plan knows lengths about
        one = trial(target=model, benchmark=rows, training=Training(batch_size=many), resources=Resources())
        (planned,) = costs.estimate_memory_by_study([one], SEVEN).values()
        assert planned.micro_batch == pytest.approx(passed(size=many), rel=0.5)


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


H100 = Resources(gpus=1, precision="bf16", gpu_name="H100", evaluation_tokens=4096)
CORE = Resources(evaluation_tokens=4096)
ONE: dict[str, Any] = {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "head_size": 64}
LLAMA_1B = ModelShape(**ONE, intermediate=8192, vocabulary=128256, tied=True)
TINY: dict[str, Any] = {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 4, "head_size": 32}
SMOLLM: dict[str, Any] = {"hidden": 576, "layers": 30, "heads": 9, "kv_heads": 3, "head_size": 64}
SMOLLM2 = ModelShape(**SMOLLM, intermediate=1536, vocabulary=49152, tied=True)


def test_training_by_hand() -> None:
    """200 rows of 80 tokens, 31 steps of 32 on four ranks: GA once, GD twice, GRU once more without that term."""

    def steps(config: Trial) -> float:
        """In operations of a row and parameter, 31 x 32 rows being one."""
        found = (
            costs.estimate_training_seconds(config, SEVEN, 200, 80, 8, estimate_device_rates(A100))
            * 4
            * costs.REACHED_PEAK_SHARE
            * 312e12
        )
        return found / (31 * 32 * 80 * SEVEN.parameter_count)

    passes = {"ga": 1, "gd": 2, "npo": 1, "npo_gd": 2, "ceu": 1, "pdu": 2}
    for method, count in passes.items():
        assert steps(trial(method=method)) == pytest.approx(6 * count)
        assert steps(trial(method=method, rectifier=GRU)) == pytest.approx(12)
    assert steps(trial(method="ga", observe=10)) == pytest.approx(6 + 6 / 10)
    saved = A100.model_copy(update={"gradient_checkpointing": True})
    assert steps(trial(resources=saved)) == pytest.approx(8)
    assert steps(trial(method="ga_kl")) == pytest.approx(6 + 8 * 500 / 80)
    assert steps(trial(method="undial")) == pytest.approx(8), "without a retain term"
    assert steps(trial(method="pdu", rectifier={"name": "gem", "parts": 2})) == pytest.approx(18)


def test_evaluation_by_hand() -> None:
    """After 10, 20, 30 of 31 steps and the last; 4 x 4096 / 256 = 64 rows generate 200 tokens; UWC's 12 a share."""
    training = trial().training.model_copy(update={"eval_every": 10})

    def seconds(rate: float, width: int) -> float:
        step = max(width * SEVEN.parameter_count / 1e12, 32 * 39 * 33e-6)
        generating = max(200 * step, 6400 * 2 * SEVEN.parameter_count / rate)
        return 2 * SEVEN.parameter_count * 1e6 / rate + generating + 1e6 * costs.SECONDS_PER_TEXT_TOKEN

    once, wide = seconds(0.3 * 312e12, 2), seconds(0.3 * 19.5e12, 4)
    for expected, config in (
        (once / 4, trial()),
        (4 * once / 4, trial(training=training)),
        ((1 / 4 + 24) * once, trial(calibration=Calibration(targets=(0.8, 0.9)))),
        (wide, trial(method="tv", task_vector=TaskVector(strength=1.0))),
    ):
        size = EvaluationSize(1e6, 6400)
        assert costs.estimate_evaluation_seconds(
            config, SEVEN, 200, size, estimate_device_rates(A100)
        ) == pytest.approx(expected)


ROWS_160, OWN_ROWS, FORGET05 = (
    EvaluationSize(89600, 32000),
    EvaluationSize(4976, 9600),
    EvaluationSize(401520, 143400),
)


@pytest.mark.parametrize(
    ("resources", "shape", "steps", "text", "rows", "seconds"),
    [
        (H100, LLAMA_1B, 1, (200, 128.0), ROWS_160, (0.205, 14.1)),
        (H100.model_copy(update={"evaluation_tokens": 65536}), SMOLLM2, None, (200, 80.0), FORGET05, (8.5, 12.4)),
        (CORE, ModelShape(**TINY, intermediate=384, vocabulary=2048), None, (200, 80.0), FORGET05, (29.3, 29.2)),
        (CORE, SMOLLM2, 1, (32, 77.0), OWN_ROWS, (31.4 * 64 / 24, 84.2)),
    ],
    ids=["1B on an H100", "135M on an H100", "tofu_tiny on a core", "135M on a core"],
)
def test_estimates_are_within_a_factor_of_one_and_a_half(
    resources: Resources,
    shape: ModelShape,
    steps: int | None,
    text: tuple[int, float],
    rows: EvaluationSize,
    seconds: Any,
) -> None:
    """docs/LOG.md, 26 November, and docs/reproduction.md (processor seconds; the last trained 24 rows, of 64 here)."""
    config = trial(method="npo", rectifier=GRU, resources=resources, training=Training(lr=1e-5, max_steps=steps))
    passed = 32 if resources.gpus else int(1024 / text[1])
    trained = costs.estimate_training_seconds(config, shape, *text, passed, estimate_device_rates(resources))
    evaluated = costs.estimate_evaluation_seconds(config, shape, 200, rows, estimate_device_rates(resources))
    for found, measured in zip((trained, evaluated), seconds, strict=True):
        assert measured / 1.5 < found < measured * 1.5


def test_rates_go_by_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that is set, else this machine's, else an A100; a part of a GPU has a part of its rate."""
    monkeypatch.setattr(costs, "NVIDIA_GPU_FOLDER", tmp_path)
    half = H100.model_copy(update={"gpus": 0.5})
    found = [estimate_device_rates(one)["bf16"] / 0.3e12 for one in (Resources(gpus=1), H100, half)]
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "information").write_text("Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1\n")
    assert [*found, estimate_device_rates(Resources(gpus=1))["bf16"] / 0.3e12] == pytest.approx(
        [312, 989, 989 / 2, 165]
    )
