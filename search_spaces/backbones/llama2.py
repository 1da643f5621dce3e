"""Llama 2 with 7B parameters as TOFU and MUSE use it, and ICLM, which has its sizes."""

from search_spaces.schema.backbones import Backbone, list_open_unlearning_models, make_tofu_finetuning
from trainables.config.settings import Model, ModelShape


def _muse(corpus: str) -> tuple[tuple[str, Model], ...]:
    """Return the models that MUSE's authors published: its folders hold no tokenizer, their code takes Llama-2's."""
    found = {"target": f"muse-bench/MUSE-{corpus}_target", "retain": f"muse-bench/MUSE-{corpus}_retrain"}
    return tuple((role, Model(path=path, tokenizer="meta-llama/Llama-2-7b-hf")) for role, path in found.items())


LLAMA_7B = ModelShape(
    hidden=4096, layers=32, heads=32, kv_heads=32, head_size=128, intermediate=11008, vocabulary=32000
)

LLAMA2 = Backbone(
    name="Llama-2-7B-chat",
    base=Model(path="meta-llama/Llama-2-7b-chat-hf"),
    template="llama2",
    shape=LLAMA_7B,
    lr=1e-5,
    published=list_open_unlearning_models("Llama-2-7b-chat-hf"),
    finetuning=make_tofu_finetuning(1e-5),
)

ICLM = Backbone(name="ICLM-7B", template="phi", shape=LLAMA_7B, lr=1e-5, published=_muse("Books"), corpus="books")
"""MUSE's models of the books; its texts need no template."""
MUSE_LLAMA2 = Backbone(
    name="Llama-2-7B", template="phi", shape=LLAMA_7B, lr=1e-5, published=_muse("News"), corpus="news"
)
"""MUSE's models of the news."""
