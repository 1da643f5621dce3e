"""An independent re-statement of a training run in plain PyTorch and float64: no DeepSpeed, no code of trainables.

Only the rows' token ids and the choice of rows come from outside. Used by the tests as the truth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Settings:
    method: str
    rectifier: str
    lr: float
    gamma: float | None = None
    tau: float | None = None
    beta: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-5
    optimizer: str = "adamw"


@dataclass
class Trace:
    losses: list[float] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


class Reference:
    """Runs `steps` of GA, GD, NPO or plain fine-tuning on a float64 model, one row at a time."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model = model.double().train()
        self.settings = settings
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        size = sum(p.numel() for p in self.parameters)
        self.average = torch.zeros(size, dtype=torch.float64)
        self.first = torch.zeros(size, dtype=torch.float64)
        self.second = torch.zeros(size, dtype=torch.float64)
        self.trace = Trace()

    def row_losses(self, row: Any) -> torch.Tensor:
        """-log p of each answer token of one row, without padding."""
        ids = torch.tensor([row.input_ids])
        log_p = torch.log_softmax(self.model(input_ids=ids).logits[0], dim=-1)
        places = range(row.answer_start, len(row.input_ids))
        return torch.stack([-log_p[place - 1, row.input_ids[place]] for place in places])

    def gradient(self, loss: torch.Tensor) -> torch.Tensor:
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, self.parameters)])

    def mean_nll(self, rows: Sequence[Any]) -> torch.Tensor:
        losses = torch.cat([self.row_losses(row) for row in rows])
        return losses.sum() / len(losses)

    def objective(self, forget: Sequence[Any], retain: Sequence[Any], known: Sequence[float]) -> torch.Tensor:
        method, beta = self.settings.method, self.settings.beta
        if method == "nll":
            return self.mean_nll(forget)
        if method == "ga":
            return -self.mean_nll(forget)
        if method == "gd":
            return -self.mean_nll(forget) + self.mean_nll(retain)
        sums = [self.row_losses(row).sum() for row in forget]
        parts = [torch.log1p(torch.exp(-beta * (s - k))) for s, k in zip(sums, known, strict=True)]
        return 2 / beta * torch.stack(parts).mean()

    def sums(self, rows: Sequence[Any]) -> list[float]:
        with torch.no_grad():
            return [float(self.row_losses(row).sum()) for row in rows]

    def step(self, number: int, forget: Sequence[Any], retain: Sequence[Any], known: Sequence[float]) -> None:
        loss = self.objective(forget, retain, known)
        g = self.gradient(loss)
        self.trace.losses.append(loss.item())
        self.trace.norms.append(float(g.norm()))
        if self.settings.rectifier == "gru":
            gamma = 1.0 if self.settings.gamma is None else self.settings.gamma
            self.average = (1 - gamma) * self.average + gamma * self.gradient(self.mean_nll(retain))
            m = self.average
            self.trace.cosines.append(float(g @ m / (g.norm() * m.norm())))
            if g @ m < 0:
                g = g - (g @ m) / (m @ m) * m
        if self.settings.tau is not None and g.norm() > self.settings.tau:
            g = g * self.settings.tau / g.norm()
        self._apply(number, g)

    def _apply(self, number: int, g: torch.Tensor) -> None:
        s, (b1, b2) = self.settings, self.settings.betas
        theta = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        if s.optimizer == "sgd":
            theta = theta - s.lr * (g + s.weight_decay * theta)
        else:
            self.first = b1 * self.first + (1 - b1) * g
            self.second = b2 * self.second + (1 - b2) * g * g
            corrected = self.first / (1 - b1**number)
            scale = (self.second / (1 - b2**number)).sqrt() + s.eps
            theta = theta - s.lr * s.weight_decay * theta - s.lr * corrected / scale
        offset = 0
        with torch.no_grad():
            for p in self.parameters:
                p.copy_(theta[offset : offset + p.numel()].view_as(p))
                offset += p.numel()


def flat(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])


def relative(update: torch.Tensor, truth: torch.Tensor) -> float:
    """Relative error of an update."""
    return float((update - truth).norm() / truth.norm()) if truth.norm() > 0 else math.inf
