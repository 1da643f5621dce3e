"""The plan of a trial's states against DeepSpeed's published arithmetic, and the stage that follows."""

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from tests.support import measured_step
from trainables.common.errors import is_out_of_memory
from trainables.config.settings import Model, Resources, Training
from trainables.config.trial import Rectifier, Trial
from trainables.training import memory, model_files
from trainables.trial import setup

SEVEN = 7_000_000_000
GB = 1e9


def trial(ranks: int, method: Any = "ga", rectifier: Any = "gru", **resources: Any) -> Trial:
    return Trial(
        method=method,
        rectifier=Rectifier(name=rectifier),
        target=Model(path="m"),
        training=Training(batch_size=ranks),
        resources=Resources.model_validate({"ranks": ranks, "gpus": 1, "precision": "bf16"} | resources),
    )


def states(stage: int, ranks: int, trained: int = SEVEN, **changed: Any) -> memory.ModelStates:
    return memory.estimate_states(trial(ranks, **changed), SEVEN, trained, stage)


def test_a_7b_model_on_eight_ranks_by_hand() -> None:
    """bf16: 14 GB weights; ZeRO 1 splits 84 GB of optimizer and 28 GB of average, but no gradient; ZeRO 2 that, too."""
    one = states(1, 8)
    assert (one.weights, one.gradients) == (14 * GB, 14 * GB + 28 * GB)
    assert states(2, 8).gradients == states(1, 8, precision="fp32").gradients == 3.5 * GB
    assert (one.optimizer, one.average) == (10.5 * GB, 3.5 * GB)
    assert states(3, 8).weights == 14 * GB / 8
    assert states(1, 8, method="ga_kl").total - one.total == 14 * GB
    assert one.total - states(1, 8, rectifier="none").total == 3.5 * GB
    assert one.total - states(1, 8, offload_optimizer=True).total == 10.5 * GB + 3.5 * GB
    assert states(2, 8, method="gd").average == 7 * GB
    assert states(2, 8, method="gd", offload_optimizer=True).average == 0
    assert states(1, 8, method="undial").total - one.total == 14 * GB
    assert states(2, 8, method="pdu", rectifier="none").average == 3.5 * GB
    assert states(2, 8, method="idk_dpo", rectifier="none").average == 0
    adapters = states(1, 1, trained=10**7)
    assert adapters.weights == 14 * GB
    assert adapters.total - adapters.weights == 10**7 * (2 + 2 + 4 + 12 + 4)
    assert states(1, 1, engine="deepspeed").gradients == SEVEN * (2 + 4)


@pytest.mark.parametrize(
    ("parameters", "ranks", "memory_bytes", "stage"),
    [
        (1_400_000, 1, 24 * GB, 0),
        (SEVEN, 8, 80 * GB, 2),  # ZeRO 1 keeps a whole fp32 gradient on every rank in bf16
        (SEVEN, 2, None, 2),
        (SEVEN, 4, 80 * GB, 2),
        (SEVEN, 4, 64 * GB, 3),
        (SEVEN, 1, 80 * GB, 0),
    ],
)
def test_first_stage_that_fits(parameters: int, ranks: int, memory_bytes: float | None, stage: int) -> None:
    assert memory.choose_fitting_zero_stage(trial(ranks), parameters, parameters, memory_bytes) == stage
    assert memory.choose_fitting_zero_stage(trial(1, engine="deepspeed"), parameters, parameters, None) == 1
    assert memory.choose_fitting_zero_stage(trial(8, precision="fp32"), parameters, parameters, None) == 1


def test_pairs_are_two_rows_of_a_pass() -> None:
    one, pair = (
        memory.estimate_peak_memory(trial(8, method=name), LLAMA2_7B_CHAT.shape, 2, 4, 256)
        for name in ("ga", "idk_dpo")
    )
    assert pair.activations == 2 * one.activations


