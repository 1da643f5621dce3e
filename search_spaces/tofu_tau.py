"""The paper's sensitivity to tau on Llama-2-7B-chat: its columns, at each method's published gamma."""

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from search_spaces.schema import paper
from search_spaces.schema.sweep import PublishedSetting

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_CHAT,
    name="tofu_tau",
    title="TOFU 5 % on Llama-2-7B-chat: GRU over tau",
    axes={
        "method": ("ga", "npo", "gd"),
        "rectifier.name": ("gru",),
        "rectifier.tau": (0.001, 0.01, 0.1, 1.0, 2.0, 3.0, 10.0, 100.0, None),
    },
    varied=("rectifier.tau",),
    published=(PublishedSetting(gamma=0.8, tau=None), PublishedSetting(method="gd", gamma=0.05, tau=None)),
)
