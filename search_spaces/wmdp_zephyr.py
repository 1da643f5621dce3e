"""The paper's WMDP table on Zephyr-7B-beta: five objectives without and with GRU, 20 steps.

Its published code cuts texts at 1024 tokens. `epochs` is what 20 steps need of the smallest corpus, one batch.
"""

from search_spaces.backbones.published import ZEPHYR_7B
from search_spaces.schema import paper
from trainables.config.settings import Benchmark, Training

WMDP = Benchmark(name="wmdp", data="cais/wmdp-corpora", split="bio_cyber", dialect="paper", template=ZEPHYR_7B.template)

SWEEP = paper.make_paper_sweep(
    ZEPHYR_7B,
    name="wmdp_zephyr",
    title="WMDP on Zephyr-7B-beta: five objectives without and with GRU",
    axes={"method": paper.MUSE_WMDP_METHODS},
    published=paper.WMDP_PUBLISHED_GRU_SETTINGS,
    benchmark=WMDP,
    training=Training(lr=ZEPHYR_7B.lr, epochs=20, max_steps=20, batch_size=32, max_length=1024),
)
