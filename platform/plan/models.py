"""The rows of a sweep's splits, its models (from a folder, published or made by a recipe), and what is on the hub."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.schema.sweep import OWN_SWEEP_FILE_FIELDS, SmallModelRecipe, Sweep
from trainables import benchmarks as kinds
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.benchmarks.own import model_answers, row_files
from trainables.common.errors import InputError, suggest_name
from trainables.common.fingerprints import hash_json
from trainables.common.typed_paths import describe_folder, expand_home, is_file, is_folder, quote_path
from trainables.config.settings import FICTION_PREFIX, Benchmark, Model, Training
from trainables.config.shared_artifacts import ModelRecipe, evaluation_id
from trainables.data import raw_rows
from trainables.data.hub_folders import HubRequirement
from trainables.storage.atomic_files import check_folder_unchanged, read_json
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import RETRAINED, ReferenceEvaluation
from trainables.training.model_files import check_if_local_model, check_if_local_tokenizer, fingerprint_model

FINETUNABLE_BENCHMARK = "tofu"
"""The benchmark whose models are fine-tuned here: their roles are configurations of its data."""
OWN_USAGE = (
    "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE [--set retain=FILE --set eval=FILE]"
)
BASE_MODEL_ROLE = "base"
"""The folder in `models` of the model that the others are fine-tuned from."""


class PlannedEvaluation(ReferenceEvaluation):
    """An evaluation that every trial of a split is compared with, whose it is, and what it is measured against."""

    model: Model
    against: str | None
    """The id of another evaluation, TARGET_IS_OWN_REFERENCE, or nothing."""


class ModelFinder:
    """Finds the models of a sweep. `recipes`: path -> recipe of those that are made here."""

    def __init__(self, sweep: Sweep, store: Storage, benchmark: Benchmark) -> None:
        self.sweep = sweep
        self.store = store
        self.benchmark = benchmark
        self.kind = kinds.get_benchmark(benchmark.name)
        self.recipes: dict[str, ModelRecipe] = {}

    def plan_references(self, benchmark: Benchmark) -> list[PlannedEvaluation]:
        """Return the evaluations that a split's trials are compared with. Raises InputError."""
        role = self.kind.retain_role(benchmark.split)
        retain, target = self.find_model(role) if role else None, self.find_model(self.kind.TARGET)

        def plan(as_role: str, model: Model, against: str | None) -> PlannedEvaluation:
            key = evaluation_id(model, benchmark, against, self.sweep.resources.precision)
            return PlannedEvaluation(role=as_role, split=benchmark.split, model=model, evaluation=key, against=against)

        first = [plan("retain", retain, None)] if retain else []
        itself = TARGET_IS_OWN_REFERENCE if self.kind.REFERENCE == "original" else None
        against = first[0].evaluation if first else itself
        found = [plan("original", target, against), *first]
        for seed in range(1, self.sweep.references.seeds):
            if not role:
                raise InputError(f"references.seeds: {self.kind.name} has no retain model that is trained here")
            found.append(plan(RETRAINED, self.find_model(role, seed), against))
        if self.sweep.baseline:
            baseline = self._resolve(Model(path=self.sweep.baseline), "baseline")
            found.append(plan("baseline", baseline, found[0].evaluation if itself else against))
        return found

    def find_model(self, role: str, seed: int = 0) -> Model:
        """Return the model trained on the rows of `role`, of a seed above 0 one trained here. Raises InputError."""
        if role == self.kind.TARGET and self.sweep.target:
            return self._resolve(Model(path=self.sweep.target), "target")
        backbone, split = self.sweep.backbone, self.benchmark.split
        unlearns_base = self.kind.retain_role(split) is None  # without a retain model
        published = backbone and (backbone.base if unlearns_base else backbone.model(role, split))
        if self.sweep.models is None:
            if published and not seed:
                return self._resolve(published, f"models/{role}")
            start = None  # from random weights
            if backbone is not None:
                start = self._resolve(backbone.base, f"models/{BASE_MODEL_ROLE}") if backbone.base else None
            elif (trained := self._require_model_training()).pretraining is not None:
                start = self._plan_recipe(trained.pretraining_configs, trained.pretraining, None)
            return self._finetune(role, start, seed)
        folder = Path(make_path_absolute(self.sweep.models))
        if is_folder(folder / role) and not seed:
            return self._resolve(Model(path=str(folder / role)), f"models/{role}")
        for base in (folder / BASE_MODEL_ROLE,) if published else (folder, folder / BASE_MODEL_ROLE):
            if is_file(base / "config.json"):
                return self._finetune(role, self._resolve(Model(path=str(base)), "models"), seed)
        lacks = "base model to fine-tune it from (base/, or config.json in the folder itself)"
        lacks = f"{lacks}, for {role} of references.seeds" if seed else f"{role}/ and no {lacks}"
        if published:
            roles = [None if self.sweep.target else self.kind.TARGET, *map(self.kind.retain_role, self.sweep.splits)]
            lacking = ", ".join(f"{name}/" for name in dict.fromkeys(roles) if name and not is_folder(folder / name))
            lacks = f"{lacking}; put each model into its own folder there"
        raise InputError(f"models: {folder} has no {lacks}; it has {describe_folder(folder)}")

    def check_model_location(self, name: str) -> None:
        """Raise InputError if the folder of `target`, `baseline` or `models` is wrong."""
        place = getattr(self.sweep, name)
        if place is None:
            return
        if name != "models":
            check_if_local_model(self._choose(Model(path=place)), name)
        elif not is_folder(make_path_absolute(place)):
            raise InputError(f"models: no folder {quote_path(place)}")
        elif self.sweep.target and self.kind.retain_role(self.benchmark.split) is None:
            raise InputError(f"give either target or models: {self.kind.name} takes no other model of a folder")

    def list_needed_recipes(self, model_paths: set[str]) -> tuple[ModelRecipe, ...]:
        """Return the recipes that these models need, each after the one it starts from, as they were planned."""
        needed = set(model_paths)
        for path, recipe in reversed(self.recipes.items()):
            if path in needed and recipe.base:
                needed.add(recipe.base.path)
        return tuple(recipe for path, recipe in self.recipes.items() if path in needed)

    def list_hub_requirements(
        self, benchmarks: list[Benchmark], references: Sequence[PlannedEvaluation], recipes: Sequence[ModelRecipe]
    ) -> tuple[HubRequirement, ...]:
        """Return what a sweep takes from the hub, each once."""
        found: list[HubRequirement] = []
        sweep, kind = self.sweep, self.kind
        if not all(benchmark.is_fictional for benchmark in benchmarks):
            found += [requirement for benchmark in benchmarks for requirement in kind.hub_requirements(benchmark)]
            found += [each for recipe in recipes for each in raw_rows.hub_requirements(recipe.data, recipe.revision)]
        roles = [(ref.role == "retain" and kind.retain_role(ref.split)) or kind.TARGET for ref in references]
        loaded = [(role, ref.model) for role, ref in zip(roles, references, strict=True)]
        loaded += [(BASE_MODEL_ROLE, recipe.base) for recipe in recipes if recipe.base is not None]
        for role, model in loaded:
            if (model.fingerprint or "").startswith("hub:"):
                given = [name for name in ("target", "baseline") if model.path == getattr(sweep, name)]
                option, folder = (f"{given[0]}=DIR", "") if given else ("models=DIR", role)
                found.append(HubRequirement("models", model.path, model.revision, option, folder=folder))
            if model.tokenizer and not check_if_local_tokenizer(model.tokenizer):
                found.append(HubRequirement("tokenizers", model.tokenizer, None, "tokenizer=DIR"))
        return tuple({one.key: one for one in (*found, *reversed(found))}.values())  # of several of one key the first

    def _finetune(self, role: str, base: Model | None, seed: int) -> Model:
        """Plan the recipe of a model. Raises InputError: of other benchmarks than TOFU none is fine-tuned here."""
        backbone, benchmark = self.sweep.backbone, self.benchmark
        if benchmark.name == FINETUNABLE_BENCHMARK and backbone is None:
            trained = self._require_model_training()
            return self._plan_recipe((role, *trained.general_configs), trained.finetuning, base, seed)
        if benchmark.name == FINETUNABLE_BENCHMARK and backbone and backbone.finetuning and base:
            return self._plan_recipe((role,), backbone.finetuning, base, seed)
        named = f"{backbone.name} has no" if backbone else "there is no"
        retain = self.kind.retain_role(benchmark.split)
        folders = f"models=DIR (a folder with {self.kind.TARGET}/ and {retain}/)" if retain else "target=DIR_OR_HUB_ID"
        raise InputError(
            f"models: {named} published {role} model of {benchmark.name} {benchmark.split} and none is fine-tuned "
            f"here; give checkpoints: --set {folders}"
        )

    def _require_model_training(self) -> SmallModelRecipe:
        if self.sweep.model_training is None:
            raise InputError(f"sweep {self.sweep.name}: no way to make its models; give a folder: --set models=DIR")
        return self.sweep.model_training

    def _plan_recipe(self, configs: tuple[str, ...], training: Training, base: Model | None, seed: int = 0) -> Model:
        trained, backbone, benchmark = self.sweep.model_training, self.sweep.backbone, self.benchmark
        precision = backbone.precision if backbone else "fp32"
        data = str(benchmark.fingerprint)
        if not benchmark.is_fictional:
            if raw_rows.check_if_local_folder(benchmark.data):
                for name in configs:
                    raw_rows.require_data_file(Path(benchmark.data), name)
            read = (*configs, *(() if base else ("full", "real_authors", "world_facts")))  # the last make a tokenizer
            data = raw_rows.fingerprint_data_source(benchmark.data, tuple(dict.fromkeys(read)), benchmark.revision)
        recipe = ModelRecipe(
            base=base,
            architecture=() if base or trained is None else trained.architecture,
            vocabulary=None if base or trained is None else trained.vocabulary,
            data=benchmark.data,
            revision=benchmark.revision,
            data_fingerprint=data,
            configs=configs,
            answers=model_answers.make_answers_id(base, benchmark.template, precision)
            if base and backbone and backbone.finetuning_answers
            else None,
            template=benchmark.template,
            dialect=benchmark.dialect,
            training=training,
            seed=seed,
            precision=precision,
        )
        path = str(self.store.model(recipe.id()))
        check_folder_unchanged(Path(path), "target")
        self.recipes[path] = recipe
        attention = self.sweep.attention or (base.attention if base else Model.model_fields["attention"].default)
        return Model(path=path, fingerprint=f"recipe:{recipe.id()}", attention=attention)

    def _choose(self, model: Model) -> Model:
        """Return the model with the sweep's tokenizer and attention."""
        chosen = {"tokenizer": self.sweep.tokenizer, "attention": self.sweep.attention}
        return model.model_copy(update={name: value for name, value in chosen.items() if value is not None})

    def _resolve(self, model: Model, field_name: str) -> Model:
        """Return the model as chosen, with absolute folders and its fingerprint."""
        model = self._choose(model)
        if check_if_local_model(model, field_name):
            model = model.model_copy(update={"path": make_path_absolute(model.path)})
        if model.tokenizer and check_if_local_tokenizer(model.tokenizer):
            model = model.model_copy(update={"tokenizer": make_path_absolute(model.tokenizer)})
        return model.model_copy(update={"fingerprint": fingerprint_model(model)})


