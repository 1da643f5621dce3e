"""Gemma 3, Qwen 2.5 and 3, SmolLM2: chat models with 135M to 1.7B parameters."""

from search_spaces.schema.backbones import Backbone, make_tofu_backbone
from trainables.config.settings import Model, ModelShape, Training

GEMMA3_1B = make_tofu_backbone(
    "google/gemma-3-1b-it",
    template="chat",
    shape=ModelShape(
        hidden=1152, layers=26, heads=4, kv_heads=1, head_size=256, intermediate=6912, vocabulary=262144, tied=True
    ),
)
QWEN25_1B5 = make_tofu_backbone(
    "Qwen/Qwen2.5-1.5B-Instruct",
    template="qwen",
    shape=ModelShape(
        hidden=1536, layers=28, heads=12, kv_heads=2, head_size=128, intermediate=8960, vocabulary=151936, tied=True
    ),
)
QWEN3_1B7 = make_tofu_backbone(
    "Qwen/Qwen3-1.7B",
    template="chat",
    shape=ModelShape(
        hidden=2048, layers=28, heads=16, kv_heads=8, head_size=128, intermediate=6144, vocabulary=151936, tied=True
    ),
)
SMOLLM2_1B7 = make_tofu_backbone(
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    template="chat",
    shape=ModelShape(
        hidden=2048, layers=24, heads=32, kv_heads=32, head_size=64, intermediate=8192, vocabulary=49152, tied=True
    ),
)
SMOLLM2_135M = Backbone(
    name="SmolLM2-135M-Instruct",
    base=Model(path="HuggingFaceTB/SmolLM2-135M-Instruct"),
    template="chat",
    shape=ModelShape(
        hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, intermediate=1536, vocabulary=49152, tied=True
    ),
    lr=3e-5,
    finetuning=Training(lr=2e-4, epochs=3, batch_size=8, schedule="linear", warmup_epochs=1, weight_decay=0.01),
    finetuning_answers=True,
)
"""A model of this size learns TOFU's rows only at a higher rate than TOFU's recipe has (docs/smollm2)."""
