"""The paper's main TOFU table on Llama-2-7B-chat: seven objectives without and with GRU."""

from search_spaces import published
from search_spaces.backbones import LLAMA2
from search_spaces.base import GAMMAS, TAUS, Sweep
from trainables.config.settings import Benchmark

SWEEP = Sweep(
    name="tofu_llama",
    title="TOFU on Llama-2-7B-chat: seven objectives without and with GRU",
    tables=("tofu_main",),
    methods=published.TOFU_METHODS,
    splits=published.SPLITS,
    gammas=GAMMAS,
    taus=TAUS,
    choices=published.LLAMA_CHOICES,
    benchmark=Benchmark(dialect="paper", template=LLAMA2.template),
    training=published.tofu(LLAMA2),
    resources=published.gpus(LLAMA2, ranks=4),
    backbone=LLAMA2,
)
