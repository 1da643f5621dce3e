"""What --set and --only make of a sweep's trials, and which settings are refused."""

import pytest

from platform.plan.overrides import flatten_settings
from platform.plan.plan import Plan
from tests.support import small_sweep
from tests.support.small_sweep import MakePlan, plan_named, point
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage

make = small_sweep.plan_objectives


def values(plan: Plan, path: str) -> set[object]:
    return {flatten_settings(trial.model_dump())[path] for trial in plan.trials}


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
        ("training.rl=1", "unknown field 'training.rl'; did you mean 'training.lr'? known: training.batch_size, "),
        ("rectifier=gru", "unknown field 'rectifier'; known: rectifier.gamma, "),
        ("strategy=grid", "unknown field 'strategy'; known: attention, backbone, baseline, benchmark.*, calib"),
        ("seed=0,1 seed=2", "--set: seed: set twice, to 0,1 and 2; write all its values once"),
        ("method=ga rectifier.name=blur rectifier.gamma=0.5", "gru (rules of two gradients: with rectifier.memory=av"),
        ("method=", "--set method=: write FIELD=VALUE"),
        ("rectifier.gamma=2", "rectifier.gamma: Input should be less than or equal to 1 (got '2')"),
        ("benchmark.split=forget5", "benchmark.split: unknown split 'forget5'; did you mean 'forget05'?"),
        ("training.lr=1e-6..1e-3", "training.lr=1e-06..0.001: --strategy grid cannot list every value of a range; w"),
        ("training.lr=1e-3..1e-6", "training.lr=1e-3..1e-6: the range 0.001..1e-06 is empty; write the s"),
        ("training.lr=log(0..1)", "training.lr=log(0..1): the range log(0..1) begins where there is no logarithm; be"),
        ("training.lr=a..b", "training.lr=a..b: a range is LOW..HIGH or log(LOW..HIGH) with two numbers"),
        ("objective.margin=0,1", "--set objective.margin=0,1: an axis that no trial reads, with method ga, gd, npo an"),
        ("resources.gpus=2", "resources.gpus=2 with ranks=1: "),
        ("training.stop_above=8 observe=none", "training.stop_above: no retain loss is measured "),
        ("training.stop_below=0.3", "training: stop_below: the utility is measured by training.eval_every=K"),
        ("training.stop_when=utility:1.2", "training.stop_when: String should match pattern"),
    ],
)
def test_bad_setting_is_refused_with_words(make: MakePlan, setting: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make(*setting.split())
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "only", "warning"),
    [
        ("rectifier.kappa=0.3", "method=ga,gd", "no trial reads it, with method ga, gd and rectifier.name none, gru;"),
        ("rectifier.kappa=0.3 rectifier.name=cagrad method=ga", "method=ga", None),
        ("rectifier.gamma=0.5,0.8", "rectifier.name=none", "no trial reads it, with method ga, gd, npo and rectifie"),
        ("observe=5 method=tru task_vector.stg=4", "method=tru", "no trial reads it, with method tru and rectifier"),
        ("rectifier.name=gru method=tru task_vector.stg=4", "method=tru", "no trial reads it, with method tru and r"),
        ("training.batch_size=8 method=tru task_vector.stg=4", "method=tru", None),
        ("search.sampler=gp", "method=ga", "of no use, with --strategy grid: optuna searches"),
        ("calibration.tolerance=0.1", "method=ga", "of no use, without calibration.targets"),
        ("selection.seeds=7,8 seed=0,1", "method=ga", "of no use, no trial of this start has one of them; "),
        ("selection.rows=5", "method=ga", "of no use, without training.eval_every"),
        ("training.lora_alpha=8", "method=ga", "of no use, without training.lora_rank"),
        ("training.lora_alpha=16 objective.preset=paper", "method=ga", None),
        ("training.lora_alpha=8 training.lora_rank=2,4", "method=ga", None),
    ],
)
def test_setting_that_changes_no_number_is_warned_of(
    make: MakePlan, settings: str, only: str, warning: str | None
) -> None:
    plan, path = make(*settings.split(), only=[only]), settings.partition("=")[0]
    told = dict(line.split(": ", 1) for line in plan.warnings if line.split(": ")[0] in plan.sweep.typed)
    told.pop("task_vector.batches", None)  # which `make` gives
    assert {name: line[: len(warning or "")] for name, line in told.items()} == ({path: warning} if warning else {})


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


def test_another_backbone_brings_its_template_rate_and_models(store: Storage) -> None:
    """Explicit settings override what it brings, whatever comes first."""
    settings = ["training.lr=3e-5", "backbone=llama-3.2-1b-instruct"]
    plan = plan_named("tofu_llama", store, *settings, strategy="paper")
    assert values(plan, "target.path") == {"open-unlearning/tofu_Llama-3.2-1B-Instruct_full"}
    assert values(plan, "benchmark.template") == {"llama3"}
    assert values(plan, "training.lr") == {3e-5}
    assert plan.needs
    other = plan_named("tofu_llama", store, "backbone=Phi-1.5")
    assert values(other, "training.lr") == {2e-5}


@pytest.mark.parametrize(
    ("name", "backbone", "messages"),
    [
        ("tofu_llama", "Llama-3.2-2B-Instruct", ("unknown backbone; did you mean 'Llama-3.2-",)),
        ("muse_books", "Llama-2-7B", ("Llama-2-7B has no published retain model", "DIR (a folder with target/ and re")),
        ("wmdp_zephyr", "ICLM-7B", ("no published target model of wmdp bio_cyber", "--set target=DIR_OR_HUB_ID")),
    ],
)
def test_backbone_without_models_is_refused(name: str, backbone: str, messages: tuple[str], store: Storage) -> None:
    """Models are fine-tuned for TOFU alone, and MUSE's models of one corpus are not used for the other."""
    with pytest.raises(InputError) as error:
        plan_named(name, store, f"backbone={backbone}", strategy="paper")
    assert [message for message in messages if message not in str(error.value)] == []
