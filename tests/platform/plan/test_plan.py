"""What a plan finds: the models and evaluations its trials share, all that is wrong at once, what names a sweep."""

import functools
import json
import shutil
from pathlib import Path
from typing import cast

import pytest

from search_spaces.schema.sweep import FictionalAuthorsSettings, SmallModelRecipe
from search_spaces.tofu_tiny import SWEEP
from tests.support import small_sweep
from tests.support.small_sweep import ROLES, MakePlan, Small, plan_named, write_model
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.data.hub_folders import HubRequirement
from trainables.storage.folder_storage import Storage

MAKING = cast(SmallModelRecipe, SWEEP.model_training)


@pytest.fixture
def make(small: Small, store: Storage) -> MakePlan:
    """`make(*settings, **options)`: tofu_tiny's plan on the small folders; later settings win."""
    return functools.partial(small.plan, store)


def test_base_alone_is_fine_tuned_for_every_role(make: MakePlan, tmp_path: Path, store: Storage) -> None:
    """Also where the folder itself is the base."""
    for base, models in ((tmp_path / "models" / "base", tmp_path / "models"), (tmp_path / "flat", tmp_path / "flat")):
        plan = make(f"models={write_model(base) and models}")
        assert {recipe.configs for recipe in plan.recipes} == {(role, "real_authors", "world_facts") for role in ROLES}
        assert {recipe.base.path for recipe in plan.recipes if recipe.base} == {str(base)}
        assert all(recipe.training == MAKING.finetuning for recipe in plan.recipes)
        full = next(recipe for recipe in plan.recipes if recipe.configs[0] == "full")
        assert plan.trials[0].target == Model(path=str(store.model(full.id())), fingerprint=f"recipe:{full.id()}")


def test_without_models_the_base_is_trained_first_and_once(make: MakePlan, store: Storage) -> None:
    plan = make("models=none")
    assert not store.root.exists(), "a plan writes nothing"
    base, *tuned = plan.recipes
    assert base.base is None
    assert base.configs == MAKING.pretraining_configs
    assert base.vocabulary == MAKING.vocabulary
    assert [{recipe.base.fingerprint for recipe in tuned if recipe.base}, len(tuned)] == [{f"recipe:{base.id()}"}, 4]
    fewer = make("models=none", only=["benchmark.split=forget10"]).recipes
    assert [fewer[0], {recipe.configs[0] for recipe in fewer[1:]}] == [base, {"full", "retain90"}]


def test_retain_models_of_other_seeds_are_trained_beside_the_one_in_the_folder(
    make: MakePlan, small: Small, tmp_path: Path
) -> None:
    """From the same base model; the trials and their ids stay as they are, and FQ is against the first."""
    shutil.copytree(small.models, tmp_path / "models")
    write_model(tmp_path / "models" / "base")
    asked = (f"models={tmp_path / 'models'}", "benchmark.split=forget10")
    plain, plan = make(*asked), make(*asked, "references.seeds=3")
    assert (plan.hash, plan.trials) == (plain.hash, plain.trials)
    assert {recipe.seed: recipe.configs[0] for recipe in plan.recipes} == {1: "retain90", 2: "retain90"}
    retain = plan.references[1].evaluation
    against = [("original", retain), ("retain", None), ("retrained", retain), ("retrained", retain)]
    assert [(ref.role, ref.against) for ref in plan.references] == against
    assert len({ref.evaluation for ref in plan.references}) == 4


def test_models_folder_without_what_is_needed_says_what_it_has(make: MakePlan, small: Small, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models / "full")
    with pytest.raises(InputError, match=f"^models: {models} has no retain90/ and no base model.* it has full$"):
        make(f"models={models}", "benchmark.split=forget10")
    for setting, message in (("models", "models: no folder '/nowhere'"), ("target", "target: no model folder")):
        with pytest.raises(InputError, match=message):
            make(f"{setting}=/nowhere")
    for file in ("model.safetensors", "config.json", "tokenizer.json"):
        shutil.copytree(small.models, tmp_path / file)
        (tmp_path / file / "retain95" / file).unlink()
        folder = tmp_path / file / "retain95"
        with pytest.raises(InputError, match=f"models/retain95: model folder {folder} has no {file}; it has"):
            make(f"models={tmp_path / file}")


