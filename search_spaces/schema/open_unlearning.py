"""Common part of the sweeps on open-unlearning's models: its settings, and the ranges that are searched around them.

Source: locuslab/open-unlearning @ d3d7cf9: scripts/tofu_unlearn.sh, configs/experiment/unlearn/tofu/default.yaml and
configs/trainer (one rate, ten epochs, warm-up of one epoch, no tuning); ranges of
gnueaj/unlearning-depth-score @ fc31639. The first value of each axis is open-unlearning's own.
"""

from search_spaces.schema.backbones import Backbone
from search_spaces.schema.sweep import Axis, Sweep
from trainables.config.settings import Benchmark, Objective, Resources, Selection, Training

OPEN_UNLEARNING_SEARCH_VALUES: dict[str, Axis] = {
    "training.lr": (1e-5, 2e-5, 5e-5),
    "training.epochs": (10, 5),
    "objective.retain_coefficient": (1.0, 2.0, 5.0),
}


def make_open_unlearning_sweep(backbone: Backbone, *, name: str, ranks: int = 1) -> Sweep:
    """Return open-unlearning's TOFU sweep on a backbone, each method alone and with GRU."""
    return Sweep(
        name=name,
        title=f"TOFU on {backbone.name} with open-unlearning's models and settings",
        backbone=backbone,
        axes={
            # GradAscent, GradDiff, NPO and SimNPO; its RMU trains all weights, ours those that RMU's authors train
            "method": ("ga", "gd", "npo_gd", "simnpo_gd"),
            "benchmark.split": ("forget10", "forget05", "forget01"),
            **OPEN_UNLEARNING_SEARCH_VALUES,
        },
        benchmark=Benchmark(dialect="open-unlearning", template=backbone.template),
        selection=Selection(halves=True),
        searched=tuple(OPEN_UNLEARNING_SEARCH_VALUES),
        objective=Objective(preset="open-unlearning"),
        training=Training(lr=1e-5, epochs=10, batch_size=32, schedule="linear", warmup_epochs=1),
        resources=Resources(ranks=ranks, gpus=1, cpus=4, precision=backbone.precision, gpu_memory=80),
    )
