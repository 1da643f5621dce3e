"""Rectifiers: what is done to the objective's gradient before the optimizer, each a class. It imports config."""

from __future__ import annotations

from trainables.methods import custom
from trainables.methods.rectifiers.base import DEGENERATE, Outcome, Rectifier, Reduce, Shard, inner, products
from trainables.methods.rectifiers.gru import GRU, PCGrad
from trainables.methods.rectifiers.none_and_clip import Plain

__all__ = ["DEGENERATE", "GRU", "Outcome", "PCGrad", "Plain", "Rectifier", "Reduce", "Shard"]
__all__ += ["inner", "make_rectifier", "products"]

PUBLISHED = {"none": Plain, "clip": Plain, "pcgrad": PCGrad, "gru": GRU}


def make_rectifier(name: str, gamma: float | None = None, tau: float | None = None) -> Rectifier:
    """Return the rectifier of that name with its settings."""
    return (PUBLISHED.get(name) or custom.load_part(name, "Rectifier"))(gamma, tau)
