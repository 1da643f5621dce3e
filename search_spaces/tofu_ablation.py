"""The paper's ablation on Llama-2-7B-chat: no GRU, clipping alone, GRU.

Its "w/ GRU" numbers are those of the column tau = 100 in its tau table, so 100 is the clipping norm of all three; the
grid has GRU without clipping too.
"""

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from search_spaces.schema import paper
from search_spaces.schema.sweep import PublishedSetting

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_CHAT,
    name="tofu_ablation",
    title="TOFU 5 % on Llama-2-7B-chat: neither, clipping, rectification, both",
    axes={
        "method": ("ga", "npo"),
        "rectifier.name": ("none", "clip", "gru"),
        "rectifier.gamma": (0.8,),
        "rectifier.tau": (None, 100.0),
    },
    published=(PublishedSetting(gamma=0.8, tau=100.0),),
)
