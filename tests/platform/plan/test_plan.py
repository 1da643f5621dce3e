"""What a plan finds: the models and evaluations its trials share, all that is wrong at once, what is done."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import cast

import pytest

from platform.plan.build import make_plan
from platform.plan.models import ModelRecipes
from platform.plan.overrides import apply
from platform.state.sweep_state import scan
from search_spaces.schema.sweep import Fictional, ModelTraining
from search_spaces.tofu_tiny import SWEEP
from tests.support import small_sweep
from tests.support.small_sweep import ROLES, MakePlan, Small, write_model
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model
from trainables.storage import files
from trainables.storage.base import RESULT, Storage

MAKING = cast(ModelTraining, SWEEP.model_training)


@pytest.fixture
def make(small: Small, store: Storage) -> MakePlan:
    """`make(*settings, **options)`: tofu_tiny's plan on the small folders; later settings win."""
    return functools.partial(small.plan, store)


def test_models_of_the_folder_are_used_as_they_are(make: MakePlan, small: Small) -> None:
    plan = make()
    assert plan.recipes == ()
    assert {trial.target.path for trial in plan.trials} == {str(small.models / "full")}
    assert {ref.model.path for ref in plan.references if ref.role == "retain"} == {
        str(small.models / role) for role in ROLES[1:]
    }
    assert all((ref.model.fingerprint or "").startswith("files:") for ref in plan.references)


def test_references_of_each_split_are_what_its_trials_are_measured_against(make: MakePlan, store: Storage) -> None:
    plan = make()
    assert [(ref.role, ref.split) for ref in plan.references] == [
        (role, split) for split in SWEEP.splits for role in ("original", "retain")
    ]
    assert len({ref.evaluation for ref in plan.references}) == 6
    for trial in plan.trials:
        known = trial.retain_evaluation
        reference = plan.retain_reference(trial.benchmark.split)
        assert known is not None
        assert reference is not None
        assert known.fingerprint == reference.evaluation
        assert Path(known.path) == store.evaluation(str(known.fingerprint)) / "result.json"


@pytest.mark.parametrize("nested", [True, False], ids=["base in the folder", "the folder is the base"])
def test_base_alone_is_fine_tuned_for_every_role(make: MakePlan, tmp_path: Path, store: Storage, nested: bool) -> None:
    base = write_model(tmp_path / "models" / "base" if nested else tmp_path / "models")
    plan = make(f"models={tmp_path / 'models'}")
    assert {recipe.configs for recipe in plan.recipes} == {(role, "real_authors", "world_facts") for role in ROLES}
    assert {recipe.base.path for recipe in plan.recipes if recipe.base} == {str(base)}
    assert all(recipe.training == MAKING.finetuning for recipe in plan.recipes)
    full = next(recipe for recipe in plan.recipes if recipe.configs[0] == "full")
    assert plan.trials[0].target == Model(path=str(store.model(full.id())), fingerprint=f"recipe:{full.id()}")


def test_role_that_is_missing_beside_others_is_made_from_base(make: MakePlan, small: Small, tmp_path: Path) -> None:
    place = tmp_path / "models"
    shutil.copytree(small.models, place)
    shutil.rmtree(place / "retain99")
    write_model(place / "base")
    plan = make(f"models={place}")
    assert [recipe.configs[0] for recipe in plan.recipes] == ["retain99"]
    assert {trial.target.path for trial in plan.trials} == {str(place / "full")}
    assert make(f"models={place}", only=["benchmark.split=forget05"]).recipes == ()


def test_without_models_the_base_is_trained_first_and_once(make: MakePlan) -> None:
    plan = make("models=none")
    base, *tuned = plan.recipes
    assert base.base is None
    assert base.configs == MAKING.pretraining_configs
    assert base.vocabulary == MAKING.vocabulary
    assert [{recipe.base.fingerprint for recipe in tuned if recipe.base}, len(tuned)] == [{f"recipe:{base.id()}"}, 4]
    fewer = make("models=none", only=["benchmark.split=forget10"]).recipes
    assert [fewer[0], {recipe.configs[0] for recipe in fewer[1:]}] == [base, {"full", "retain90"}]