def test_an_evaluation_is_as_large_as_its_part_of_a_gpu_holds() -> None:
    """Llama-2-7B in bf16: 32 + 1 layers of keys and values of 8192 numbers, four for each token of a pass."""
    shape, free = LLAMA2_7B_CHAT.shape, Resources(gpus=1)
    kept = 4 * 2 * 33 * 4096 * 2

    def tokens(room: float | None, resources: Resources = free) -> int:
        return memory.choose_evaluation_token_budget(resources, shape, 2, room)

    assert (tokens(None), memory.choose_evaluation_token_budget(free, None, 2, 80 * GB)) == (4096, 4096)
    assert tokens(1 * GB, Resources(evaluation_tokens=8192)) == 8192
    assert [tokens(count * kept) for count in (10**6, 65536, 65535, 20_000)] == [65536, 65536, 32768, 16384]
    assert tokens(0) == 1024


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/job/step", {"memory.max": 9000, "job/memory.max": 2000, "job/step/memory.max": "max"}, 2000),
        ("4:memory:/docker/1\n0::/", {"memory/memory.limit_in_bytes": 1000}, 1000),  # named so outside of it
        ("4:memory:/\n2:cpu,cpuacct:/\n0::/", {"memory/memory.limit_in_bytes": 2**63 - 4096}, None),
    ],
)
def test_memory_is_what_the_container_or_job_has(
    groups: str, limits: dict[str, Any], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel's documents of both versions of its control groups have the files; None: all of the machine's."""
    for name, size in {"own": groups, **limits}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{size}\n")
    monkeypatch.setattr(memory, "OWN_CGROUPS_FILE", tmp_path / "own")
    files = {kind: tmp_path / file.relative_to("/sys/fs/cgroup") for kind, file in memory.CGROUP_LIMITS.items()}
    monkeypatch.setattr(memory, "CGROUP_LIMITS", files)
    assert memory.read_usable_machine_memory() == (expected or psutil.virtual_memory().total)


def test_a_process_takes_no_more_of_a_gpu_than_its_part() -> None:
    assert 0.9 < 4 * memory.compute_usable_gpu_share(trial(1, gpus=0.25).resources) < 1
    assert memory.compute_usable_gpu_share(trial(1).resources) == 1


def test_memory_that_ran_out_is_known_in_each_librarys_words() -> None:
    for said in (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'",
        "[enforce fail at alloc_cpu.cpp:81] . DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes",
    ):
        assert is_out_of_memory(RuntimeError(said)), said
    assert is_out_of_memory(torch.OutOfMemoryError("no room"))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


# What layers keep for the backward pass, by family and by method


ROWS, LENGTH = 4, 64
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 64,
}


def kept(network: Any) -> int:
    """Bytes of the tensors that autograd keeps of one forward pass, each storage once, without weights and buffers."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    found: dict[int, torch.Tensor] = {}  # they stay alive, so that no address is used twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            found.setdefault(place, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(input_ids=torch.randint(3, SIZES["vocab_size"], (ROWS, LENGTH)), use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.parametrize(
    ("family", "method", "layer", "lora", "precision"),
    [
        ("Llama", "gd", 5, None, "fp32"),
        ("Mistral", "gd", 5, None, "fp32"),
        ("Phi", "npo_kl", 5, None, "fp32"),
        ("Llama", "gd", 5, 8, "fp32"),
        ("Llama", "rmu", 5, None, "fp32"),
        ("Llama", "gd", 5, None, "bf16"),
        ("Mistral", "rmu", 5, None, "bf16"),
    ],
)
def test_layers_keep_no_more_than_the_plan_says(
    family: str, method: Any, layer: int, lora: int | None, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound, not much above; RMU keeps less."""
    # A trial on ZeRO 3 in this process leaves DeepSpeed's own `linear` behind, which keeps its input in any case.
    monkeypatch.setattr(torch.nn.functional, "linear", torch._C._nn.linear)  # pyright: ignore[reportAttributeAccessIssue]
    job = {"family": family, "sizes": SIZES, "length": LENGTH, "method": method, "layer": layer, "lora": lora}
    job |= {"precision": precision, "micro_batch": ROWS}
    network = measured_step.network_of(job, torch.device("cpu")).train()
    if method == "rmu":
        setup.freeze_all_but_rmu_weights(network, layer)
    if lora is not None:
        network = model_files.add_lora_adapters(network, lora, 16)
    shape = memory.parse_model_shape({**SIZES, "model_type": family.lower()})
    assert shape is not None
    planned = memory.estimate_peak_memory(measured_step.trial_of(job), shape, 1, ROWS, LENGTH).activations
    assert kept(network) <= planned
    assert method == "rmu" or planned <= 1.6 * kept(network)
