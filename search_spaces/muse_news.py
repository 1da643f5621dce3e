"""The settings of the paper's MUSE table on the news, which it has no numbers for: MUSE's Llama-2-7B models."""

from search_spaces.backbones.published import MUSE_LLAMA2
from search_spaces.muse_books import TRAINING
from search_spaces.schema import paper
from trainables.config.settings import Benchmark

SWEEP = paper.make_sweep(
    MUSE_LLAMA2,
    name="muse_news",
    title="MUSE News on Llama-2-7B: five objectives without and with GRU",
    axes={"method": paper.MUSE_WMDP_METHODS},
    published=paper.MUSE_SETTINGS,
    benchmark=Benchmark(name="muse", data="muse-bench/MUSE-News", split="news", template=MUSE_LLAMA2.template),
    training=TRAINING,
)