def test_recipes_follow_what_they_start_from() -> None:
    """A chain of three, asked for from its end."""
    models = ModelRecipes(SWEEP, Storage(Path("store")), Benchmark(data="a/b", fingerprint="fictional:0"))
    first = models._plan_recipe(("retain90",), MAKING.finetuning, None)
    second = models._plan_recipe(("retain95",), MAKING.finetuning, first)
    third = models._plan_recipe(("full",), MAKING.finetuning, second)
    for asked in ({third.path}, {third.path, first.path}):
        assert [recipe.configs[0] for recipe in models.order_recipes(asked)] == ["retain90", "retain95", "full"]
    assert models.order_recipes({"a folder of somebody's"}) == ()


def test_models_folder_without_what_is_needed_says_what_it_has(make: MakePlan, tmp_path: Path) -> None:
    write_model(tmp_path / "full")
    with pytest.raises(InputError) as error:
        make(f"models={tmp_path}", "benchmark.split=forget10")
    text = str(error.value)
    assert text.startswith(f"models: {tmp_path} has no retain90/ and no base model")
    assert text.endswith("it has full")
    with pytest.raises(InputError, match=f"models: no folder '{tmp_path / 'nowhere'}'"):
        make(f"models={tmp_path / 'nowhere'}")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_model_folder_without_a_file_is_named(make: MakePlan, small: Small, tmp_path: Path, file: str) -> None:
    shutil.copytree(small.models, tmp_path / "models")
    (tmp_path / "models" / "retain95" / file).unlink()
    with pytest.raises(InputError) as error:
        make(f"models={tmp_path / 'models'}")
    assert f"models/retain95: model folder {tmp_path / 'models' / 'retain95'} has no {file}; it has" in str(error.value)


def test_another_target_replaces_the_folder_s(make: MakePlan, tmp_path: Path) -> None:
    other = write_model(tmp_path / "mine", "another")
    plan = make(f"target={other}")
    assert {trial.target.path for trial in plan.trials} == {str(other)}
    with pytest.raises(InputError, match="target: no model folder"):
        make(f"target={tmp_path / 'nowhere'}")


def test_hub_ids_are_needs_of_a_start(make: MakePlan) -> None:
    plan = make("benchmark.data=locuslab/TOFU", "models=none", "target=somebody/a-model")
    assert [thing.label for thing in plan.hub] == ["data set locuslab/TOFU", "model somebody/a-model"]
    assert make().hub == ()


def test_fictional_authors_need_nothing_and_have_one_name_everywhere(
    make: MakePlan, small: Small, tmp_path: Path
) -> None:
    invented = Fictional(authors=40, questions=2)
    sweep = SWEEP.model_copy(update={"fictional": invented, "splits": ("forget10",)})
    settings = ("benchmark.data=locuslab/TOFU", "models=none")
    here = make(*settings, sweep=sweep)
    there = small.plan(Storage(tmp_path / "elsewhere"), *settings, sweep=sweep)
    assert here.hub == ()
    assert here.hash == there.hash
    assert [trial.id() for trial in here.trials] == [trial.id() for trial in there.trials]
    assert here.trials[0].benchmark.data != there.trials[0].benchmark.data
    more = sweep.model_copy(update={"fictional": invented.model_copy(update={"questions": 3})})
    assert make(*settings, sweep=more).hash != here.hash


# Everything that is wrong, at once


def test_all_problems_are_told_at_once(make: MakePlan, small: Small, tmp_path: Path) -> None:
    broken = tmp_path / "data"
    shutil.copytree(small.data, broken)
    (broken / "forget05.json").unlink()
    rows = [json.loads(line) for line in (broken / "forget10_perturbed.json").read_text().splitlines()]
    del rows[3]["paraphrased_answer"]
    (broken / "forget10_perturbed.json").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError) as error:
        make(f"benchmark.data={broken}", "benchmark.template=lama2")
    text = str(error.value)
    assert f"{broken} has no forget05.json" in text
    assert f"row 4 of forget10_perturbed in {broken} has no 'paraphrased_answer'" in text
    assert "unknown template 'lama2'" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "world_facts_perturbed of .* has no rows"),
        ("{", "world_facts_perturbed.json is not JSON lines"),
        ('["a question", "an answer"]', "world_facts_perturbed"),
        ('"a question"', "world_facts_perturbed"),
    ],
    ids=["empty", "cut", "list of texts", "text"],
)
def test_damaged_data_file_is_named(make: MakePlan, small: Small, tmp_path: Path, content: str, said: str) -> None:
    broken = tmp_path / "data"
    shutil.copytree(small.data, broken)
    (broken / "world_facts_perturbed.json").write_text(content)
    with pytest.raises(InputError, match=said):
        make(f"benchmark.data={broken}")


