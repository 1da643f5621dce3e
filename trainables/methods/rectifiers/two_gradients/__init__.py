"""Rules that combine the forget gradient and the retain gradient, a file each; it imports rectifiers.base alone."""

from __future__ import annotations

from trainables.methods.rectifiers.two_gradients.base import TwoGradients
from trainables.methods.rectifiers.two_gradients.bisector import Bisector
from trainables.methods.rectifiers.two_gradients.blur import BLUR
from trainables.methods.rectifiers.two_gradients.cagrad import CAGrad
from trainables.methods.rectifiers.two_gradients.gu import GU
from trainables.methods.rectifiers.two_gradients.hamu import HAMUQ, HAMUU
from trainables.methods.rectifiers.two_gradients.mgda import MGDA
from trainables.methods.rectifiers.two_gradients.pcgrad import PCGrad, SymmetricPCGrad
from trainables.methods.rectifiers.two_gradients.sago import SAGO

__all__ = [
    "BLUR",
    "GU",
    "HAMUQ",
    "HAMUU",
    "MGDA",
    "SAGO",
    "Bisector",
    "CAGrad",
    "PCGrad",
    "SymmetricPCGrad",
    "TwoGradients",
]
