"""Qwen 2.5 with 1.5B parameters, Qwen 3 with 1.7B."""

from search_spaces.schema.backbones import tofu_backbone
from trainables.config.settings import Shape

QWEN25_1B5 = tofu_backbone(
    "Qwen/Qwen2.5-1.5B-Instruct",
    template="qwen",
    shape=Shape(
        hidden=1536, layers=28, heads=12, kv_heads=2, head_size=128, intermediate=8960, vocabulary=151936, tied=True
    ),
)
QWEN3_1B7 = tofu_backbone(
    "Qwen/Qwen3-1.7B",
    template="chat",
    shape=Shape(
        hidden=2048, layers=28, heads=16, kv_heads=8, head_size=128, intermediate=6144, vocabulary=151936, tied=True
    ),
)
