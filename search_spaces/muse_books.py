"""The paper's MUSE table on ICLM-7B: five objectives without and with GRU, one epoch over the books."""

from search_spaces.backbones.published import ICLM
from search_spaces.schema import paper
from trainables.config.settings import Benchmark, Training

MUSE_TRAINING = Training(lr=ICLM.lr, epochs=1, batch_size=32, max_length=2048)

SWEEP = paper.make_paper_sweep(
    ICLM,
    name="muse_books",
    title="MUSE Books on ICLM-7B: five objectives without and with GRU",
    axes={"method": paper.MUSE_WMDP_METHODS},
    published=paper.MUSE_PUBLISHED_GRU_SETTINGS,
    benchmark=Benchmark(name="muse", data="muse-bench/MUSE-Books", split="books", template=ICLM.template),
    training=MUSE_TRAINING,
)
