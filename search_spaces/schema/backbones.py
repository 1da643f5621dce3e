"""Backbones as data: where a model and its fine-tuned forms are on the hub, its template, sizes and learning rate.

Published checkpoints are used where there are some; other TOFU models are fine-tuned by TOFU's own recipe.
"""

from typing import Any

from trainables.config.settings import FrozenSettings, Model, ModelShape, Precision, Training

GATED_HUB_ID_PREFIXES = ("meta-llama/", "google/gemma")


class Backbone(FrozenSettings):
    """A base model, and its published forms by role (`full`, `retain95`, ... of TOFU; `target`, `retain` of MUSE).

    `corpus`: the MUSE split that its forms are of. `lr` is the paper's for unlearning, or that of the framework which
    uses the model; `finetuning` the recipe of TOFU's models that nobody published.
    `finetuning_answers`: they are trained on the base model's own answers to the neutral prompts, too.
    """

    name: str
    base: Model | None = None
    template: str
    shape: ModelShape
    lr: float
    precision: Precision = "bf16"
    published: tuple[tuple[str, Model], ...] = ()
    corpus: str | None = None
    finetuning: Training | None = None
    finetuning_answers: bool = False

    def model(self, role: str, split: str) -> Model | None:
        """Return the published model of `role`, None if there is none for the split."""
        return dict(self.published).get(role) if self.corpus in (None, split.split("_")[0]) else None


def make_tofu_finetuning(lr: float) -> Training:
    """Return TOFU's fine-tuning: five epochs of batches of 32, AdamW, linear schedule after an epoch of warm-up."""
    return Training(lr=lr, epochs=5, batch_size=32, schedule="linear", warmup_steps=125, weight_decay=0.01)


def make_tofu_backbone(path: str, *, lr: float = 1e-5, open_unlearning: bool = False, **settings: Any) -> Backbone:
    """Return a backbone called as its base on the hub, unlearned, and fine-tuned by TOFU's recipe, at this rate.

    `open_unlearning`: the target and retain models for TOFU are those that open-unlearning's authors published.
    """
    name, roles = path.rpartition("/")[2], ("full", "retain90", "retain95", "retain99") if open_unlearning else ()
    published = tuple((role, Model(path=f"open-unlearning/tofu_{name}_{role}")) for role in roles)
    fixed = {"name": name, "base": Model(path=path), "lr": lr, "published": published}
    return Backbone.model_validate(fixed | {"finetuning": make_tofu_finetuning(lr)} | settings)