def test_full_disk_is_told_before_anything_is_written(
    make: MakePlan, monkeypatch: pytest.MonkeyPatch, store: Storage
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=f"10 MB free at '{store.root}'"):
        make()


def test_plan_writes_nothing(make: MakePlan, store: Storage) -> None:
    make()
    make("models=none")
    assert not store.root.exists()


# What names a sweep, and what is done


@pytest.mark.parametrize(
    "settings",
    [
        ("method=ga",),
        ("rectifier.gamma=0.1", "rectifier.tau=0.01,none", "rectifier.name=clip,gru"),
        ("benchmark.split=forget10",),
        ("seed=0,1,2",),
    ],
)
def test_axes_leave_the_sweep_its_name(make: MakePlan, settings: tuple[str, ...]) -> None:
    """More seeds or values of the same sweep join its table; they do not open another."""
    assert make(*settings).name == make().name
    assert make(strategy="paper", only=["benchmark.split=forget05", "method=npo"]).name == make().name


@pytest.mark.parametrize("setting", ["training.lr=1e-3", "benchmark.template=phi", "objective.beta=0.2"])
def test_fixed_settings_make_another_sweep(make: MakePlan, setting: str) -> None:
    assert make(setting).hash != make().hash


def test_other_data_or_target_makes_another_sweep(make: MakePlan, small: Small, tmp_path: Path) -> None:
    other = small_sweep.write_rows(tmp_path / "data", seed=2)
    hashes = {make().hash, make(f"benchmark.data={other}").hash, make(f"target={small.models / 'retain95'}").hash}
    assert len(hashes) == 3
    shutil.copytree(small.models / "full", tmp_path / "same weights")
    assert make(f"target={tmp_path / 'same weights'}").hash == make().hash


@pytest.mark.parametrize("models", ["models={models}", "models=none"])
def test_moved_folders_change_neither_sweep_nor_trials(
    make: MakePlan, small: Small, tmp_path: Path, models: str
) -> None:
    shutil.copytree(small.data, tmp_path / "data")
    shutil.copytree(small.models, tmp_path / "models")
    here = make(models.format(models=small.models))
    settings = (f"benchmark.data={tmp_path / 'data'}", models.format(models=tmp_path / "models"))
    there = small.plan(Storage(tmp_path / "elsewhere"), *settings)
    assert there.hash == here.hash
    assert [trial.id() for trial in there.trials] == [trial.id() for trial in here.trials]


def test_changed_rows_change_the_trials_that_read_them(make: MakePlan, small: Small, tmp_path: Path) -> None:
    other = tmp_path / "data"
    shutil.copytree(small.data, other)
    lines = (other / "forget05.json").read_text().splitlines()
    (other / "forget05.json").write_text("\n".join(lines[1:] + lines[:1]))
    before, after = make().trials, make(f"benchmark.data={other}").trials
    changed = {old.benchmark.split for old, new in zip(before, after, strict=True) if old.id() != new.id()}
    assert changed == {"forget05"}


def test_done_is_what_the_storage_holds(make: MakePlan, store: Storage) -> None:
    trials = make().trials
    for trial in trials[:3]:
        told = {"id": trial.id(), "status": "finished", "metrics": {}, "config": {}, "started": "then"}
        files.write_json(store.trial(trial.id()) / RESULT, told)
    begun = store.trial(trials[3].id())
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    state = scan(make(), store)
    assert state.done == {trial.id() for trial in trials[:3]}
    assert state.left == list(trials[3:])
    assert scan(make(only=["benchmark.split=forget10"]), store).done == frozenset()


def test_damaged_result_is_not_done(make: MakePlan, store: Storage) -> None:
    """The rest of the platform reads a result that cannot be parsed as none."""
    first = make().trials[0]
    place = store.trial(first.id())
    place.mkdir(parents=True)
    (place / "result.json").write_text('{"status": "fini')
    assert scan(make(), store).left[0] == first


@pytest.mark.data
def test_real_rows_and_models(tofu_data: Path, tofu_models: Path, store: Storage) -> None:
    """The models at hand lack retain99, which is made from their base."""
    settings = [f"benchmark.data={tofu_data}", f"models={tofu_models}"]
    plan = make_plan(apply(SWEEP, settings), store)
    assert len(plan.trials) == 3 * (9 * 5 + 5 + 5)
    assert plan.hub == ()
    assert [(recipe.configs[0], recipe.base and recipe.base.path) for recipe in plan.recipes] == [
        ("retain99", str(tofu_models / "base"))
    ]
