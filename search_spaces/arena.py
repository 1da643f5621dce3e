"""Which rectifier helps: all of them on objectives without and, where they suit it, with a retain term.

The first start searches learning rates on the seeds that settings are chosen on. Then a start for each method and
rectifier runs the chosen setting, which the report lists, on ten others, which alone are reported:

    python -m platform.sweep arena
    python -m platform.sweep arena --only method=npo --only rectifier.name=none,gru --set training.lr=1e-3 \
        --seeds 10,11,12,13,14,15,16,17,18,19 --set calibration.targets=0.9

All have as many optimizer steps. A rule that adds the retain gradient takes the forget terms alone, so that its rival
is the objective with a retain term; on such an objective it is left out. Settings are chosen on one half of the
evaluation rows and reported on the other.
"""

from search_spaces.tofu_tiny import SWEEP as TINY
from trainables.config.settings import Selection

SELECTION_SEEDS = (0, 1, 2)
RECTIFIERS = ("none", "agem", "pcgrad", "pcgrad_symmetric", "blur", "hamu_q", "hamu_u", "bisector", "mgda", "cagrad")
RECTIFIERS += ("sago", "orthograd", "gem", "gu", "gru")
ARENA_AXES = {
    "method": ("ga", "gd", "npo", "npo_gd", "simnpo", "simnpo_gd"),
    "benchmark.split": ("forget05", "forget10"),
    "rectifier.name": RECTIFIERS,
    "rectifier.gamma": (0.8,),
    "rectifier.tau": (None,),
    "seed": SELECTION_SEEDS,
}
SWEEP = TINY.model_copy(
    update={
        "selection": Selection(halves=True, seeds=SELECTION_SEEDS),
        "searched": ("training.lr",),
        "name": "arena",
        "title": "TOFU on a 1.4M-parameter Llama: all rectifiers on six objectives, at each one's own learning rate",
        "axes": {**ARENA_AXES, "training.lr": (1e-4, 2e-4, 4e-4, 1e-3, 2e-3)},
        "benchmark": TINY.benchmark.model_copy(update={"measures": ("extraction_strength",)}),
        "observe": None,
    }
)
