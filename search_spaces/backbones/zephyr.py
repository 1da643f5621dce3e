"""Zephyr with 7B parameters, which WMDP unlearns from."""

from search_spaces.schema.backbones import Backbone
from trainables.config.settings import Model, Shape

ZEPHYR = Backbone(
    name="Zephyr-7B-beta",
    base=Model(path="HuggingFaceH4/zephyr-7b-beta"),
    template="zephyr",
    shape=Shape(hidden=4096, layers=32, heads=32, kv_heads=8, head_size=128, intermediate=14336, vocabulary=32000),
    lr=4e-6,
)
"""WMDP's target model is the base itself: nothing is fine-tuned, and there is no retain model."""
