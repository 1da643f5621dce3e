"""The paper's main TOFU table on Phi-1.5: seven objectives without and with GRU."""

from search_spaces.backbones.published import PHI_1_5
from search_spaces.schema import paper

SWEEP = paper.make_paper_sweep(
    PHI_1_5,
    name="tofu_phi",
    title="TOFU on Phi-1.5: seven objectives without and with GRU",
    axes={"method": paper.TOFU_METHODS, "benchmark.split": paper.SPLITS},
    published=paper.PHI_PUBLISHED_GRU_SETTINGS,
)
