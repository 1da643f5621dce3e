"""A model and rows of one's own: how strongly it still knows what it is to forget, against what it is to keep.

    python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE --set retain=FILE [--set eval=FILE]

docs/own.md says what the files hold, what is measured and which settings a model needs.

Three objectives that the paper finds at the better end of the trade-off, and that fail in different ways: NPO, bounded
below and without a retain term of its own; GD, which ascends and holds on to the retain rows; SimNPO+GD, bounded and
with a retain term. Each without and with GRU, on the small grid.
"""

from search_spaces.schema.sweep import SMALL_STGS, PublishedSetting, Sweep
from trainables.config.settings import Benchmark, Training

SWEEP = Sweep(
    name="own",
    title="Your own model and rows: three objectives without and with GRU",
    axes={
        "method": ("npo", "gd", "simnpo_gd"),
        "task_vector.stg": SMALL_STGS,
        "task_vector.strength": (1.0, 2.0, 5.0, 10.0),
    },
    published=(
        PublishedSetting(gamma=0.8, tau=None),
        PublishedSetting(method="gd", gamma=0.05, tau=None),
        PublishedSetting(method="simnpo_gd", gamma=0.5, tau=None),
    ),
    benchmark=Benchmark(name="own", data="own", split="own", template="plain"),
    training=Training(lr=1e-5, epochs=5, batch_size=32, eval_every=10),
    export=True,
)
