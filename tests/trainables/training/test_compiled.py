"""Compiled layers and losses: the gradient is the eager one, and one compilation serves a run, which alone has them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import families
from tests.trainables.training import test_counts
from tests.trainables.training.test_packed_rows import rows
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives
from trainables.training import engine, forward_backward, model_files, sampling


def gradient(runner: engine.PlainEngine, method: str) -> torch.Tensor:
    """Of a batch; compiled where the engine is."""
    frozen = families.network("Llama").requires_grad_(False)
    task = SimpleNamespace(pad=0, micro_batch=None, frozen=frozen)
    terms = objectives.make_objective(method, method_constants.Constants(beta=0.5, layer=1)).terms
    plan: Any = [(term, rows(), [2, 0, 3, 1]) for term in terms]
    forward_backward.accumulate_gradient(runner, plan, task, dict.fromkeys(range(4), 9.0))
    (found,) = runner.shard()
    return found.clone()


class Captured(list[Any]):
    """A backend that keeps the graphs it is given, and runs them as they are."""

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.append(graph)
        return graph.forward


ALL = [("npo", ""), ("simnpo_gd", "adapters"), ("undial", "checkpoints"), ("rmu", "")]


@pytest.mark.parametrize(
    ("method", "changed", "inductor"),
    [(*case, False) for case in ALL] + [pytest.param(*case, True, marks=pytest.mark.slow) for case in ALL],
)
def test_the_gradient_is_the_eager_one(method: str, changed: str, inductor: bool) -> None:
    """By graphs that run as they are, and by code that torch's compiler makes of them."""
    found, captured = [], Captured()
    for compiled in (False, True):
        torch.manual_seed(0)
        network = families.network("Llama")
        if changed == "adapters":
            network = model_files.with_adapters(network, 2, 16)
            torch.nn.init.normal_(next(part for name, part in network.named_parameters() if "lora_B" in name))
        if changed == "checkpoints":
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        runner = engine.PlainEngine(network.train(), Training(), Resources())
        if compiled:
            runner.compile(**({} if inductor else {"backend": captured}))
        found.append(gradient(runner, method))
        runner.close()
    assert float((found[1] - found[0]).norm()) <= 1e-5 * float(found[0].norm()) > 0
    assert bool(captured) != inductor


def test_the_setting_compiles_padded_rows_on_a_cpu() -> None:
    for asked in (False, True):
        runner = engine.create_engine(families.network("Llama"), Training(), Resources(compile=asked))
        assert (runner.packs, bool(runner.compiled_losses)) == (not asked, asked)
        runner.close()


def test_a_run_compiles_once_and_evaluations_do_not() -> None:
    """The layers, for packs of a GPU of every length; a second trial finds what the first compiled."""
    captured, data = Captured(), test_counts.rows()
    task = SimpleNamespace(pad=2, micro_batch=None, frozen=None)
    for _ in range(2):
        runner = engine.PlainEngine(test_counts.network(3), Training(), Resources(precision="bf16"), packs=True)
        runner.compile(backend=captured)
        runner.compiled_losses = objectives.label_losses  # the compiler finds no shape for it on the meta device
        for step in range(6):
            numbers = sampling.retain_batch(0, step, 0, len(data), test_counts.BATCH)
            forward_backward.accumulate_gradient(runner, [(objectives.NLL, data, numbers)], task, None)
            runner.clear()
        with torch.no_grad():
            runner.module.eval()(input_ids=torch.zeros(3, 9, dtype=torch.long, device="meta"))
        runner.close()
        assert len(captured) == 1


def test_losses_are_compiled_once_for_all_numbers_of_labels() -> None:
    captured = Captured()
    runner = engine.PlainEngine(families.network("Llama"), Training(), Resources())
    runner.compile(backend=captured)
    with torch.compiler.set_stance("default"):
        for rows_of, width in ((2, 9), (3, 17), (8, 12)):
            labels = torch.randint(5, (rows_of, width))
            places = torch.arange(rows_of) * width
            given = torch.randn(rows_of, 5), labels, places
            assert torch.equal(runner.compiled_losses(*given), objectives.label_losses(*given))
    runner.close()
    assert len(captured) == 1
