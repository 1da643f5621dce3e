"""The paper's UWC tables on Phi-1.5: GA and NPO without and with GRU, mixed back to 85, 90 and 95 % of utility."""

from search_spaces.backbones.published import PHI_1_5
from search_spaces.schema import paper
from trainables.config.settings import Calibration

SWEEP = paper.make_paper_sweep(
    PHI_1_5,
    name="tofu_phi_uwc",
    title="TOFU on Phi-1.5 calibrated by UWC: GA and NPO without and with GRU at equal utility",
    axes={"method": ("ga", "npo"), "benchmark.split": paper.SPLITS},
    published=paper.PHI_PUBLISHED_GRU_SETTINGS,
    calibration=Calibration(targets=(0.85, 0.90, 0.95)),
)
