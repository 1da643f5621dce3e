"""Gemma 3 with 1B parameters."""

from search_spaces.schema.backbones import tofu_backbone
from trainables.config.settings import Shape

GEMMA3_1B = tofu_backbone(
    "google/gemma-3-1b-it",
    template="chat",
    shape=Shape(
        hidden=1152, layers=26, heads=4, kv_heads=1, head_size=256, intermediate=6912, vocabulary=262144, tied=True
    ),
)