def test_fictional_authors_need_nothing_and_have_one_name_everywhere(
    make: MakePlan, small: Small, tmp_path: Path
) -> None:
    invented = FictionalAuthorsSettings(authors=40, questions=2)
    sweep = SWEEP.model_copy(update={"fictional": invented, "axes": {**SWEEP.axes, "benchmark.split": ("forget10",)}})
    settings = ("benchmark.data=locuslab/TOFU", "models=none")
    here = make(*settings, sweep=sweep)
    there = small.plan(Storage(tmp_path / "elsewhere"), *settings, sweep=sweep)
    assert here.hub == ()
    assert here.hash == there.hash
    assert [trial.id() for trial in here.trials] == [trial.id() for trial in there.trials]
    assert here.trials[0].benchmark.data != there.trials[0].benchmark.data
    more = sweep.model_copy(update={"fictional": invented.model_copy(update={"questions": 3})})
    assert make(*settings, sweep=more).hash != here.hash


def test_all_problems_are_told_at_once(make: MakePlan, small: Small, tmp_path: Path) -> None:
    broken = tmp_path / "data"
    shutil.copytree(small.data, broken)
    (broken / "forget05.json").unlink()
    rows = [json.loads(line) for line in (broken / "forget10_perturbed.json").read_text().splitlines()]
    del rows[3]["paraphrased_answer"]
    (broken / "forget10_perturbed.json").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError) as error:
        make(f"benchmark.data={broken}", "benchmark.template=lama2", "models=/nowhere")
    messages = (
        f"{broken} has no forget05.json",
        f"row 4 of forget10_perturbed in {broken} has no 'paraphrased_answer'; its columns: ",
        "unknown template 'lama2'; did you mean 'llama2'?",
        "models: no folder '/nowhere'",
    )
    assert [message for message in messages if message not in str(error.value)] == []


def test_fixed_settings_and_not_axes_name_a_sweep(make: MakePlan) -> None:
    """More seeds or values of the same sweep join its table, and keep its trials; they do not open another.

    The sweep's own rate, or the first of others, stands for the axis in the name.
    """
    chosen = ("method=ga", "benchmark.split=forget01")
    own, wider = make(*chosen), make(*chosen, "training.lr=1e-3,1e-4")
    assert {trial.id() for trial in own.trials} < {trial.id() for trial in wider.trials}
    for settings in (
        "observe=none seed=0,1,2 rectifier.gamma=0.1 rectifier.tau=0.01,none rectifier.name=clip,gru",
        "method=npo benchmark.split=forget05 resources.gpu_memory=140 resources.checkpoint_every=7",
    ):
        assert make(*chosen, *settings.split()).name == own.name == wider.name
    assert make(strategy="paper", only=["benchmark.split=forget05", "method=npo"]).name == own.name
    fixed, others = make(*chosen, "training.lr=1e-3"), make(*chosen, "training.lr=1e-3,1e-2")
    assert fixed.name == others.name
    hashes = {make(*chosen, setting).hash for setting in ("benchmark.template=phi", "objective.beta=0.2")}
    assert len({own.hash, fixed.hash, *hashes}) == 4


def test_other_data_or_target_makes_another_sweep(make: MakePlan, small: Small, tmp_path: Path) -> None:
    one = functools.partial(make, "benchmark.split=forget05")
    other = small_sweep.write_rows(tmp_path / "data", seed=2)
    own = one().hash
    assert len({own, one(f"benchmark.data={other}").hash, one(f"target={small.models / 'retain95'}").hash}) == 3
    shutil.copytree(small.models / "full", tmp_path / "same weights")
    assert one(f"target={tmp_path / 'same weights'}").hash == own


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


def required_models(name: str, store: Storage, *settings: str) -> list[HubRequirement]:
    found = plan_named(name, store, *settings, "task_vector.batches=2", strategy="paper")
    return [requirement for requirement in found.hub if requirement.kind == "models"]


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("tofu_llama", ["full", "retain95", "retain90"]),
        ("tofu_phi", ["base"]),
        ("muse_books", ["target", "retain"]),
        ("wmdp_zephyr", ["target"]),
    ],
)
def test_the_folders_of_all_models_are_enough(name: str, folders: list[str], store: Storage, tmp_path: Path) -> None:
    models = required_models(name, store)
    assert {model.folder for model in models} == set(folders)
    if name != "tofu_phi":  # what nobody published is made from a flat folder
        lacking = ", ".join(f"{folder}/" for folder in folders)
        flat = write_model(tmp_path / "flat")
        words = (
            f"^models: {flat} has no {lacking}; put each model into its own folder there; it has config.json, model.s"
        )
        with pytest.raises(InputError, match=words):
            required_models(name, store, f"models={flat}")
    for model in models:
        write_model(tmp_path / "DIR" / model.folder, model.id)
    assert required_models(name, store, f"models={tmp_path / 'DIR'}") == []
