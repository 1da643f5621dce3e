"""Backbones as data: where a model and its fine-tuned forms are on the hub, its template, its sizes, its learning rate.

Published checkpoints are used where their authors put some on the hub; other TOFU models are fine-tuned from the base
model by TOFU's own recipe. `--set models=DIR` puts a folder in the place of all of them.
"""

from __future__ import annotations

from trainables.config.settings import Model, Precision, Shape, Training, Value

GATED = ("meta-llama/",)
"""Owners on the hub whose models need their licence accepted."""


class Backbone(Value):
    """A base model, and its published forms by role (`full`, `retain95`, ... of TOFU; `target`, `retain` of MUSE).

    `corpus`: the split that MUSE's forms are of. `lr` is the paper's for unlearning, or that of the framework which
    uses the model; `finetuning` the recipe of TOFU's models that nobody published, none where they are not made here.
    """

    name: str
    base: Model | None = None
    template: str
    shape: Shape
    lr: float
    precision: Precision = "bf16"
    published: tuple[tuple[str, Model], ...] = ()
    corpus: str | None = None
    finetuning: Training | None = None

    def model(self, role: str, split: str) -> Model | None:
        """The published model of `role`, None where there is none for the split."""
        return dict(self.published).get(role) if self.corpus in (None, split) else None


def gated(hub_id: str) -> bool:
    """Whether a hub id opens only to those who accepted its licence."""
    return hub_id.startswith(GATED)


def tofu_recipe(lr: float) -> Training:
    """TOFU's fine-tuning: five epochs of batches of 32, AdamW, linear schedule after an epoch of warm-up."""
    return Training(lr=lr, epochs=5, batch_size=32, schedule="linear", warmup_steps=125, weight_decay=0.01)


def _open_unlearning(family: str) -> tuple[tuple[str, Model], ...]:
    """The target and retain models that open-unlearning's authors published for TOFU."""
    roles = ("full", "retain90", "retain95", "retain99")
    return tuple((role, Model(path=f"open-unlearning/tofu_{family}_{role}")) for role in roles)


def _muse(corpus: str) -> tuple[tuple[str, Model], ...]:
    """What MUSE's authors published: its folders hold no tokenizer, their code takes Llama-2's."""
    found = {"target": f"muse-bench/MUSE-{corpus}_target", "retain": f"muse-bench/MUSE-{corpus}_retrain"}
    return tuple((role, Model(path=path, tokenizer="meta-llama/Llama-2-7b-hf")) for role, path in found.items())


LLAMA_7B = Shape(hidden=4096, layers=32, heads=32, kv_heads=32, head_size=128, intermediate=11008, vocabulary=32000)
"""Llama 1 and 2 alike."""
LLAMA2 = Backbone(
    name="Llama-2-7B-chat",
    base=Model(path="meta-llama/Llama-2-7b-chat-hf"),
    template="llama2",
    shape=LLAMA_7B,
    lr=1e-5,
    published=_open_unlearning("Llama-2-7b-chat-hf"),
    finetuning=tofu_recipe(1e-5),
)
PHI = Backbone(
    name="Phi-1.5",
    base=Model(path="microsoft/phi-1_5"),
    template="phi",
    shape=Shape(
        hidden=2048,
        layers=24,
        heads=32,
        kv_heads=32,
        head_size=64,
        intermediate=8192,
        vocabulary=51200,
        gated=False,
    ),
    lr=2e-5,
    finetuning=tofu_recipe(2e-5),
)
"""TOFU's authors published a target model (locuslab/tofu_ft_phi-1.5, without a tokenizer) and no retain model, so both
are fine-tuned here from one base by one recipe: --set target= takes another target model."""

ZEPHYR = Backbone(
    name="Zephyr-7B-beta",
    base=Model(path="HuggingFaceH4/zephyr-7b-beta"),
    template="zephyr",
    shape=Shape(hidden=4096, layers=32, heads=32, kv_heads=8, head_size=128, intermediate=14336, vocabulary=32000),
    lr=4e-6,
)
"""WMDP's target model is the base itself: nothing is fine-tuned, and there is no retain model."""
ICLM = Backbone(name="ICLM-7B", template="phi", shape=LLAMA_7B, lr=1e-5, published=_muse("Books"), corpus="books")
"""MUSE's models of the books; its texts need no template."""
MUSE_LLAMA2 = Backbone(
    name="Llama-2-7B", template="phi", shape=LLAMA_7B, lr=1e-5, published=_muse("News"), corpus="news"
)
"""MUSE's models of the news."""

LLAMA32_1B = Backbone(
    name="Llama-3.2-1B-Instruct",
    base=Model(path="meta-llama/Llama-3.2-1B-Instruct"),
    template="llama3",
    shape=Shape(
        hidden=2048,
        layers=16,
        heads=32,
        kv_heads=8,
        head_size=64,
        intermediate=8192,
        vocabulary=128256,
        tied=True,
    ),
    lr=1e-5,
    published=_open_unlearning("Llama-3.2-1B-Instruct"),
    finetuning=tofu_recipe(1e-5),
)
LLAMA32_3B = Backbone(
    name="Llama-3.2-3B-Instruct",
    base=Model(path="meta-llama/Llama-3.2-3B-Instruct"),
    template="llama3",
    shape=Shape(
        hidden=3072,
        layers=28,
        heads=24,
        kv_heads=8,
        head_size=128,
        intermediate=8192,
        vocabulary=128256,
        tied=True,
    ),
    lr=1e-5,
    published=_open_unlearning("Llama-3.2-3B-Instruct"),
    finetuning=tofu_recipe(1e-5),
)
QWEN25_1B5 = Backbone(
    name="Qwen2.5-1.5B-Instruct",
    base=Model(path="Qwen/Qwen2.5-1.5B-Instruct"),
    template="qwen",
    shape=Shape(
        hidden=1536,
        layers=28,
        heads=12,
        kv_heads=2,
        head_size=128,
        intermediate=8960,
        vocabulary=151936,
        tied=True,
    ),
    lr=1e-5,
    finetuning=tofu_recipe(1e-5),
)

BACKBONES = (LLAMA2, PHI, ZEPHYR, ICLM, MUSE_LLAMA2, LLAMA32_1B, LLAMA32_3B, QWEN25_1B5)
