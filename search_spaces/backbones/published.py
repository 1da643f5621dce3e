"""Backbones that come with the project: Llama 2, 3.1 and 3.2, Phi-1.5, Zephyr, Gemma 3, Qwen 2.5 and 3, SmolLM2."""

from search_spaces.schema.backbones import Backbone, make_tofu_backbone
from trainables.config.settings import Model, ModelShape, Training


def _muse(corpus: str) -> tuple[tuple[str, Model], ...]:
    """Return the models that MUSE's authors published: its folders hold no tokenizer, their code takes Llama-2's."""
    found = {"target": f"muse-bench/MUSE-{corpus}_target", "retain": f"muse-bench/MUSE-{corpus}_retrain"}
    return tuple((role, Model(path=path, tokenizer="meta-llama/Llama-2-7b-hf")) for role, path in found.items())


LLAMA_7B_SHAPE = ModelShape(hidden=4096, layers=32, heads=32, intermediate=11008, vocabulary=32000)

LLAMA2_7B_CHAT = make_tofu_backbone(
    "meta-llama/Llama-2-7b-chat-hf",
    name="Llama-2-7B-chat",
    template="llama2",
    shape=LLAMA_7B_SHAPE,
    open_unlearning=True,
)
ICLM = Backbone(name="ICLM-7B", template="phi", shape=LLAMA_7B_SHAPE, lr=1e-5, published=_muse("Books"), corpus="books")
"""MUSE's models of the books; its texts need no template."""
LLAMA2_7B_MUSE_NEWS = Backbone(
    name="Llama-2-7B", template="phi", shape=LLAMA_7B_SHAPE, lr=1e-5, published=_muse("News"), corpus="news"
)
"""MUSE's models of the news."""

LLAMA32_1B = make_tofu_backbone(
    "meta-llama/Llama-3.2-1B-Instruct",
    template="llama3",
    shape=ModelShape(hidden=2048, layers=16, heads=32, kv_heads=8, intermediate=8192, vocabulary=128256, tied=True),
    open_unlearning=True,
)
LLAMA32_3B = make_tofu_backbone(
    "meta-llama/Llama-3.2-3B-Instruct",
    template="llama3",
    shape=ModelShape(hidden=3072, layers=28, heads=24, kv_heads=8, intermediate=8192, vocabulary=128256, tied=True),
    open_unlearning=True,
)
LLAMA31_8B = make_tofu_backbone(
    "meta-llama/Llama-3.1-8B-Instruct",
    template="llama3",
    shape=ModelShape(hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14336, vocabulary=128256),
    open_unlearning=True,
)

PHI_1_5 = make_tofu_backbone(
    "microsoft/phi-1_5",
    name="Phi-1.5",
    lr=2e-5,
    template="phi",
    shape=ModelShape(hidden=2048, layers=24, heads=32, intermediate=8192, vocabulary=51200, gated=False),
)
"""TOFU's authors published a target model (locuslab/tofu_ft_phi-1.5, without a tokenizer) and no retain model, so both
are fine-tuned here from one base by one recipe: --set target= takes another target model."""

ZEPHYR_7B = Backbone(
    name="Zephyr-7B-beta",
    base=Model(path="HuggingFaceH4/zephyr-7b-beta"),
    template="zephyr",
    shape=ModelShape(hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14336, vocabulary=32000),
    lr=4e-6,
)
"""WMDP's target model is the base itself: nothing is fine-tuned, and there is no retain model."""

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
    shape=ModelShape(hidden=1536, layers=28, heads=12, kv_heads=2, intermediate=8960, vocabulary=151936, tied=True),
)
QWEN3_1B7 = make_tofu_backbone(
    "Qwen/Qwen3-1.7B",
    template="chat",
    shape=ModelShape(hidden=2048, layers=28, heads=16, kv_heads=8, intermediate=6144, vocabulary=151936, tied=True),
)
SMOLLM2_1B7 = make_tofu_backbone(
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    template="chat",
    shape=ModelShape(hidden=2048, layers=24, heads=32, intermediate=8192, vocabulary=49152, tied=True),
)
SMOLLM2_135M = make_tofu_backbone(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    lr=3e-5,
    template="chat",
    shape=ModelShape(hidden=576, layers=30, heads=9, kv_heads=3, intermediate=1536, vocabulary=49152, tied=True),
    finetuning=Training(lr=2e-4, epochs=3, batch_size=8, schedule="linear", warmup_epochs=1, weight_decay=0.01),
    finetuning_answers=True,
)
"""A model of this size learns TOFU's rows only at a higher rate than TOFU's recipe has (docs/smollm2)."""
