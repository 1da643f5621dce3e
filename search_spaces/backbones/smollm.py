"""SmolLM2 with 1.7B parameters."""

from search_spaces.schema.backbones import Backbone, tofu_recipe
from trainables.config.settings import Model, Shape

SMOLLM2_1B7 = Backbone(
    name="SmolLM2-1.7B-Instruct",
    base=Model(path="HuggingFaceTB/SmolLM2-1.7B-Instruct"),
    template="chat",
    shape=Shape(
        hidden=2048, layers=24, heads=32, kv_heads=32, head_size=64, intermediate=8192, vocabulary=49152, tied=True
    ),
    lr=1e-5,
    finetuning=tofu_recipe(1e-5),
)
