"""A model and rows of one's own: how strongly it still knows what it is to forget, against what it is to keep.

    python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE [--set retain=FILE] [--set eval=FILE]

docs/own.md says what the files hold, what is measured and which settings a model needs.

Three objectives that fail in different ways: NPO+GD and SimNPO+GD, which are bounded, and GD, which ascends; each holds
on to the retain rows, which weigh four times as much as the rows to forget. Each without and with GRU, on the small
grid, at two rates: the window between forgetting little and breaking a pretrained chat model is narrow (docs/own.md,
"What decides most"). At most 40 small batches after a short warm-up, looked at every fifth: few rows go a long way.
"""

from search_spaces.schema.sweep import SMALL_STGS, PublishedSetting, Sweep
from trainables.config.settings import Benchmark, Objective, Training

SWEEP = Sweep(
    name="own",
    title="Your own model and rows: three objectives without and with GRU",
    axes={
        "method": ("npo_gd", "gd", "simnpo_gd"),
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
    objective=Objective(retain_coefficient=4.0, kl_reduction="labels"),
    training=Training(lr=2e-6, epochs=40, max_steps=40, batch_size=8, warmup_steps=4, eval_every=5),
    export=True,
)
