"""The paper's sensitivity to gamma on Llama-2-7B-chat: its columns; tau is 1 for GA and NPO, none for GD.

"N/A" is no moving average, the same as gamma 1. Columns that the paper prints as "--" (GD above 0.6) run like the rest.
"""

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from search_spaces.schema import paper
from search_spaces.schema.sweep import PublishedSetting

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_CHAT,
    name="tofu_gamma",
    title="TOFU 5 % on Llama-2-7B-chat: GRU over gamma",
    axes={
        "method": ("ga", "npo", "gd"),
        "rectifier.name": ("gru",),
        "rectifier.gamma": (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 0.99, None),
        "rectifier.tau": (1.0, None),
    },
    varied=("rectifier.gamma",),
    published=(PublishedSetting(gamma=0.8, tau=1.0), PublishedSetting(method="gd", gamma=0.05, tau=None)),
)
