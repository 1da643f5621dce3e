"""Common part of the paper's sweeps: methods, fixed settings, and its choices of gamma and tau for each cell.

Source: the experiments section and the appendix "Hyper-parameter Configurations". Where they leave something open the
reading is that of docs/reproduction.md: the paper's tables decide.
"""

from typing import Any

from search_spaces.schema.backbones import Backbone
from search_spaces.schema.sweep import PAPER_GAMMA_GRID, TAUS, Axis, PublishedSetting, Sweep
from trainables.config.method_tables import MethodName
from trainables.config.settings import Benchmark, Resources, Selection, Training

TOFU_METHODS: tuple[MethodName, ...] = ("ga", "wga", "npo", "gd", "npo_kl", "npo_gd", "simnpo_gd")
MUSE_WMDP_METHODS: tuple[MethodName, ...] = ("ga", "wga", "gd", "npo", "npo_gd")
SPLITS = ("forget05", "forget10")

LLAMA_PUBLISHED_GRU_SETTINGS = (
    PublishedSetting(gamma=0.8, tau=1.0),
    PublishedSetting(method="ga", split="forget05", gamma=0.8, tau=None),
    PublishedSetting(method="npo", split="forget05", gamma=0.8, tau=None),
    PublishedSetting(method="npo", split="forget10", gamma=0.8, tau=0.5),
    PublishedSetting(method="npo_kl", split="forget10", gamma=0.8, tau=0.1),
    PublishedSetting(method="gd", split="forget05", gamma=0.05, tau=None),
    PublishedSetting(method="gd", split="forget10", gamma=0.05, tau=1.0),
    PublishedSetting(method="simnpo_gd", split="forget05", gamma=0.5, tau=None),
    PublishedSetting(method="simnpo_gd", split="forget10", gamma=0.5, tau=1.0),
)
PHI_PUBLISHED_GRU_SETTINGS = (
    PublishedSetting(split="forget05", gamma=0.8, tau=0.01),
    PublishedSetting(split="forget10", gamma=0.8, tau=0.001),
    PublishedSetting(method="gd", gamma=0.1, tau=None),
    PublishedSetting(method="simnpo_gd", split="forget05", gamma=0.5, tau=0.01),
    PublishedSetting(method="simnpo_gd", split="forget10", gamma=0.5, tau=0.001),
)
WMDP_PUBLISHED_GRU_SETTINGS = (
    PublishedSetting(method="ga", gamma=0.99, tau=1.0),
    PublishedSetting(method="npo", gamma=0.99, tau=0.01),
    PublishedSetting(method="npo_gd", gamma=0.99, tau=0.01),
    PublishedSetting(method="gd", gamma=0.99, tau=0.001),
    PublishedSetting(method="wga", gamma=0.99, tau=0.001),
)
MUSE_PUBLISHED_GRU_SETTINGS = (
    PublishedSetting(gamma=0.8, tau=1.0),
    PublishedSetting(method="npo", gamma=0.8, tau=100.0),
    PublishedSetting(method="npo_gd", gamma=0.8, tau=100.0),
)


def make_paper_sweep(backbone: Backbone, *, axes: dict[str, Axis], ranks: int | None = None, **settings: Any) -> Sweep:
    """Return a sweep with the paper's settings on a backbone, which `settings` override: five epochs, 32 rows a step.

    A trial has one rank unless `ranks` says more, but four of a backbone of 7B parameters.
    The paper selects on validation data, which its benchmarks have none of: one half of the evaluation rows stands in.
    """
    ranks = ranks or (4 if backbone.shape.parameter_count > 5e9 else 1)
    fixed: dict[str, Any] = {
        "benchmark": Benchmark(dialect="paper", template=backbone.template),
        "training": Training(lr=backbone.lr, epochs=5, batch_size=32),
        "selection": Selection(halves=True),
        "resources": Resources(ranks=ranks, gpus=1, cpus=4, precision=backbone.precision, gpu_memory=80),
    }
    grid: dict[str, Axis] = {"rectifier.gamma": PAPER_GAMMA_GRID, "rectifier.tau": TAUS}
    return Sweep(backbone=backbone, axes=grid | axes, **fixed | settings)
