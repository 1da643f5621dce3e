"""A model and rows of one's own: how strongly it still knows what it is to forget, against what it is to keep.

    python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE [--set retain=FILE] [--set eval=FILE]

docs/own.md says what the files hold, what is measured and which settings a model needs.

Three objectives that the paper finds at the better end of the trade-off, and that fail in different ways: NPO+KL,
bounded below and held to the target model's own distributions on the labels of the retain rows; GD, which ascends and
holds on to these rows; SimNPO+GD, bounded and with a retain term. Each without and with GRU, on the small grid, at two
rates: the window between forgetting little and breaking a pretrained chat model is narrow (of SmolLM2-135M-Instruct,
five steps of NPO+KL at 5e-6 left 7 of 20 facts and 8 of 15 neighbours, ten at 2e-5 nothing). At most 40 small batches,
looked at every fifth: few rows go a long way.
"""

from search_spaces.schema.sweep import SMALL_STGS, PublishedSetting, Sweep
from trainables.config.settings import Benchmark, Objective, Training

SWEEP = Sweep(
    name="own",
    title="Your own model and rows: three objectives without and with GRU",
    axes={
        "method": ("npo_kl", "gd", "simnpo_gd"),
        "training.lr": (2e-6, 5e-6),
        "task_vector.stg": SMALL_STGS,
        "task_vector.strength": (1.0, 2.0, 5.0, 10.0),
    },
    published=(
        PublishedSetting(gamma=0.8, tau=None),
        PublishedSetting(method="gd", gamma=0.05, tau=None),
        PublishedSetting(method="simnpo_gd", gamma=0.5, tau=None),
    ),
    benchmark=Benchmark(name="own", data="own", split="own", template="auto"),
    searched=("training.lr",),
    objective=Objective(kl_reduction="labels"),
    training=Training(lr=2e-6, epochs=40, max_steps=40, batch_size=8, eval_every=5),
    export=True,
)