def make_path_absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def read_config_or_recipe(model: Model, recipes: Mapping[str, ModelRecipe]) -> dict[str, Any]:
    """Return config.json of a model, or of what its recipe makes it from; empty for a model that is not fetched."""
    while model.path in recipes:
        recipe = recipes[model.path]
        if recipe.base is None:
            return {"vocab_size": recipe.vocabulary, "model_type": "llama", **dict(recipe.architecture)}
        model = recipe.base
    return read_json(expand_home(model.path) / "config.json") or {}


def resolve_benchmark(sweep: Sweep, split: str, store: Storage) -> Benchmark:
    """Return the benchmark of one split, its rows checked and fingerprinted. Raises InputError."""
    kind = kinds.get_benchmark(sweep.benchmark.name)
    at = dict(source.split("=", 1) for source in sweep.benchmark.sources)  # where further parts of the data are
    given = {name: place for name in OWN_SWEEP_FILE_FIELDS if (place := getattr(sweep, name)) is not None}
    if sweep.benchmark.name == "own":
        if place := given.pop("requests", None):
            given |= row_files.map_request_splits_to_files(place)[split]
        if twice := sorted(at.keys() & given.keys()):
            raise InputError(f"{twice[0]}: also in benchmark.sources; give it once")
        at |= given
        known = {"target": sweep.target or sweep.models, **at}
        missing = [name for name in ("target", "forget") if not known.get(name)]
        if missing:
            raise InputError(f"{', '.join(missing)}: not given; {OWN_USAGE}")
        auto, _, further = at.get("retain", model_answers.AUTO_RETAIN).partition(",")
        if auto == model_answers.AUTO_RETAIN:
            models = ModelFinder(sweep, store, sweep.benchmark)
            asked = models.find_model(models.kind.TARGET), sweep.benchmark.template, sweep.resources.precision
            answers = store.data_folder(model_answers.make_answers_id(*asked)) / "answers.jsonl"
            at |= {model_answers.ANSWERS_PART: str(answers), "retain": further}
    elif named := [*given, *(["baseline"] if sweep.baseline else [])]:
        raise InputError(f"{', '.join(named)}: sweep {sweep.name} has published rows; on rows of your own: {OWN_USAGE}")
    here = {part: place for part, place in at.items() if place}
    here |= {part: make_path_absolute(place) for part, place in here.items() if os.path.exists(expand_home(place))}
    sources = tuple(f"{part}={place}" for part, place in sorted(here.items()))
    chosen = sweep.benchmark.model_copy(update={"split": split, "sources": sources})
    kind.check_settings(chosen)
    if sweep.fictional is not None and chosen.data == Benchmark().data:
        made = [f"forget{percent:02d}" for percent in sweep.fictional.forget_percent]
        if split not in made:
            raise InputError(f"benchmark.split: the fictional authors have no '{split}'; {suggest_name(split, made)}")
        from trainables.data.fictional import VERSION

        key = hash_json({"version": VERSION, **sweep.fictional.model_dump(mode="json")})[:12]
        check_folder_unchanged(store.data_folder(key), "benchmark.data")
        return chosen.model_copy(update={"data": str(store.data_folder(key)), "fingerprint": f"{FICTION_PREFIX}{key}"})
    if is_folder(chosen.data):
        chosen = chosen.model_copy(update={"data": make_path_absolute(chosen.data)})
    kind.check_rows(chosen)
    return chosen.model_copy(update={"fingerprint": kind.fingerprint(chosen)})
