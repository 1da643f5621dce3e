"""tofu_tiny on folders that are quick to make, for tests that plan and never train."""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from platform.plan.build import make_plan
from platform.plan.overrides import apply_overrides
from platform.plan.plan import Plan
from platform.state.trial_outcomes import SweepState, read_sweep_state
from search_spaces.schema.sweep import Sweep, import_sweep
from search_spaces.tofu_tiny import SWEEP
from tests.support.environment import TrialInputs, type_settings
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.config.settings import Model, Resources
from trainables.config.trial import Trial
from trainables.data import fictional
from trainables.storage.folder_storage import Storage

MakePlan = Callable[..., Plan]
OBJECTIVES = SWEEP.model_copy(update={"axes": {**SWEEP.axes, "method": ("ga", "gd", "npo")}})
ROLES = ("full", "retain99", "retain95", "retain90")


def write_model(folder: Path, content: str = "weights") -> Path:
    """A folder with the files that a plan looks for, of no family whose layers it knows."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"made_of": content}))
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"made_of": content, "eos_token": "</s>"}))
    save_file({content: np.zeros(1)}, folder / "model.safetensors")
    return folder


def write_rows(folder: Path, seed: int = 1) -> Path:
    """A hundred fictional authors with two questions each, so that TOFU's three splits exist and can be divided."""
    fictional.write_fictional_authors(folder, authors=100, questions=2, forget_percent=(1, 5, 10), seed=seed)
    return folder


@dataclass(frozen=True)
class Small:
    """Rows, and a models folder with the target model and the retain model of each split."""

    data: Path
    models: Path

    def settings(self) -> list[str]:
        return [f"benchmark.data={self.data}", f"models={self.models}", "task_vector.batches=2"]

    def flags(self, *more: str) -> list[str]:
        """The folders' settings and more as a person types them."""
        return type_settings((*self.settings(), *more))

    def plan(self, store: Storage, *settings: str, sweep: Sweep = SWEEP, **options: object) -> Plan:
        """tofu_tiny with these settings after the folders'; options as make_plan takes them."""
        chosen = apply_overrides(sweep, [*self.settings(), *settings])
        return make_plan(chosen, store, **options)  # type: ignore[arg-type]

    def state(self, store: Storage, *settings: str, retry: tuple[str, ...] = (), **options: object) -> SweepState:
        """Return that plan and what the storage holds of it."""
        return read_sweep_state(self.plan(store, *settings, **options), store, retry)  # type: ignore[arg-type]


def write(place: Path) -> Small:
    for role in ROLES:
        write_model(place / "models" / role, role)
    return Small(data=write_rows(place / "data"), models=place / "models")


@pytest.fixture
def plan_objectives(small: Small, store: Storage) -> MakePlan:
    """`make(*settings, **options)`: the plan of tofu_tiny's objectives on the small folders; later settings win."""
    return functools.partial(small.plan, store, sweep=OBJECTIVES)


def plan_named(name: str, store: Storage, *settings: str, **options: Any) -> Plan:
    """Return the plan of a named sweep with these settings; options as make_plan takes them."""
    return make_plan(apply_overrides(import_sweep(name), settings), store, **options)


def point(trial: Trial) -> tuple[object, ...]:
    """What tells a trial of an objective apart from the others of its sweep."""
    chosen = trial.rectifier
    return (trial.benchmark.split, trial.seed, trial.method, chosen.name, chosen.gamma, chosen.tau)


def cut_short(data: Path, place: Path) -> Path:
    """A copy of the rows with six of each general task, for evaluations that take no time."""
    shutil.copytree(data, place)
    for task in ("retain", "real_authors", "world_facts"):
        path = place / f"{task}_perturbed.json"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))
    return place


def write_inputs(trial_inputs: TrialInputs, place: Path) -> list[str]:
    """Write a models folder and rows that are cut short; return the settings that name them."""
    shutil.copytree(trial_inputs.target, place / "models" / "full")
    shutil.copytree(trial_inputs.retain, place / "models" / "retain75")
    return [f"benchmark.data={cut_short(trial_inputs.data, place / 'data')}", f"models={place / 'models'}"]


def seeds(count: int, **resources: Any) -> list[Trial]:
    """Trials that differ by their seed alone."""
    first = Trial(method="ga", target=Model(path="x"), seed=0, resources=Resources(**resources))
    return [first.model_copy(update={"seed": seed}) for seed in range(count)]


def evaluate_references(plan: Plan, store: Storage) -> None:
    """Evaluate the models that a plan's trials are compared with in this process, so that a start finds them there."""
    from trainables.workers import shared_artifacts

    against: dict[str, str | None] = {}
    if plan.sweep.benchmark.name == "own":  # the target model's comes first, then that of a baseline
        against = dict.fromkeys(plan.benchmarks, TARGET_IS_OWN_REFERENCE)
    for ref in plan.references if against else sorted(plan.references, key=lambda ref: ref.role == "original"):
        retain = None if ref.role == "retain" else against.get(ref.split)
        against[ref.split] = ref.evaluation
        parts = ref.model, plan.benchmarks[ref.split], retain
        shared_artifacts.ensure_evaluation(*parts, store.location, plan.sweep.resources)
