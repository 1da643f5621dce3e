"""A closed engine's memory comes back: the next trial of the process finds what the first one found."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import torch

from tests.support import tiny
from trainables.config.settings import Resources, Training
from trainables.training import engine
from trainables.training.runtime import prepare_process, release_memory

LAYOUTS = [(1, "fp32"), (1, "bf16"), (2, "bf16"), (3, "bf16")]


def live_bytes() -> int:
    """Bytes of the storages of all tensors that Python knows; a compiler's tensors have none."""
    tensors = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
    return sum({part.data_ptr(): part.nbytes() for part in map(torch.Tensor.untyped_storage, tensors)}.values())


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
        left.append(live_bytes())
    assert left[0] == left[1]
