"""The paper's main TOFU table on Phi-1.5: seven objectives without and with GRU."""

from search_spaces import published
from search_spaces.backbones import PHI
from search_spaces.base import GAMMAS, TAUS, Sweep
from trainables.config.settings import Benchmark

SWEEP = Sweep(
    name="tofu_phi",
    title="TOFU on Phi-1.5: seven objectives without and with GRU",
    tables=("tofu_main",),
    methods=published.TOFU_METHODS,
    splits=published.SPLITS,
    gammas=GAMMAS,
    taus=TAUS,
    choices=published.PHI_CHOICES,
    benchmark=Benchmark(dialect="paper", template=PHI.template),
    training=published.tofu(PHI),
    resources=published.gpus(PHI),
    backbone=PHI,
)
