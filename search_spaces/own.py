"""A model and rows of one's own: how strongly it still knows what it is to forget, against what it is to keep.

    python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE --set retain=FILE [--set eval=FILE]

The files are JSON Lines, JSON, Parquet or CSV with rows of `question` and `answer`, `prompt` and `completion`,
`messages`, or `text`: what else they may have is in trainables.benchmarks.own.row_files, and what is measured in
trainables.benchmarks.own. No retain model is needed.

Three objectives that the paper finds at the better end of the trade-off, and that fail in different ways: NPO, bounded
below and without a retain term of its own; GD, which ascends and holds on to the retain rows; SimNPO+GD, bounded and
with a retain term. Each without and with GRU, on the small grid. `--strategy paper` takes the paper's settings for
Llama-2-7B on the smaller TOFU set. --set method=tv,tru trains on no rows that are to be retained.

Every ten steps a trial is evaluated and the selection rule chooses its step; at the end the rule chooses the trial,
whose model is written to STORAGE/exports/ID with a model card, and evaluated again.

Requests in a row: --set requests=DIR in the place of forget=FILE, with a forget file for each, --strategy paper.

On the CPU in fp32, which fits a small model; for others add --set resources.gpus=1 --set resources.precision=bf16.
A model that was taught to chat: --set benchmark.template=chat. Accuracies of lm-eval's tasks in the utility:
--set benchmark.tasks=mmlu,arc_easy, from folders with --set benchmark.sources=mmlu=DIR,arc_easy=DIR.
"""

from search_spaces.schema.sweep import SMALL_STGS, Published, Sweep
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
        Published(gamma=0.8, tau=None),
        Published(method="gd", gamma=0.05, tau=None),
        Published(method="simnpo_gd", gamma=0.5, tau=None),
    ),
    benchmark=Benchmark(name="own", data="own", split="own", template="plain"),
    training=Training(lr=1e-5, epochs=5, batch_size=32, eval_every=10),
    export=True,
)
