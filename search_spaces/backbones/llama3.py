"""Llama 3.2 with 1B and 3B parameters, Llama 3.1 with 8B."""

from search_spaces.schema.backbones import list_open_unlearning_models, make_tofu_backbone
from trainables.config.settings import ModelShape

LLAMA32_1B = make_tofu_backbone(
    "meta-llama/Llama-3.2-1B-Instruct",
    template="llama3",
    shape=ModelShape(
        hidden=2048, layers=16, heads=32, kv_heads=8, head_size=64, intermediate=8192, vocabulary=128256, tied=True
    ),
    published=list_open_unlearning_models("Llama-3.2-1B-Instruct"),
)
LLAMA32_3B = make_tofu_backbone(
    "meta-llama/Llama-3.2-3B-Instruct",
    template="llama3",
    shape=ModelShape(
        hidden=3072, layers=28, heads=24, kv_heads=8, head_size=128, intermediate=8192, vocabulary=128256, tied=True
    ),
    published=list_open_unlearning_models("Llama-3.2-3B-Instruct"),
)
LLAMA31_8B = make_tofu_backbone(
    "meta-llama/Llama-3.1-8B-Instruct",
    template="llama3",
    shape=ModelShape(
        hidden=4096, layers=32, heads=32, kv_heads=8, head_size=128, intermediate=14336, vocabulary=128256
    ),
    published=list_open_unlearning_models("Llama-3.1-8B-Instruct"),
)
