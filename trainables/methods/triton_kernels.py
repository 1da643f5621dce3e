"""Kernels over flat gradients on a GPU: each element is read and written once (Triton is in torch's CUDA build).

Only imported where a tensor is on a GPU. Sums are of fp32 blocks, added in fp64, in one order whatever the GPU does.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK_ELEMENTS = 4096
"""Elements of one program; a sum of so many in fp32 has a relative error of about 1e-7."""


@triton.jit
def _lerp(mean, part, weight, size, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    old = tl.load(mean + places, mask=inside)
    new = tl.load(part + places, mask=inside).to(tl.float32)
    tl.store(mean + places, old + weight * (new - old), mask=inside)


@triton.jit
def _products(gradient, average, sums, size, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    places = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    g = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(average + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + 3 * program, tl.sum(g * m))
    tl.store(sums + 3 * program + 1, tl.sum(m * m))
    tl.store(sums + 3 * program + 2, tl.sum(g * g))


@triton.jit
def _adamw(
    gradient,
    average,
    weights,
    first,
    second,
    copy,
    forget,
    retain,
    rate,
    decay,
    beta1,
    beta2,
    root,
    eps,
    size,
    COMBINED: tl.constexpr,
    COPIED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    g = tl.load(gradient + places, mask=inside).to(tl.float32) * forget
    if COMBINED:
        g += retain * tl.load(average + places, mask=inside)
    m = tl.load(first + places, mask=inside)
    v = tl.load(second + places, mask=inside)
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    weight = tl.load(weights + places, mask=inside)
    weight -= decay * weight
    weight -= rate * m / (tl.sqrt(v) / root + eps)
    tl.store(first + places, m, mask=inside)
    tl.store(second + places, v, mask=inside)
    tl.store(weights + places, weight, mask=inside)
    if COPIED:
        tl.store(copy + places, weight.to(copy.dtype.element_ty), mask=inside)


def lerp(mean: torch.Tensor, part: torch.Tensor, weight: float) -> None:
    """Set mean <- (1 - weight) mean + weight part: both flat, `mean` in fp32."""
    _lerp[_grid(mean)](mean, part, weight, mean.numel(), BLOCK=BLOCK_ELEMENTS)


def compute_inner_products(gradient: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
    """Return <g, m>, <m, m>, <g, g> of two flat tensors: (3,) in fp64."""
    (programs,) = _grid(gradient)
    sums = torch.empty(programs, 3, dtype=torch.float32, device=gradient.device)
    _products[(programs,)](gradient, average, sums, gradient.numel(), BLOCK=BLOCK_ELEMENTS)
    return sums.double().sum(0)


def adamw_step(
    gradient: torch.Tensor,
    average: torch.Tensor | None,
    weights: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    copy: torch.Tensor,
    *,
    forget: float,
    retain: float,
    step: int,
    group: dict[str, Any],
) -> None:
    """Take AdamW's step number `step` (from 1) on forget * gradient + retain * average, all flat.

    `weights` and both moments are fp32; `copy` takes the weights in its own precision, and may be `weights` itself.
    `group`: lr, betas, eps and weight_decay, as in a group of torch.optim.AdamW, whose formula this is.
    """
    beta1, beta2 = group["betas"]
    _adamw[_grid(weights)](
        gradient,
        weights if average is None else average,
        weights,
        first,
        second,
        copy,
        forget,
        retain,
        group["lr"] / (1 - beta1**step),
        group["lr"] * group["weight_decay"],
        beta1,
        beta2,
        math.sqrt(1 - beta2**step),
        group["eps"],
        weights.numel(),
        COMBINED=average is not None,
        COPIED=copy.data_ptr() != weights.data_ptr(),
        BLOCK=BLOCK_ELEMENTS,
    )


def _grid(part: torch.Tensor) -> tuple[int]:
    return (triton.cdiv(part.numel(), BLOCK_ELEMENTS),)
