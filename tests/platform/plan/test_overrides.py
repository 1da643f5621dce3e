"""What --set and --only make of a sweep's trials, and which settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform.plan.overrides import apply, flatten_settings
from platform.plan.plan import Plan
from search_spaces import tofu_llama
from tests.support import small_sweep
from tests.support.small_sweep import MakePlan, Small, plan_named, point
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage

make = small_sweep.plan_objectives


def values(plan: Plan, path: str) -> set[object]:
    return {flatten_settings(trial.model_dump())[path] for trial in plan.trials}


@pytest.mark.parametrize(
    ("setting", "path", "expected", "trials"),
    [
        ("method=ga,npo", "method", {"ga", "npo"}, 30),
        ("rectifier.name=none", "rectifier.name", {"none"}, 9),
        ("rectifier.name=none,clip", "rectifier.tau", {None, 1.0}, 18),
        ("rectifier.gamma=0.1,none,1", "rectifier.gamma", {None, 0.1, 1.0}, 63),
        ("seed=0,1,2", "seed", {0, 1, 2}, 135),
    ],
)
def test_setting_an_axis_replaces_its_values(
    make: MakePlan, setting: str, path: str, expected: set[object], trials: int
) -> None:
    plan = make(setting)
    assert values(plan, path) == expected
    assert len(plan.trials) == trials


def test_setting_a_field_reaches_every_trial(make: MakePlan) -> None:
    fields = {
        "training.lr": ("1e-5", 1e-5),
        "training.max_steps": ("none", None),
        "training.betas": ("0.5,0.9", (0.5, 0.9)),
        "benchmark.dialect": ("paper", "paper"),
        "resources.micro_batch": ("4", 4),
    }
    plan = make(*(f"{path}={text}" for path, (text, _) in fields.items()))
    assert {path: values(plan, path) for path in fields} == {path: {value} for path, (_, value) in fields.items()}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("methd=ga", "unknown field 'methd'; did you mean 'method'?"),
        ("training.learning_rate=1", "unknown field 'training.learning_rate'; known: training.batch_size, "),
        ("objective.idk_fingerprint=x", "unknown field 'objective.idk_fingerprint'"),
        ("seed=0,1 seed=2", "--set: seed: set twice, to 0,1 and 2; write all its values once"),
        ("method=ga rectifier.name=blur rectifier.gamma=0.5", "an axis that no trial reads, with method ga and rectif"),
        ("tau=1", "unknown field 'tau'; known: rectifier.tau"),
        ("method", "--set method: write FIELD=VALUE"),
        ("method=", "--set method=: write FIELD=VALUE"),
        ("training.lr=-1", "training.lr: Input should be greater than 0 (got '-1')"),
        ("rectifier.gamma=2", "rectifier.gamma: Input should be less than or equal to 1 (got '2')"),
        ("benchmark.split=forget5", "benchmark.split: unknown split 'forget5'; did you mean 'forget05'?"),
        ("benchmark.template=lama2", "benchmark.template: unknown template 'lama2'; did you mean 'llama2'?"),
        ("backbone=Phi-1.5", "sweep tofu_tiny makes its own models; give a folder: models=DIR"),
        (
            "training.lr=1e-6..1e-3",
            "training.lr=1e-06..0.001: --strategy grid cannot list every value of a range; write",
        ),
        ("training.lr=1e-3..1e-6", "training.lr=1e-3..1e-6: the range 0.001..1e-06 is empty; write the s"),
        ("training.lr=log(0..1)", "training.lr=log(0..1): the range log(0..1) begins where there is no logarithm; be"),
        ("training.lr=a..b", "training.lr=a..b: a range is LOW..HIGH or log(LOW..HIGH) with two numbers"),
        ("training.max_steps=1..2.5", "Input should be a valid integer, got a number with a fractional part (got 2.5)"),
        ("training.optimizer=1..2", "training.optimizer=1..2: Input should be 'adamw' or 'sgd' (got 1)"),
        ("objective.margin=0,1", "--set objective.margin=0,1: an axis that no trial reads, with method ga, gd, npo an"),
        ("rectifier.gamma=0.05:0.8", "unable to parse string as a number (got '0.05:0.8')"),
        ("training.lr=1e-5,fast", "training.lr: Input should be a valid number, unable to parse string as a number (g"),
        ("resources.ranks=1,2", "resources.ranks: Input should be a valid integer, unable to parse string as an int"),
        ("resources.gpus=2", "resources.gpus=2 with ranks=1: "),
        ("training.stop_above=8 observe=none", "training.stop_above: with rectifier 'none' "),
        ("training.stop_below=0.3", "training: stop_below: the utility is measured by training.eval_every=K"),
        ("search.stop_dominated=3", "search.stop_dominated: trials are compared by training.eval_every=K"),
    ],
)
def test_bad_setting_is_refused_with_words(make: MakePlan, setting: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make(*setting.split())
    assert message in str(error.value)


def test_only_filters_on_several_fields(make: MakePlan) -> None:
    plan = make(only=["method=ga,gd", "benchmark.split=forget05", "rectifier.gamma=0.80,none"])
    assert {point(trial)[2:] for trial in plan.trials} == {
        (method, *setting)
        for method in ("ga", "gd")
        for setting in (("none", None, None), ("gru", 0.8, None), ("gru", 0.8, 1.0))
    }
    assert values(plan, "benchmark.split") == {"forget05"}
    assert {trial.id() for trial in plan.trials} < {trial.id() for trial in make().trials}
    assert {ref.split for ref in plan.references} == {"forget05"}


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["methods=ga"], "--only methods=ga: unknown field 'methods'; did you mean 'method'?"),
        (["method=gd,np"], "--only method=gd,np: no trial has method=np; did you mean 'npo'? known: ga, gd, npo"),
        (["rectifier.tau=2"], "no trial has rectifier.tau=2; known: 1.0, none"),
        (["method"], "--only method: write FIELD=VALUE"),
        (["rectifier.name=none", "rectifier.gamma=0.8"], "no trial"),
    ],
)
def test_only_refuses_what_no_trial_has(make: MakePlan, only: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        make(only=only)
    assert message in str(error.value)


# RMU's layer


@pytest.mark.parametrize("where", ["target", "base"])
def test_layer_that_rmu_cannot_steer_is_refused_before_anything_starts(
    make: MakePlan, small: Small, tmp_path: Path, where: str
) -> None:
    """In the words of the trial itself; the depth is the target's, or that of the base it will be made from."""
    folder = small_sweep.write_model(tmp_path / "models" / "base")
    (folder / "config.json").write_text('{"num_hidden_layers": 6}')
    setting = f"target={folder}" if where == "target" else f"models={tmp_path / 'models'}"
    with pytest.raises(InputError) as error:
        make(setting, "method=ga,rmu")
    assert str(error.value) == "objective.layer: RMU steers a layer before the last; the model has 6, got 7"
    assert make(setting, "method=rmu", "objective.layer=4").trials
    assert make(setting, "method=ga,rmu", only=["method=ga"]).trials


