"""The settings of the paper's MUSE table on the news, which it has no numbers for: MUSE's Llama-2-7B models."""

from search_spaces.backbones.published import LLAMA2_7B_MUSE_NEWS
from search_spaces.muse_books import MUSE_TRAINING
from search_spaces.schema import paper
from trainables.config.settings import Benchmark

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_MUSE_NEWS,
    name="muse_news",
    title="MUSE News on Llama-2-7B: five objectives without and with GRU",
    axes={"method": paper.MUSE_WMDP_METHODS},
    published=paper.MUSE_PUBLISHED_GRU_SETTINGS,
    benchmark=Benchmark(name="muse", data="muse-bench/MUSE-News", split="news", template=LLAMA2_7B_MUSE_NEWS.template),
    training=MUSE_TRAINING,
)
