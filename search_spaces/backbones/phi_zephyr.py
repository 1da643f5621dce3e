"""Phi-1.5 with 1.4B parameters, and Zephyr with 7B, which WMDP unlearns from."""

from search_spaces.schema.backbones import Backbone, make_tofu_finetuning
from trainables.config.settings import Model, ModelShape

PHI = Backbone(
    name="Phi-1.5",
    base=Model(path="microsoft/phi-1_5"),
    template="phi",
    shape=ModelShape(
        hidden=2048, layers=24, heads=32, kv_heads=32, head_size=64, intermediate=8192, vocabulary=51200, gated=False
    ),
    lr=2e-5,
    finetuning=make_tofu_finetuning(2e-5),
)
"""TOFU's authors published a target model (locuslab/tofu_ft_phi-1.5, without a tokenizer) and no retain model, so both
are fine-tuned here from one base by one recipe: --set target= takes another target model."""

ZEPHYR = Backbone(
    name="Zephyr-7B-beta",
    base=Model(path="HuggingFaceH4/zephyr-7b-beta"),
    template="zephyr",
    shape=ModelShape(hidden=4096, layers=32, heads=32, kv_heads=8, head_size=128, intermediate=14336, vocabulary=32000),
    lr=4e-6,
)
"""WMDP's target model is the base itself: nothing is fine-tuned, and there is no retain model."""
