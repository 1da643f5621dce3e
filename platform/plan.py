"""What a sweep would run: its trials, what they need, and all that is wrong, at once. Nothing is touched."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platform.budget as budgets
import platform.overrides as overrides
import platform.points as points
from search_spaces import backbones
from search_spaces.base import Fictional, Sweep
from search_spaces.base import Making as SweepMaking
from trainables import benchmarks as kinds
from trainables import config, directions, models, rows, templates
from trainables.config import Benchmark, Direction, Model, Recipe, RetainEvaluation, Training, Trial
from trainables.errors import InputError, closest
from trainables.storage import RESULT, Storage

BYTES_PER_TRIAL = 2 * 2**20
"""Measured on tofu_tiny: 0.4 MB of Parquet and JSON a trial, and its part of the MLflow store."""


@dataclass(frozen=True)
class Reference:
    """An evaluation that every trial of a split is compared with."""

    role: str
    split: str
    model: Model
    evaluation: str


@dataclass(frozen=True)
class Plan:
    """A sweep resolved into trials."""

    sweep: Sweep
    strategy: str
    hash: str
    trials: tuple[Trial, ...]
    benchmarks: dict[str, Benchmark]
    references: tuple[Reference, ...]
    recipes: tuple[Recipe, ...]
    needs: tuple[str, ...]
    done: frozenset[str] = frozenset()
    budget: int | None = None
    costs: budgets.Budget = field(default_factory=budgets.Budget)

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    @property
    def left(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.id() not in self.done]

    @property
    def outstanding(self) -> int:
        """How many trials a start has to run: `optuna` stops each study at its budget."""
        if self.strategy != "optuna" or self.budget is None:
            return len(self.left)
        done = {name: sum(trial.id() in self.done for trial in found) for name, found in self.studies().items()}
        return sum(max(0, min(self.budget, len(found)) - done[name]) for name, found in self.studies().items())

    def directions(self) -> list[Direction]:
        """The directions that the trials that are left move along, each once."""
        found = [config.direction(trial) for trial in self.left]
        return list({made.id(): made for made in found if made is not None}.values())

    def studies(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    def retain_reference(self, split: str) -> Reference | None:
        return next((ref for ref in self.references if ref.split == split and ref.role == "retain"), None)


@dataclass
class Problems:
    """Collects what is wrong, so that a person hears of everything at once."""

    found: list[str] = field(default_factory=list)

    def check(self, action: Any, *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except InputError as error:
            if str(error) not in self.found:
                self.found.append(str(error))
            return None

    def stop(self) -> None:
        if self.found:
            raise InputError("; ".join(self.found))


def make(
    sweep: Sweep, store: Storage, *, strategy: str = "grid", only: list[str] | None = None, budget: int | None = None
) -> Plan:
    """Resolve a sweep. Raises InputError with every problem found."""
    if strategy not in points.STRATEGIES:
        raise InputError(f"--strategy: unknown strategy '{strategy}'; {closest(strategy, points.STRATEGIES)}")
    problems = Problems()
    problems.check(templates.find, sweep.benchmark.template)
    benchmarks = {split: problems.check(_benchmark, sweep, split, store) for split in sweep.splits}
    problems.stop()
    house = Making(sweep, store, next(iter(benchmarks.values())))
    found = {split: problems.check(_references, house, split, benchmarks[split]) for split in sweep.splits}
    problems.check(_disk, store)
    problems.stop()
    trials = points.enumerate_trials(sweep, strategy, benchmarks, lambda split: _models(found[split], store))
    trials = overrides.select(trials, only or [])
    for trial in trials:
        problems.check(points.check_layer, trial, house.recipes)
    costs = budgets.of(sweep, trials, house.recipes)
    problems.check(costs.check)
    problems.stop()
    splits = {trial.benchmark.split for trial in trials}
    for split in sorted({trial.benchmark.split for trial in trials if trial.method == "tru"}):
        problems.check(_batches, sweep, split, benchmarks[split])
    problems.stop()
    references = tuple(ref for split in sweep.splits if split in splits for ref in found[split])
    recipes = house.ordered({ref.model.path for ref in references})
    return Plan(
        sweep=sweep,
        strategy=strategy,
        hash=_hash(sweep, benchmarks, references),
        trials=tuple(trials),
        benchmarks=benchmarks,
        references=references,
        recipes=recipes,
        needs=_needs(sweep, benchmarks, references, recipes),
        done=frozenset(trial.id() for trial in trials if store.result(trial.id())),
        budget=budget,
        costs=costs,
    )


class Making:
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
        folder = Path(_absolute(self.sweep.models))
        if not folder.is_dir():
            raise InputError(f"models: no folder '{self.sweep.models}'")
        if (folder / role).is_dir():
            return self._found(Model(path=str(folder / role)), f"models/{role}")
        for base in (folder, folder / "base"):
            if (base / "config.json").is_file():
                return self._made(role, self._found(Model(path=str(base)), "models"))
        there = ", ".join(sorted(item.name for item in folder.iterdir())) or "nothing"
        raise InputError(
            f"models: {folder} has no {role}/ and no base model to fine-tune it from (base/, or config.json in the "
            f"folder itself); it has {there}"
        )

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

    def _published(self, role: str) -> Model | None:
        found = self.sweep.backbone.model(role) if self.sweep.backbone else None
        return self._found(found, f"models/{role}") if found else None

    def _base(self) -> Model | None:
        if self.sweep.backbone is not None:
            base = self.sweep.backbone.base
            return self._found(base, "models/base") if base else None
        making = self._making()
        if making.pretraining is None:
            return None
        return self._planned(making.pretraining_configs, making.pretraining, None)

    def _made(self, role: str, base: Model | None) -> Model:
        backbone = self.sweep.backbone
        if backbone is not None:
            if backbone.finetuning is None or base is None:
                raise InputError(
                    f"models: {backbone.name} has no published {role} model and none is fine-tuned here; give a "
                    f"folder with {role}/: --set models=DIR"
                )
            return self._planned((role,), backbone.finetuning, base)
        making = self._making()
        return self._planned((role, *making.general_configs), making.finetuning, base)

    def _making(self) -> SweepMaking:
        if self.sweep.making is None:
            raise InputError(f"sweep {self.sweep.name}: no way to make its models; give a folder: --set models=DIR")
        return self.sweep.making

    def _planned(self, configs: tuple[str, ...], training: Training, base: Model | None) -> Model:
        making, benchmark = self.sweep.making, self.benchmark
        if not benchmark.fingerprint or not benchmark.fingerprint.startswith("fictional:"):
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
            model = model.model_copy(update={"path": _absolute(model.path)})
        if model.tokenizer and models.check_tokenizer(model.tokenizer):
            model = model.model_copy(update={"tokenizer": _absolute(model.tokenizer)})
        return model.model_copy(update={"fingerprint": models.fingerprint(model)})


def _batches(sweep: Sweep, split: str, benchmark: Benchmark) -> None:
    """Refuse more batches than forget points where the points can be counted."""
    points = kinds.find(benchmark.name).forget_points(benchmark)
    if points is not None:
        directions.check_sizes(points, sweep.task_vector.batches, split)


def _recipe_data(benchmark: Benchmark, configs: tuple[str, ...], base: Model | None) -> str:
    if (benchmark.fingerprint or "").startswith("fictional:"):
        return str(benchmark.fingerprint)
    tokenizer = () if base else ("full", "real_authors", "world_facts")
    names = tuple(dict.fromkeys((*configs, *tokenizer)))
    return rows.fingerprint(benchmark.data, names, benchmark.revision)


def _benchmark(sweep: Sweep, split: str, store: Storage) -> Benchmark:
    """The benchmark of one split, its rows checked and fingerprinted."""
    kind = kinds.find(sweep.benchmark.name)
    chosen = sweep.benchmark.model_copy(update={"split": split})
    kind.check(chosen)
    if sweep.fictional is not None and chosen.data == Benchmark().data:
        key = fictional_key(sweep.fictional)
        return chosen.model_copy(update={"data": str(store.data(key)), "fingerprint": f"fictional:{key}"})
    if rows.is_folder(chosen.data):
        chosen = chosen.model_copy(update={"data": _absolute(chosen.data)})
    chosen = chosen.model_copy(update={"sources": tuple(map(_absolute_source, chosen.sources))})
    kind.check_rows(chosen)
    return chosen.model_copy(update={"fingerprint": kind.fingerprint(chosen)})


def fictional_key(fictional: Fictional) -> str:
    """Twelve hex digits that name the made-up rows."""
    from trainables.benchmarks.fictional import VERSION

    return config.digest({"version": VERSION, **fictional.model_dump(mode="json")})[:12]


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _absolute_source(source: str) -> str:
    part, place = source.split("=", 1)
    return f"{part}={_absolute(place)}" if Path(place).expanduser().is_dir() else source


def _references(house: Making, split: str, benchmark: Benchmark) -> list[Reference]:
    kind, precision = kinds.find(benchmark.name), house.sweep.resources.precision
    role = kind.retain_role(split)
    retain = house.model(role) if role else None
    target = house.model(kind.TARGET)
    retain_id = config.evaluation_id(retain, benchmark, None, precision) if retain else None
    found = [Reference("original", split, target, config.evaluation_id(target, benchmark, retain_id, precision))]
    return [*found, Reference("retain", split, retain, retain_id)] if retain and retain_id else found


def _models(references: list[Reference], store: Storage) -> tuple[Model, RetainEvaluation | None]:
    target, *others = references
    if not others:
        return target.model, None
    (retain,) = others
    path = str(store.evaluation(retain.evaluation) / RESULT)
    return target.model, RetainEvaluation(path=path, fingerprint=retain.evaluation)


def _hash(sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...]) -> str:
    """Eight hex digits of the sweep's fixed part: everything but the axes, so that an added axis value keeps it."""
    axes = {*overrides.AXES.values(), "varied", "choices", "title", "tables"}
    axes |= {"models", "target", "tokenizer", "attention", "making", "backbone", "task_vector", "calibration"}
    fixed: dict[str, Any] = {k: v for k, v in config.identity(sweep).items() if k not in axes}
    for places in ("data", "sources"):
        fixed.get("benchmark", {}).pop(places, None)
    fixed.get("resources", {}).pop("gpu_memory", None)
    benchmark = next(iter(benchmarks.values()))
    fixed["data"] = str(benchmark.fingerprint)
    if not fixed["data"].startswith("fictional:"):
        fixed["data"] = kinds.find(benchmark.name).shared_fingerprint(benchmark)
    fixed["models"] = sorted({str(ref.model.fingerprint) for ref in references if ref.role == "original"})
    return config.digest(fixed)[:8]


