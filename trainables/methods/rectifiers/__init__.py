"""Rectifiers: what is done to the objective's gradient before the optimizer, each a class. It imports config."""

from __future__ import annotations

from typing import Any

from trainables.methods import custom
from trainables.methods.rectifiers import two_gradients
from trainables.methods.rectifiers.base import (
    DEGENERATE,
    Metric,
    Outcome,
    Rectifier,
    Reduce,
    Segments,
    Shard,
    inner,
    products,
)
from trainables.methods.rectifiers.gru import AGEM, GRU
from trainables.methods.rectifiers.none_and_clip import Plain
from trainables.methods.rectifiers.several_retain import GEM, OrthoGrad
from trainables.methods.rectifiers.two_gradients import TwoGradients

__all__ = [
    "AGEM",
    "DEGENERATE",
    "GRU",
    "Metric",
    "Outcome",
    "Plain",
    "Rectifier",
    "Reduce",
    "Segments",
    "Shard",
    "TwoGradients",
]
__all__ += ["inner", "make_rectifier", "products"]

PUBLISHED: dict[str, Any] = {
    "none": Plain,
    "clip": Plain,
    "agem": AGEM,
    "pcgrad": two_gradients.PCGrad,
    "pcgrad_symmetric": two_gradients.SymmetricPCGrad,
    "blur": two_gradients.BLUR,
    "hamu_q": two_gradients.HAMUQ,
    "hamu_u": two_gradients.HAMUU,
    "bisector": two_gradients.Bisector,
    "mgda": two_gradients.MGDA,
    "cagrad": two_gradients.CAGrad,
    "sago": two_gradients.SAGO,
    "gu": two_gradients.GU,
    "orthograd": OrthoGrad,
    "gem": GEM,
    "gru": GRU,
}


def make_rectifier(name: str, gamma: float | None = None, tau: float | None = None, **settings: Any) -> Rectifier:
    """Return the rectifier of that name; `settings`: of RULE_SETTINGS those that it takes, the rest None.

    `memory` is told by `gamma`, the weight of the new retain gradient, which is none without a moving average.
    """
    stated = {key: value for key, value in settings.items() if value is not None and key != "memory"}
    return (PUBLISHED.get(name) or custom.load_part(name, "Rectifier"))(gamma, tau, **stated)
