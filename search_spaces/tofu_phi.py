"""The paper's main TOFU table on Phi-1.5: seven objectives without and with GRU."""

from search_spaces.backbones.phi import PHI
from search_spaces.schema import paper
from search_spaces.schema.sweep import GAMMAS, TAUS, Sweep
from trainables.config.settings import Benchmark

SWEEP = Sweep(
    name="tofu_phi",
    title="TOFU on Phi-1.5: seven objectives without and with GRU",
    tables=("tofu_main",),
    methods=paper.TOFU_METHODS,
    splits=paper.SPLITS,
    gammas=GAMMAS,
    taus=TAUS,
    published=paper.PHI_SETTINGS,
    benchmark=Benchmark(dialect="paper", template=PHI.template),
    training=paper.tofu(PHI),
    resources=paper.gpus(PHI),
    backbone=PHI,
)
