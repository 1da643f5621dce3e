"""The paper's figures 1 and 7 on Llama-2-7B-chat: unlearning against retain gradient, and retain loss, at every step.

Figure 1 shows GA and NPO, figure 7 WGA, too, each without and with GRU. A step of an objective alone costs about twice
as much for its observation. The trials are those of `tofu_llama`: `observe` changes none of their numbers.
"""

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from search_spaces.schema import paper

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_CHAT,
    name="tofu_dynamics",
    title="TOFU 5 % on Llama-2-7B-chat: gradients along training of GA, NPO and WGA without and with GRU",
    axes={
        "method": ("ga", "npo", "wga"),
        "benchmark.split": ("forget05",),
        "rectifier.gamma": (0.8,),
        "rectifier.tau": (None, 1.0),
    },
    published=paper.LLAMA_PUBLISHED_GRU_SETTINGS,
    observe=1,
)
