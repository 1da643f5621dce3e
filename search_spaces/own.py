"""A model and rows of one's own: how strongly it still knows what it is to forget, against what it is to keep.

    python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE [--set retain=FILE] [--set eval=FILE]

docs/own.md says what the files hold, what is measured and which settings a model needs.

The window between forgetting little and breaking a pretrained chat model is narrow and lies elsewhere for each model
(docs/own.md, "What decides most"), so the rate and the weight of the retain rows are searched. The first
rate and weight left the least of six lists of ten facts with NPO+GD on SmolLM2-135M-Instruct (docs/facts).
"""

from search_spaces.schema.sweep import SMALL_MODEL_TRU_STRENGTHS, PublishedSetting, Range, Sweep
from trainables.config.settings import Benchmark, Objective, Selection, Training

SWEEP = Sweep(
    name="own",
    title="Your own model and rows",
    strategy="optuna",
    trials=4,
    axes={
        "method": ("npo_gd", "simnpo_gd", "npo"),
        "rectifier.name": ("none", "gru", "bisector"),
        "rectifier.gamma": (0.8,),
        "rectifier.tau": (None,),
        "training.lr": Range(1e-6, 1e-4, log=True),
        "objective.retain_coefficient": Range(1.0, 32.0, log=True),
        "task_vector.stg": SMALL_MODEL_TRU_STRENGTHS,
        "task_vector.strength": (1.0, 2.0, 5.0, 10.0),
    },
    published=(
        PublishedSetting(gamma=0.8, tau=None),
        PublishedSetting(method="gd", gamma=0.05, tau=None),
        PublishedSetting(method="simnpo_gd", gamma=0.5, tau=None),
    ),
    benchmark=Benchmark(name="own", data="own", split="own", template="auto"),
    searched=("training.lr", "objective.retain_coefficient"),
    objective=Objective(retain_coefficient=16.0, kl_reduction="labels"),
    training=Training(lr=1e-5, epochs=100, max_steps=48, batch_size=8, warmup_steps=4, eval_every=4, targets="fact"),
    selection=Selection(rows=32),
    export=True,
)
