"""Backbones as data: where a model and its fine-tuned forms are on the hub, its template, its learning rate.

Published checkpoints are used where their authors put some on the hub; every other target or retain model is
fine-tuned from the base model by TOFU's own recipe. `--set models=DIR` puts a folder in the place of all of them.
"""

from __future__ import annotations

from trainables.config import Model, Precision, Training, Value


class Backbone(Value):
    """A base model, and its published forms by role (`full`, `retain95`, ...).

    `lr` is the paper's for unlearning, `finetuning` the recipe of the models that nobody published.
    """

    name: str
    base: Model
    template: str
    lr: float
    precision: Precision = "bf16"
    published: tuple[tuple[str, Model], ...] = ()
    finetuning: Training

    def model(self, role: str) -> Model | None:
        """The published model of `role`, None where there is none."""
        return dict(self.published).get(role)


def tofu_recipe(lr: float) -> Training:
    """TOFU's fine-tuning: five epochs of batches of 32, AdamW, linear schedule after an epoch of warm-up."""
    return Training(lr=lr, epochs=5, batch_size=32, schedule="linear", warmup_steps=125, weight_decay=0.01)


def _open_unlearning(family: str) -> tuple[tuple[str, Model], ...]:
    """The target and retain models that open-unlearning's authors published for TOFU."""
    roles = ("full", "retain90", "retain95", "retain99")
    return tuple((role, Model(path=f"open-unlearning/tofu_{family}_{role}")) for role in roles)


LLAMA2 = Backbone(
    name="Llama-2-7B-chat",
    base=Model(path="meta-llama/Llama-2-7b-chat-hf"),
    template="llama2",
    lr=1e-5,
    published=_open_unlearning("Llama-2-7b-chat-hf"),
    finetuning=tofu_recipe(1e-5),
)
PHI = Backbone(
    name="Phi-1.5",
    base=Model(path="microsoft/phi-1_5"),
    template="phi",
    lr=2e-5,
    finetuning=tofu_recipe(2e-5),
)
"""TOFU's authors published a target model (locuslab/tofu_ft_phi-1.5, without a tokenizer) and no retain model, so both
are fine-tuned here from one base by one recipe: --set target= takes another target model."""
