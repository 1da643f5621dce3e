"""Rectifiers: what is done to the objective's gradient before the optimizer, each a class. It imports config."""

from typing import Any

from trainables.methods import custom
from trainables.methods.rectifiers import two_gradients as rules
from trainables.methods.rectifiers.base import Outcome, Rectifier, Reduce, Shard
from trainables.methods.rectifiers.gru import GRU, ClippingRectifier
from trainables.methods.rectifiers.several_retain import GEM, OrthoGrad

__all__ = ["GRU", "ClippingRectifier", "Outcome", "Rectifier", "Reduce", "Shard", "find_rectifier_class"]

RECTIFIER_CLASSES: dict[str, Any] = {
    "none": ClippingRectifier,
    "clip": ClippingRectifier,
    "agem": GRU,  # A-GEM (Chaudhry et al., 2019): with this step's retain gradient for the average, without clipping
    "pcgrad": rules.PCGrad,
    "pcgrad_symmetric": rules.SymmetricPCGrad,
    "blur": rules.BLUR,
    "hamu_q": rules.HAMUQ,
    "hamu_u": rules.HAMUU,
    "bisector": rules.Bisector,
    "mgda": rules.MGDA,
    "cagrad": rules.CAGrad,
    "sago": rules.SAGO,
    "gu": rules.GU,
    "orthograd": OrthoGrad,
    "gem": GEM,
    "gru": GRU,
}


def find_rectifier_class(name: str) -> Any:
    """Return the class of that name; it is made with gamma, tau and, by name, the other settings that it takes."""
    return RECTIFIER_CLASSES.get(name) or custom.load_custom_method(name, "Rectifier")
