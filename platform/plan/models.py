"""The models of a sweep: a folder's, a published one, or one that a recipe makes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from search_spaces.schema.sweep import Making, Sweep
from trainables import benchmarks as kinds
from trainables.common.errors import InputError
from trainables.common.paths import describe_path, is_file, is_folder, list_folder
from trainables.config.settings import Benchmark, Model, Training
from trainables.config.trial import Recipe
from trainables.data import rows
from trainables.storage.base import Storage
from trainables.training import models

RECIPES_OF = "tofu"
"""The benchmark whose models are fine-tuned here: the roles of its models are configurations of its data."""
BASE = "base"
"""The folder of `models` whose model the others are fine-tuned from."""


@dataclass(frozen=True)
class Reference:
    """An evaluation that every trial of a split is compared with."""

    role: str
    split: str
    model: Model
    evaluation: str


def role_of(sweep: Sweep, reference: Reference) -> str:
    """What a folder of models calls the reference's model: `full`, `retain95`, ..."""
    kind = kinds.find(sweep.benchmark.name)
    return (kind.retain_role(reference.split) if reference.role == "retain" else None) or kind.TARGET


class ModelRecipes:
    """Finds or plans the models of a sweep: a folder's where it holds them, else a recipe's."""

    def __init__(self, sweep: Sweep, store: Storage, benchmark: Benchmark) -> None:
        self.sweep = sweep
        self.store = store
        self.benchmark = benchmark
        self.recipes: dict[str, Recipe] = {}

    def model(self, role: str) -> Model:
        """The model trained on `role`'s rows: `full`, `retain95`, ..."""
        if role == kinds.find(self.benchmark.name).TARGET and self.sweep.target:
            return self._found(Model(path=self.sweep.target), "target")
        if self.sweep.models is None:
            return self._published(role) or self._made(role, self._base())
        folder = Path(absolute(self.sweep.models))
        if not is_folder(folder):
            raise InputError(f"models: no folder {describe_path(self.sweep.models)}")
        if is_folder(folder / role):
            return self._found(Model(path=str(folder / role)), f"models/{role}")
        published = self._on_hub(role) is not None
        for base in (folder / BASE,) if published else (folder, folder / BASE):
            if is_file(base / "config.json"):
                return self._made(role, self._found(Model(path=str(base)), "models"))
        if published:
            lacking = ", ".join(f"{name}/" for name in self._roles() if not is_folder(folder / name))
            raise InputError(
                f"models: {folder} has no {lacking}; put each model into its own folder there; "
                f"it has {list_folder(folder)}"
            )
        raise InputError(
            f"models: {folder} has no {role}/ and no base model to fine-tune it from (base/, or config.json in the "
            f"folder itself); it has {list_folder(folder)}"
        )

    def check_folders(self) -> None:
        """Raise InputError where a folder that is given is none: where the rows are bad, no more can be told."""
        if self.sweep.target:
            models.check(Model(path=self.sweep.target, tokenizer=self.sweep.tokenizer), "target")
        if self.sweep.models is not None and not is_folder(absolute(self.sweep.models)):
            raise InputError(f"models: no folder {describe_path(self.sweep.models)}")

    def ordered(self, paths: set[str]) -> tuple[Recipe, ...]:
        """The recipes that the models at `paths` need, each after the one it starts from."""
        chain: list[Recipe] = []
        for path in sorted(paths):
            steps: list[Recipe] = []
            while path in self.recipes:
                recipe = self.recipes[path]
                steps.append(recipe)
                path = recipe.base.path if recipe.base else ""
            chain += [step for step in reversed(steps) if step not in chain]
        return tuple(chain)

    def _roles(self) -> list[str]:
        """The models that the sweep's splits take from a folder of models."""
        kind = kinds.find(self.benchmark.name)
        target = [] if self.sweep.target else [kind.TARGET]
        retain = [role for split in self.sweep.splits if (role := kind.retain_role(split))]
        return list(dict.fromkeys([*target, *retain]))

    def _published(self, role: str) -> Model | None:
        found = self._on_hub(role)
        return self._found(found, f"models/{role}") if found else None

    def _on_hub(self, role: str) -> Model | None:
        """What its authors published; where there is no retain model, what is unlearned is the base model itself."""
        backbone, split = self.sweep.backbone, self.benchmark.split
        if backbone is None:
            return None
        plain = kinds.find(self.benchmark.name).retain_role(split) is None
        return backbone.base if plain else backbone.model(role, split)

    def _base(self) -> Model | None:
        if self.sweep.backbone is not None:
            base = self.sweep.backbone.base
            return self._found(base, f"models/{BASE}") if base else None
        making = self._making()
        if making.pretraining is None:
            return None
        return self._planned(making.pretraining_configs, making.pretraining, None)

    def _made(self, role: str, base: Model | None) -> Model:
        """The model that TOFU's recipe makes: of other benchmarks nobody fine-tunes one here. Raises InputError."""
        backbone, benchmark = self.sweep.backbone, self.benchmark
        if benchmark.name != RECIPES_OF:
            named = f"{backbone.name} has no" if backbone else "there is no"
            raise InputError(
                f"models: {named} published {role} model of {benchmark.name} {benchmark.split}, and models are "
                f"fine-tuned here for {RECIPES_OF} alone; give checkpoints: {self._advice()}"
            )
        if backbone is not None:
            if backbone.finetuning is None or base is None:
                raise InputError(
                    f"models: {backbone.name} has no published {role} model and none is fine-tuned here; give a "
                    f"folder with {role}/: --set models=DIR"
                )
            return self._planned((role,), backbone.finetuning, base)
        making = self._making()
        return self._planned((role, *making.general_configs), making.finetuning, base)

    def _advice(self) -> str:
        """What to set where checkpoints have to be given."""
        kind = kinds.find(self.benchmark.name)
        retain = kind.retain_role(self.benchmark.split)
        if retain is None:
            return "--set target=DIR_OR_HUB_ID"
        return f"--set models=DIR (a folder with {kind.TARGET}/ and {retain}/)"

    def _making(self) -> Making:
        if self.sweep.making is None:
            raise InputError(f"sweep {self.sweep.name}: no way to make its models; give a folder: --set models=DIR")
        return self.sweep.making

    def _planned(self, configs: tuple[str, ...], training: Training, base: Model | None) -> Model:
        making, benchmark = self.sweep.making, self.benchmark
        if not benchmark.is_fictional:
            for name in configs:
                if rows.is_folder(benchmark.data):
                    rows.file_of(Path(benchmark.data), name)
        recipe = Recipe(
            base=base,
            architecture=() if base or making is None else making.architecture,
            vocabulary=None if base or making is None else making.vocabulary,
            data=benchmark.data,
            revision=benchmark.revision,
            data_fingerprint=_recipe_data(benchmark, configs, base),
            configs=configs,
            template=benchmark.template,
            dialect=benchmark.dialect,
            training=training,
            precision=self.sweep.backbone.precision if self.sweep.backbone else "fp32",
        )
        path = str(self.store.model(recipe.id()))
        self.recipes[path] = recipe
        attention = self.sweep.attention or (base.attention if base else Model.model_fields["attention"].default)
        return Model(path=path, fingerprint=f"recipe:{recipe.id()}", attention=attention)

    def _found(self, model: Model, field_name: str) -> Model:
        """The model with the sweep's tokenizer and attention, its folders absolute, and its fingerprint."""
        chosen = {"tokenizer": self.sweep.tokenizer, "attention": self.sweep.attention}
        model = model.model_copy(update={name: value for name, value in chosen.items() if value is not None})
        if models.check(model, field_name):
            model = model.model_copy(update={"path": absolute(model.path)})
        if model.tokenizer and models.check_tokenizer(model.tokenizer):
            model = model.model_copy(update={"tokenizer": absolute(model.tokenizer)})
        return model.model_copy(update={"fingerprint": models.fingerprint(model)})


def _recipe_data(benchmark: Benchmark, configs: tuple[str, ...], base: Model | None) -> str:
    if benchmark.is_fictional:
        return str(benchmark.fingerprint)
    return rows.fingerprint(benchmark.data, read(configs, base), benchmark.revision)


def read(configs: tuple[str, ...], base: Model | None) -> tuple[str, ...]:
    """The data configurations that a recipe reads: those it trains on, and those of a tokenizer that it makes."""
    tokenizer = () if base else ("full", "real_authors", "world_facts")
    return tuple(dict.fromkeys((*configs, *tokenizer)))


def absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
