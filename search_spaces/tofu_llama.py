"""The paper's main TOFU table on Llama-2-7B-chat: seven objectives without and with GRU."""

from search_spaces.backbones.llama2 import LLAMA2
from search_spaces.schema import paper

SWEEP = paper.sweep(
    LLAMA2,
    ranks=4,
    name="tofu_llama",
    title="TOFU on Llama-2-7B-chat: seven objectives without and with GRU",
    tables=("tofu_main",),
    methods=paper.TOFU_METHODS,
    splits=paper.SPLITS,
    published=paper.LLAMA_SETTINGS,
)