# Other backbones


def test_another_backbone_brings_its_template_rate_and_models(store: Storage) -> None:
    """Explicit settings override what it brings, whatever comes first; the paper's tables are of the own backbone."""
    settings = ["training.lr=3e-5", "backbone=llama-3.2-1b-instruct"]
    plan = plan_named("tofu_llama", store, *settings, strategy="paper")
    assert values(plan, "target.path") == {"open-unlearning/tofu_Llama-3.2-1B-Instruct_full"}
    assert values(plan, "benchmark.template") == {"llama3"}
    assert values(plan, "training.lr") == {3e-5}
    assert plan.costs.largest is not None
    other = plan_named("tofu_llama", store, "backbone=Phi-1.5")
    assert values(other, "training.lr") == {2e-5}
    assert other.sweep.tables == ()
    assert apply(tofu_llama.SWEEP, ["backbone=llama-2-7b-chat"]).tables == tofu_llama.SWEEP.tables == ("tofu_main",)


@pytest.mark.parametrize(
    ("name", "backbone", "messages"),
    [
        ("tofu_llama", "Llama-3.2-2B-Instruct", ("unknown backbone; did you mean 'Llama-3.2-",)),
        ("muse_books", "Llama-2-7B", ("Llama-2-7B has no published retain model", "DIR (a folder with target/ and re")),
        ("muse_news", "ICLM-7B", ("ICLM-7B has no published retain model of muse news",)),
        ("wmdp_zephyr", "ICLM-7B", ("no published target model of wmdp bio_cyber", "--set target=DIR_OR_HUB_ID")),
    ],
)
def test_backbone_without_models_is_refused(name: str, backbone: str, messages: tuple[str], store: Storage) -> None:
    """Models are fine-tuned for TOFU alone, and MUSE's models of one corpus are not used for the other."""
    with pytest.raises(InputError) as error:
        plan_named(name, store, f"backbone={backbone}", strategy="paper")
    assert [message for message in messages if message not in str(error.value)] == []


def test_wmdp_unlearns_the_backbone_as_it_was_published(store: Storage) -> None:
    for path in ("Qwen/Qwen2.5-1.5B-Instruct", "HuggingFaceH4/zephyr-7b-beta"):
        plan = plan_named("wmdp_zephyr", store, f"backbone={path.partition('/')[2]}", strategy="paper")
        assert values(plan, "target.path") == {path}
        assert plan.recipes == ()
