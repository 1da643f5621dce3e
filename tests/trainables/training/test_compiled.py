"""Compiled layers and losses: the gradient is the eager one, and one compilation serves a run, which alone has them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import families
from tests.trainables.training import test_counts, test_packed_rows
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives
from trainables.training import engine, forward_backward, sampling

METHODS = [("simnpo_gd", "adapters"), ("wga", "checkpoints"), ("rmu", "")]


class Captured(list[Any]):
    """A backend that keeps the graphs it is given, and runs them as they are."""

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.append(graph)
        return graph.forward


@pytest.mark.parametrize(
    ("method", "changed", "how"),
    [(*case, {"backend": Captured()}) for case in METHODS]
    + [pytest.param(*case, {"backend": "inductor"}, marks=pytest.mark.slow) for case in METHODS],
)
def test_the_gradient_is_the_eager_one(method: str, changed: str, how: dict[str, Any]) -> None:
    """RMU's retain term is zero against a frozen model that has the same weights, where both round alike."""
    task, found = SimpleNamespace(pad=0, micro_batch=None, frozen=families.network("Llama").requires_grad_(False)), []
    terms = objectives.make_objective(method, method_constants.ObjectiveConstants(beta=0.5, layer=1)).terms
    for compiled in (False, True):
        torch.manual_seed(0)
        network = test_packed_rows.change(families.network("Llama"), changed)
        runner = engine.PlainEngine(network.train(), Training(), Resources())
        if compiled:
            runner.compile(**how)
        plan: Any = [(term, test_packed_rows.rows(), [2, 0, 3, 1]) for term in terms]
        loss, _ = forward_backward.accumulate_gradient(runner, plan, task, dict.fromkeys(range(4), 9.0))
        found.append((loss.item(), *runner.grad_shard()))
        runner.close()
    assert found[0][1].any()
    assert test_packed_rows.apart(found[1], found[0]) <= 1e-5
    assert how["backend"], "it was asked"


def test_a_run_compiles_once_and_evaluations_do_not() -> None:
    """The layers, for packs of a GPU of every length; a second trial finds what the first compiled."""
    captured, data = Captured(), test_counts.rows()
    task = SimpleNamespace(pad=2, micro_batch=None, frozen=None)
    for _ in range(2):
        runner = engine.PlainEngine(test_counts.network(2), Training(), Resources(precision="bf16"), packs=True)
        runner.compile(backend=captured)
        runner.compiled_losses = (
            objectives.base.compute_label_losses
        )  # the compiler finds no shape for it on the meta device
        for step in range(3):
            numbers = sampling.draw_retain_row_numbers(0, step, 0, len(data), test_counts.BATCH)
            forward_backward.accumulate_gradient(runner, [(objectives.base.NLL_TERM, data, numbers)], task, None)
            runner.clear_gradients()
        with torch.no_grad():
            runner.module.eval()(input_ids=torch.zeros(3, 9, dtype=torch.long, device="meta"))
        runner.close()
        assert len(captured) == 1


def test_losses_are_compiled_once_for_all_numbers_of_labels() -> None:
    """On a CPU, where rows are padded: packed ones are cut by lists, and so would be every graph."""
    runner, captured = engine.create_engine(families.network("Llama"), Training(), Resources(compile=True)), Captured()
    assert isinstance(runner, engine.PlainEngine)
    assert (runner.packs, bool(runner.compiled_losses)) == (False, True)
    runner.compile(backend=captured)
    for count, width in ((2, 9), (3, 17), (8, 12)):
        given = torch.randn(count, 5), torch.randint(5, (count, width)), torch.arange(count) * width
        with torch.compiler.set_stance("default"):
            assert torch.equal(runner.compiled_losses(*given), objectives.base.compute_label_losses(*given))
    runner.close()
    assert len(captured) == 1
