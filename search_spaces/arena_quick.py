"""A small arena: GA, GD and NPO on forget05, three learning rates, 100 evaluation rows of each task."""

from search_spaces.arena import AXES
from search_spaces.arena import SWEEP as ARENA

SWEEP = ARENA.model_copy(
    update={
        "name": "arena_quick",
        "title": "TOFU on a 1.4M-parameter Llama: all rectifiers on GA, GD and NPO, few evaluation rows",
        "axes": {
            **AXES,
            "method": ("ga", "gd", "npo"),
            "benchmark.split": ("forget05",),
            "training.lr": (2e-4, 4e-4, 1e-3),
        },
        "benchmark": ARENA.benchmark.model_copy(update={"limit": 100}),
        "trial_seconds": 35.0,
    }
)
