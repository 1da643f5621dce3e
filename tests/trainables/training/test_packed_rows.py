"""Which models take packed rows, and that nothing else of training sees a difference."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import families, tiny
from trainables.common.tokenized_row import Example, RowWithAlternativeAnswer
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives
from trainables.training import engine, forward_backward, model_files, packed_rows

METHODS = ("npo", "simnpo_gd", "idk_dpo", "idk_nll", "pdu", "ceu", "undial", "wga", "satimp", "rmu")


def rows(seed: int = 1) -> list[Example]:
    generator = torch.Generator().manual_seed(seed)

    def row(length: int, start: int, **more: Any) -> Any:
        ids = tuple(torch.randint(3, families.VOCABULARY, (length,), generator=generator).tolist())
        return RowWithAlternativeAnswer(ids, start, **more) if more else Example(ids, start)

    return [row(size, start, other=row(size + 3, start)) for size, start in ((5, 2), (17, 4), (9, 8), (12, 1))]


def gradient(runner: Any, method: str = "npo") -> tuple[float, torch.Tensor]:
    constants = method_constants.ObjectiveConstants(beta=0.5, layer=1)
    frozen = families.network("Llama").double().requires_grad_(False)
    task = SimpleNamespace(pad=0, micro_batch=None, frozen=frozen)
    terms = objectives.make_objective(method, constants).terms
    plan: Any = [(term, rows(), [2, 0, 3, 1]) for term in terms]
    loss, _ = forward_backward.accumulate_gradient(runner, plan, task, dict.fromkeys(range(4), 9.0))
    parts = [part.grad for part in runner.inner.parameters() if part.grad is not None]
    return loss.item(), torch.cat([part.reshape(-1) for part in parts])


def change(network: Any, how: str) -> Any:
    """The network with adapters that do something, or with checkpointed activations."""
    if how == "adapters":
        network = model_files.add_lora_adapters(network, 2, 16)
        for name, part in network.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(part)
    if how == "checkpoints":
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return network


def apart(one: tuple[float, torch.Tensor], other: tuple[float, torch.Tensor]) -> float:
    return float((one[1] - other[1]).norm() / other[1].norm()) + abs(one[0] / other[0] - 1)


@pytest.mark.parametrize(
    ("method", "changed"), [*((m, "") for m in METHODS), ("npo", "adapters"), ("npo", "checkpoints")]
)
def test_every_method_has_the_gradient_of_padded_rows(method: str, changed: str) -> None:
    """Also with adapters, and with checkpointed activations."""
    network = families.network("Llama")
    with torch.no_grad():
        network.model.layers[0].mlp.up_proj.weight.mul_(1.1)  # what is frozen differs
    network = change(network, changed).double().train()
    padded = gradient(tiny.PlainEngine(copy.deepcopy(network)), method)
    assert packed_rows.enable_packed_rows_if_exact(network)
    assert apart(gradient(tiny.PlainEngine(network, packs=True), method), padded) <= 1e-6


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("Mistral", {"sliding_window": 200}),  # longer than the rows that are compared
        ("Gemma2", {}),
        ("StableLm", {"num_key_value_heads": 2}),  # does not hand keywords on
        ("Llama", {"attention_dropout": 0.1}),
        ("Qwen2", {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 8}),
        ("Mamba", {}),
    ],
)
def test_models_that_attend_otherwise_keep_padded_rows(family: str, settings: dict[str, Any]) -> None:
    """They are left as they were, and trained by padded rows."""
    network = families.network(family, **settings).train()
    before = network(input_ids=torch.arange(3, 20)[None], use_cache=False).logits
    torch.manual_seed(0)
    runner = engine.create_engine(network, Training(), Resources())
    assert (runner.packs, network.training) == (False, True)
    if "attention_dropout" not in settings:
        assert torch.equal(network(input_ids=torch.arange(3, 20)[None], use_cache=False).logits, before)


def test_a_model_whose_rows_see_each_other_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of all rows, as with position_ids that are ignored."""
    pack = packed_rows.pack_batch

    def without_cuts(*arguments: Any) -> dict[str, Any]:
        inputs = pack(*arguments)
        return inputs | {"cu_seq_lens_q": inputs["cu_seq_lens_q"][[0, -1]]}

    for precision in (torch.float32, torch.bfloat16):
        assert packed_rows.enable_packed_rows_if_exact(families.network("Llama").to(precision))
        with monkeypatch.context() as patch:
            patch.setattr(packed_rows, "pack_batch", without_cuts)
            assert not packed_rows.enable_packed_rows_if_exact(families.network("Llama").to(precision))


def test_eager_attention_keeps_padded_rows() -> None:
    network = families.network("Llama")
    assert not engine.create_engine(network, Training(), Resources(), "eager").packs
    assert engine.create_engine(network, Training(), Resources(gradient_checkpointing=True), "sdpa").packs
    assert network.is_gradient_checkpointing


def test_a_model_that_packs_generates_and_pads_as_before() -> None:
    """Left padding needs sdpa's mask."""
    network = families.network("Llama")
    prompts, limits = families.ragged_prompts(6, seed=2)
    before = families.generate(network, prompts, limits, budget=200, end=families.NEVER)
    assert packed_rows.enable_packed_rows_if_exact(network)
    assert families.generate(network, prompts, limits, budget=200, end=families.NEVER) == before


@pytest.mark.gpu
def test_varlen_attention_has_the_gradient_of_padded_rows() -> None:
    """In bf16, as far as its rounding lets it; fp32 stays padded, for no kernel has it."""
    network = families.network("Llama", num_key_value_heads=2).train().cuda()
    assert not packed_rows.enable_packed_rows_if_exact(network)
    network = network.bfloat16()
    padded = engine.PlainEngine(copy.deepcopy(network), Training(), Resources(precision="bf16"))
    assert packed_rows.enable_packed_rows_if_exact(network)
    packed = engine.PlainEngine(network, Training(), Resources(precision="bf16"), packs=True)
    found = []
    for runner in (padded, packed):
        task, numbers = SimpleNamespace(pad=0, micro_batch=None, frozen=None), [2, 0, 3, 1]
        loss, _ = forward_backward.accumulate_gradient(
            runner, [(objectives.base.NLL_TERM, rows(), numbers)], task, None
        )
        found.append((loss.item(), runner.gradients()[0].float()))
    assert apart(found[1], found[0]) <= 0.05
