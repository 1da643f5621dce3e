"""Rounded weights, against re-statements and what the libraries were measured to do."""

from __future__ import annotations

import pytest
import torch

from tests.support import tiny
from trainables.robustness import quantization

POSITIVE = (0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434)
POSITIVE += (0.5626170039176941, 0.7229568362236023, 1.0)
NEGATIVE = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635)
NEGATIVE += (-0.18477343022833234, -0.09105003625154495)


def test_nf4_takes_the_nearest_of_sixteen_values_in_each_block() -> None:
    weight = torch.randn(5, 29, generator=torch.Generator().manual_seed(0))
    flat, found = weight.flatten().tolist(), quantization.round_nf4(weight).flatten().tolist()
    for start in range(0, len(flat), 64):  # the last block is short
        block = flat[start : start + 64]
        largest = max(map(abs, block))
        for value, rounded in zip(block, found[start:], strict=False):
            nearest = min((*NEGATIVE, 0.0, *POSITIVE), key=lambda code: abs(code * largest - value))
            assert rounded == pytest.approx(nearest * largest)
    assert not quantization.round_nf4(torch.zeros(2, 64)).any()


def test_int8_rounds_each_row_to_255_steps() -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    for row, found in zip(weight.tolist(), quantization.round_int8(weight).tolist(), strict=True):
        step = max(map(abs, row)) / 127
        assert found == pytest.approx([round(value / step) * step for value in row])
    assert not quantization.round_int8(torch.zeros(2, 8)).any()


@pytest.mark.parametrize(("kind", "error"), [("nf4", 0.092), ("int8", 0.0065)])
def test_linear_layers_but_the_head_are_rounded_by_as_much_as_the_libraries_do(kind: str, error: float) -> None:
    network = tiny.network(layers=1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    quantization.quantize(network, kind)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "proj" in name}
    weight = torch.randn(384, 128, generator=torch.Generator().manual_seed(2))
    rounded = quantization.round_nf4(weight) if kind == "nf4" else quantization.round_int8(weight)
    assert ((rounded - weight).norm() / weight.norm()).item() == pytest.approx(error, rel=0.05)
