"""The engine of one rank: what is combined is what the rule writes, what is saved comes back, kernels equal torch."""

import gc
import math
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import tiny
from trainables.config.settings import Resources, Training
from trainables.methods.rectifiers import GRU, Outcome, find_rectifier_class
from trainables.methods.rectifiers.base import GradientMixture, shard_dot_products
from trainables.methods.rectifiers.two_gradients import Bisector
from trainables.training import engine
from trainables.training.runtime import prepare_process, release_memory

COMBINING = [
    ("gru", 0.8, 0.05),
    ("agem", None, None),
    ("bisector", None, None),
    ("mgda", 0.5, None),
    ("none", None, 0.1),
]


def make(device: str = "cpu", precision: Any = "fp32", **training: Any) -> engine.PlainEngine:
    torch.manual_seed(1)
    network = tiny.network(layers=1).to(device)
    made = engine.create_engine(network.train(), Training(**training), Resources(precision=precision))
    assert isinstance(made, engine.PlainEngine)
    return made


def go(runner: engine.PlainEngine, seed: int, *, parts: int = 1) -> None:
    ids = torch.arange(5, 25).view(2, 10).add(seed).to(runner.device)
    for part in range(parts):
        runner.backward(runner.inner(input_ids=ids, labels=ids).loss / parts, last=part == parts - 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_gradient_is_autograds_and_weights_are_adamws(precision: Any) -> None:
    runner = make(precision=precision, lr=1e-2)
    other = tiny.network(layers=1)
    other.load_state_dict(runner.gather())
    for part in other.parameters():
        part.data = part.data.to(runner.weights.dtype)
    masters = [part.detach().float().requires_grad_() for part in other.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=Training().weight_decay)
    for step in range(3):
        go(runner, step)
        runner.step(1e-2)
        ids = torch.arange(5, 25).view(2, 10) + step
        other(input_ids=ids, labels=ids).loss.backward()
        for master, part in zip(masters, other.parameters(), strict=True):
            master.grad = part.grad.float() if part.grad is not None else None
            part.grad = None
        optimizer.step()
        with torch.no_grad():
            for master, part in zip(masters, other.parameters(), strict=True):
                part.copy_(master)
    for one, two in zip(runner.module.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_buffers_keep_their_precision() -> None:
    """Rotary embeddings' frequencies in bf16 would put late tokens elsewhere."""
    runner = make(precision="bf16")
    assert {part.dtype for part in runner.module.parameters()} == {torch.bfloat16}
    assert {part.dtype for name, part in runner.module.named_buffers() if "inv_freq" in name} == {torch.float32}


def test_micro_batches_of_bf16_are_summed_in_fp32() -> None:
    runner = make(precision="bf16")
    go(runner, 0)
    assert runner.gradients()[0].dtype == torch.bfloat16, "it holds one micro-batch exactly"
    runner.clear_gradients()
    go(runner, 0, parts=3)
    assert runner.gradients()[0].dtype == torch.float32


@pytest.mark.parametrize(("name", "gamma", "tau"), COMBINING)
def test_what_is_combined_is_what_the_rule_writes(name: str, gamma: float | None, tau: float | None) -> None:
    """Weights after steps, one engine's gradient written by `apply`, the other's left to the step."""
    engines = [make(lr=1e-2) for _ in range(2)]
    rules = [find_rectifier_class(name)(gamma, tau) for _ in range(2)]
    for step in range(3):
        for runner, rule in zip(engines, rules, strict=True):
            go(runner, 3 * step)
            noise = torch.randn(runner.weights.shape, generator=torch.Generator().manual_seed(step))
            retain = [part.neg() + part.std() * noise for part in runner.gradients()]  # in conflict
            if rule.needs_retain:
                rule.take_retain_gradient(retain)
        written = rules[0].apply(engines[0].grad_shard(), engines[0].sum_over_shards)
        gradient = engines[1].gradients()
        found = rules[1].decide(*shard_dot_products(gradient, rules[1].average or gradient).tolist())
        engines[1].combine(found, rules[1].average)
        for field, one in vars(written).items():
            assert getattr(found.outcome, field) == pytest.approx(one, rel=1e-4, abs=1e-3, nan_ok=True), field
        for runner in engines:
            runner.step(1e-2)
    assert torch.allclose(engines[0].weights, engines[1].weights, atol=1e-6)


def test_a_rule_that_overrides_apply_is_applied() -> None:
    class Mine(GRU):
        def apply(self, gradient: Any, reduce: Any) -> Outcome:
            return Outcome(0.0, 0.0)

    class Other(Bisector):
        def weights(self, square: Any, retain_square: Any, dot: Any) -> Any:
            return square * 0 + 1, square * 0

    assert (GRU().combines, Mine().combines) == (True, False)
    assert (Bisector().combines, Bisector(scope="tensor").combines, Other().combines) == (True, False, True)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_saved_comes_back(precision: Any, tmp_path: Path) -> None:
    runner, other = make(precision=precision), make(precision=precision)
    for step in range(2):
        go(runner, step)
        runner.step(1e-3)
    runner.save(tmp_path, "step-2")
    other.restore(tmp_path, "step-2")
    for each in (runner, other):
        go(each, 2)
        each.step(1e-3)
    assert torch.equal(runner.master, other.master)
    assert torch.equal(runner.weights, other.weights)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernels_equal_torchs_lines(precision: Any) -> None:
    """On the same gradient and average: average, products, and three steps of AdamW."""
    from trainables.methods import triton_kernels

    there, here = make("cuda", precision), make("cpu", precision)
    torch.manual_seed(3)
    for step in range(3):
        gradient = torch.randn(here.weights.numel()).to(here.weights.dtype)
        average = torch.randn(here.weights.numel())
        mean = average.clone().lerp_(gradient.float(), 0.3)
        moved = average.cuda()
        triton_kernels.lerp(moved, gradient.cuda(), 0.3)
        assert torch.allclose(moved.cpu(), mean, atol=1e-6)
        found = triton_kernels.compute_inner_products(gradient.cuda(), average.cuda()).cpu()
        assert found.tolist() == pytest.approx(
            shard_dot_products([gradient.double().float()], [average]).tolist(), rel=1e-5, abs=1e-2
        )
        for runner in (here, there):
            runner.gradient = runner.flat.copy_(gradient)
            if step:
                runner.combine(GradientMixture(0.7, -0.2, Outcome(math.nan, math.nan)), [average.to(runner.device)])
            runner.step(1e-3)
        assert torch.allclose(there.master.detach().cpu(), here.master.detach(), atol=1e-5)
        assert torch.equal(there.weights.float().cpu(), there.master.detach().to(there.weights.dtype).float().cpu())


# A closed engine's memory comes back


LAYOUTS = [(1, "fp32"), (1, "bf16"), (2, "bf16"), (3, "bf16")]


def begin(stage: int, precision: Any) -> Any:
    """An engine after one step and amid the next one."""
    network = tiny.network(layers=1).to(torch.bfloat16 if precision == "bf16" else torch.float32)
    resources = Resources(zero_stage=stage, precision=precision)
    runner = engine.create_engine(network.train(), Training(), resources)
    for last in (True, False):
        ids = torch.arange(5, 25).view(2, 10)
        runner.backward(runner.inner(input_ids=ids, labels=ids).loss, last=last)
        if last:
            runner.step(1e-3)
    return runner


def test_nothing_is_left_of_a_closed_engine() -> None:
    prepare_process(Resources(), 0)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8", "without it sums on a GPU are not the same each time"
    left = []
    for _ in range(2):
        held = []
        for layout in LAYOUTS:
            runner = begin(*layout)
            held += [(layout, weakref.ref(part)) for part in (runner.inner, runner.module, *runner.module.parameters())]
            runner.close()
            del runner
        release_memory()
        assert [layout for layout, part in held if part() is not None] == []
        tensors = (one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter))  # no compiler's
        storages = map(torch.Tensor.untyped_storage, tensors)
        left.append(sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()))
    assert left[0] == left[1]
