"""A small arena: six rectifiers on GA and NPO, without and with a retain term, in 18 steps of few evaluation rows."""

from search_spaces.arena import ARENA_AXES
from search_spaces.arena import SWEEP as ARENA

SWEEP = ARENA.model_copy(
    update={
        "name": "arena_quick",
        "title": "TOFU on a 1.4M-parameter Llama: six rectifiers on GA, GD, NPO and NPO+GD, few evaluation rows",
        "axes": {
            **ARENA_AXES,
            "method": ("ga", "gd", "npo", "npo_gd"),
            "rectifier.name": ("none", "agem", "pcgrad", "blur", "bisector", "sago", "gru"),
            "benchmark.split": ("forget05",),
            "training.lr": (1.5e-4, 3e-4, 6e-4, 1.2e-3),
        },
        "benchmark": ARENA.benchmark.model_copy(update={"limit": 60}),
        "training": ARENA.training.model_copy(update={"epochs": 3}),
    }
)
