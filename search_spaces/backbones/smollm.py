"""SmolLM2 with 1.7B parameters."""

from search_spaces.schema.backbones import tofu_backbone
from trainables.config.settings import Shape

SMOLLM2_1B7 = tofu_backbone(
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    template="chat",
    shape=Shape(
        hidden=2048, layers=24, heads=32, kv_heads=32, head_size=64, intermediate=8192, vocabulary=49152, tied=True
    ),
)
