"""The paper's main TOFU table on Phi-1.5: seven objectives without and with GRU."""

from search_spaces.backbones.published import PHI
from search_spaces.schema import paper

SWEEP = paper.make_sweep(
    PHI,
    name="tofu_phi",
    title="TOFU on Phi-1.5: seven objectives without and with GRU",
    axes={"method": paper.TOFU_METHODS, "benchmark.split": paper.SPLITS},
    published=paper.PHI_SETTINGS,
)
