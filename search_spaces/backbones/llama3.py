"""Llama 3.2 with 1B and 3B parameters, Llama 3.1 with 8B."""

from search_spaces.schema.backbones import Backbone, open_unlearning, tofu_recipe
from trainables.config.settings import Model, Shape

LLAMA32_1B = Backbone(
    name="Llama-3.2-1B-Instruct",
    base=Model(path="meta-llama/Llama-3.2-1B-Instruct"),
    template="llama3",
    shape=Shape(
        hidden=2048, layers=16, heads=32, kv_heads=8, head_size=64, intermediate=8192, vocabulary=128256, tied=True
    ),
    lr=1e-5,
    published=open_unlearning("Llama-3.2-1B-Instruct"),
    finetuning=tofu_recipe(1e-5),
)
LLAMA32_3B = Backbone(
    name="Llama-3.2-3B-Instruct",
    base=Model(path="meta-llama/Llama-3.2-3B-Instruct"),
    template="llama3",
    shape=Shape(
        hidden=3072, layers=28, heads=24, kv_heads=8, head_size=128, intermediate=8192, vocabulary=128256, tied=True
    ),
    lr=1e-5,
    published=open_unlearning("Llama-3.2-3B-Instruct"),
    finetuning=tofu_recipe(1e-5),
)
LLAMA31_8B = Backbone(
    name="Llama-3.1-8B-Instruct",
    base=Model(path="meta-llama/Llama-3.1-8B-Instruct"),
    template="llama3",
    shape=Shape(hidden=4096, layers=32, heads=32, kv_heads=8, head_size=128, intermediate=14336, vocabulary=128256),
    lr=1e-5,
    published=open_unlearning("Llama-3.1-8B-Instruct"),
    finetuning=tofu_recipe(1e-5),
)
