"""The paper's main TOFU table on Llama-2-7B-chat: seven objectives without and with GRU."""

from search_spaces.backbones.llama2 import LLAMA2
from search_spaces.schema import paper
from search_spaces.schema.sweep import GAMMAS, TAUS, Sweep
from trainables.config.settings import Benchmark

SWEEP = Sweep(
    name="tofu_llama",
    title="TOFU on Llama-2-7B-chat: seven objectives without and with GRU",
    tables=("tofu_main",),
    methods=paper.TOFU_METHODS,
    splits=paper.SPLITS,
    gammas=GAMMAS,
    taus=TAUS,
    published=paper.LLAMA_SETTINGS,
    benchmark=Benchmark(dialect="paper", template=LLAMA2.template),
    training=paper.tofu(LLAMA2),
    resources=paper.gpus(LLAMA2, ranks=4),
    backbone=LLAMA2,
)
