"""The authors' scheme stated again in plain PyTorch: what bench/rectify.py sets our ratio beside.

The published code reads gradients layer by layer, keeps two further copies of them on the device and holds four float64
vectors in host memory; only what the scheme itself asks for is here, so its time is a lower bound.
"""

from __future__ import annotations

from typing import Any

import torch

from trainables.methods import rectifiers


class Bare:
    """Plain PyTorch on one rank, with the part of `engine.Engine` that the loop uses."""

    rank, world = 0, 1

    def __init__(self, network: Any, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.inner = network
        self.optimizer = optimizer
        self.device = device

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        loss.backward()

    def shard(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.inner.parameters()]

    def reduce(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def total(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def step(self, lr: float) -> None:
        """With the optimizer's own learning rate, and no gradient left, as DeepSpeed does."""
        self.optimizer.step()
        self.optimizer.zero_grad()


class HostGRU:
    """GRU as its published code does it: each gradient whole, flat and in float64 in host memory, and copied back."""

    needs_retain = True

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.average: list[torch.Tensor] = []

    def update_average(self, retain: rectifiers.Shard) -> None:
        flat = _host(retain)
        mean = self.average[0] if self.average else torch.zeros_like(flat)
        self.average = [(1 - self.gamma) * mean + self.gamma * flat]

    def apply(self, gradient: rectifiers.Shard, reduce: rectifiers.Reduce) -> rectifiers.Outcome:
        flat, (mean,) = _host(gradient), self.average
        dot, norm, average_norm = float(flat @ mean), float(flat.norm()), float(mean.norm())
        if dot < 0:
            flat = flat - dot / average_norm**2 * mean
        for part, piece in zip(gradient, flat.split([part.numel() for part in gradient]), strict=True):
            part.copy_(piece.view_as(part))
        return rectifiers.Outcome(norm, norm, average_norm, dot, rectified=dot < 0)

    def state(self) -> list[torch.Tensor]:
        return self.average

    def restore(self, state: list[torch.Tensor]) -> None:
        self.average = state


def _host(parts: rectifiers.Shard) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts]).cpu().double()