def _needs(
    sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...], recipes: tuple[Recipe, ...]
) -> tuple[str, ...]:
    """What a real start has to find and a dry run cannot see."""
    needs = []
    if sweep.fictional is None:
        kind = kinds.find(sweep.benchmark.name)
        needs += dict.fromkeys(need for benchmark in benchmarks.values() for need in kind.needs(benchmark))
    gpus = sweep.resources.gpus * sweep.resources.ranks
    if gpus:
        needs.append(f"{gpus:g} GPUs for each trial (a start counts the cluster's)")
    bases = [recipe.base for recipe in recipes if recipe.base is not None]
    found = [*(ref.model for ref in references), *bases]
    hub = [model.path for model in found if (model.fingerprint or "").startswith("hub:")]
    needs += [_from_hub(f"model {path}", path, "--set models=DIR") for path in dict.fromkeys(hub)]
    tokenizers = dict.fromkeys(model.tokenizer for model in found if model.tokenizer)
    needs += [
        _from_hub(f"tokenizer {place}", place, "--set tokenizer=DIR")
        for place in tokenizers
        if not models.check_tokenizer(place)
    ]
    return tuple(needs)


def _from_hub(what: str, hub_id: str, instead: str) -> str:
    """What to have, accept or set for something on the hub."""
    if backbones.gated(hub_id):
        return (
            f"{what} from the hub, which is gated: accept its licence at https://huggingface.co/{hub_id} and set "
            f"HF_TOKEN (or log in with 'hf auth login'); or {instead}"
        )
    return f"{what} from the hub (a network, or {instead})"


def _disk(store: Storage) -> None:
    existing = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < 64 * 2**20:
        raise InputError(f"--storage: {free / 2**20:.0f} MB free at '{store.root}', at least 64 MB are needed")
