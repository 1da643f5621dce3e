"""A trial's configuration: its identity, its name, and what it refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainables.common import cli
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Training
from trainables.config.shared_artifacts import ModelRecipe, evaluation_id
from trainables.config.trial import Trial, check_trial_runnable

FIXED: dict[str, Any] = {
    "method": "npo",
    "rectifier": {"name": "gru", "gamma": 0.8, "tau": 1.0},
    "benchmark": {"data": "data/tofu", "split": "forget05", "fingerprint": "files:00"},
    "target": {"path": "models/full", "fingerprint": "files:11"},
    "retain_evaluation": {"path": "runs/shared/evaluations/22/result.json", "fingerprint": "22"},
    "training": {"lr": 4e-4, "max_steps": 7},
    "seed": 3,
}
GOLDEN = "d7569db0d0e1"

WORDS = "method=ga rectifier.name=clip objective.preset=authors benchmark.split=forget10 benchmark.template=phi "
WORDS += "benchmark.dialect=open-unlearning benchmark.revision=v2 target.attention=eager training.optimizer=sgd "
WORDS += "training.schedule=linear resources.precision=bf16 rectifier.gamma=0.05 objective.beta=0.2 seed=4 "
WORDS += "training.lr=5e-4 training.epochs=4.0 training.weight_decay=0.0 training.eps=1e-6 training.max_length=256 "
WORDS += "training.batch_size=16 resources.cpus=2 resources.ranks=2 resources.zero_stage=2 training.warmup_steps=2 "
WORDS += "training.max_steps=8 resources.micro_batch=8"
CHANGES: dict[str, Any] = {one.partition("=")[0]: one.partition("=")[2] for one in WORDS.split()}
CHANGES |= {"rectifier.tau": None, "training.betas": (0.9, 0.99)}
CHANGES |= dict.fromkeys(("benchmark.fingerprint", "target.fingerprint", "retain_evaluation.fingerprint"), "files:01")


def changed(path: str, value: Any) -> dict[str, Any]:
    """FIXED with one setting changed."""
    document: dict[str, Any] = {**FIXED}
    section, _, name = path.partition(".")
    document[section] = {**document.get(section, {}), name: value} if name else value
    if document["rectifier"]["name"] == "clip":
        document["rectifier"] = {"name": "clip", "tau": 1.0}
    return document


def test_id_is_the_same_for_ever_and_changes_with_every_setting_that_matters() -> None:
    """Results are found by this name: a change here orphans everybody's results."""
    assert Trial.model_validate(FIXED).id() == GOLDEN
    ids = {Trial.model_validate(changed(path, value)).id() for path, value in CHANGES.items()}
    assert len(ids - {GOLDEN}) == len(CHANGES)


def test_observing_is_in_the_id_of_what_it_stops_alone() -> None:
    """It changes nothing else: plain trials are shared, whoever observes them."""
    shared = FIXED | {"observe": 5}
    assert Trial.model_validate(shared).id() == GOLDEN
    stopped = [{"training": FIXED["training"] | {"stop_above": 8.0}, **more} for more in ({}, {"observe": 5})]
    assert len({Trial.model_validate(shared | {"observe": None} | one).id() for one in stopped}) == 2


@pytest.mark.parametrize("more", [{"method": "pdu"}, {"objective": {"retain_coefficient": "balanced"}}, {"observe": 5}])
def test_a_retain_loss_that_is_measured_anyway_may_stop_a_trial(more: dict[str, Any]) -> None:
    """In the pass of the dual, of the balanced weight, and of observe; without one of these nothing is measured."""
    stopped = FIXED | {"method": "gd", "rectifier": {"name": "none"}, "observe": None}
    stopped |= {"training": FIXED["training"] | {"stop_above": 8.0}}
    check_trial_runnable(Trial.model_validate(stopped | more))
    with pytest.raises(InputError, match="no retain loss is measured"):
        check_trial_runnable(Trial.model_validate(stopped))


SAME: dict[str, Any] = {
    **dict.fromkeys(("benchmark.data", "target.path", "retain_evaluation.path"), "elsewhere/folder"),
    "benchmark.sources": ("forget=elsewhere/forget.jsonl",),
    "target.tokenizer": "elsewhere/tokenizer",
    "resources.checkpoint_every": 10,
    "training.lr": "0.0004",
    "rectifier.tau": 1,
    "training.epochs": 5,
}


@pytest.mark.parametrize("path", SAME)
def test_a_moved_folder_and_another_way_to_write_a_number_keep_the_id(path: str) -> None:
    assert Trial.model_validate(changed(path, SAME[path])).id() == GOLDEN


def test_path_is_the_identity_where_no_fingerprint_stands_for_it() -> None:
    one, other = (Trial.model_validate({"method": "ga", "target": path}) for path in ("models/a", "models/b"))
    assert one.id() != other.id()
    one, other = (Trial(method="ga", target=one.target, benchmark=Benchmark(data=data)) for data in ("a/b", "c/d"))
    assert one.id() != other.id()


def test_a_default_spelled_out_changes_nothing() -> None:
    full = Trial.model_validate(FIXED).model_dump()
    for section, settings in full.items():
        if isinstance(settings, dict):
            for name, value in settings.items():
                assert Trial.model_validate(changed(f"{section}.{name}", value)).id() == GOLDEN, (section, name)
    assert Trial.model_validate(full).id() == GOLDEN
    assert Trial.model_validate(Trial.model_validate(FIXED).model_dump(mode="json")).id() == GOLDEN


def test_recipe_and_evaluation_are_named_by_content() -> None:
    rest: dict[str, Any] = {"configs": ("full",), "template": "llama2", "training": Training()}
    here = ModelRecipe(data="here", data_fingerprint="files:0", **rest)
    assert here.id() == ModelRecipe(data="there", data_fingerprint="files:0", **rest).id()
    assert here.id() != ModelRecipe(data="here", data_fingerprint="files:1", **rest).id()
    model, benchmark = Model(path="m", fingerprint="files:1"), Benchmark(data="d", fingerprint="files:0")
    same = evaluation_id(Model(path="n", fingerprint="files:1"), benchmark)
    assert evaluation_id(model, benchmark) == same
    assert evaluation_id(model, benchmark, retain="22") != same
    assert evaluation_id(model, benchmark.model_copy(update={"split": "forget10"})) != same


TRU: dict[str, Any] = {"method": "tru", "rectifier": {}, "task_vector": {"stg": 1.0}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 1}, ("learning_rate",)),
        ({"method": "gradient_ascent"}, ("method: ", "should be 'ga', 'ga_kl'", "'gradient_ascent'")),
        ({"benchmark": {"dialect": "legacy"}}, ("benchmark.dialect: ", "'paper' or 'open-unlearning'", "'legacy'")),
        ({"seed": -1, "training": {"lr": -1, "epochs": "many"}}, ("seed: ", "training.lr: ", "training.epochs: ")),
        ({"resources": {"ranks": 3}}, ("training.batch_size=32 is not a multiple of resources.ranks=3",)),
        ({"resources": {"zero_stage": 0, "precision": "bf16"}}, ("zero_stage=0 with precision=bf16",)),
        (
            {"resources": {"zero_stage": 0, "offload_optimizer": True}},
            ("zero_stage=0 cannot offload (offload_optimizer=true)",),
        ),
        ({"resources": {"compile": True, "ranks": 2}}, ("compile=true is for the plain engine",)),
        ({"rectifier": {"name": "none", "tau": 1.0}}, ("'none' takes no settings",)),
        ({"rectifier": {"name": "gru", "scope": "tensor"}}, ("'gru' takes gamma, tau",)),
        ({"rectifier": {"name": "blur", "memory": "average"}}, ("memory=average needs rectifier.gamma",)),
        (TRU | {"task_vector": {"strength": 1}}, ("method 'tru' takes stg and no strength",)),
        (TRU | {"method": "ga"}, ("method 'ga' trains an objective and has no task vector",)),
        (TRU | {"rectifier": {"name": "gru"}}, ("method 'tru' has no gradient steps to rectify",)),
        (TRU | {"task_vector": {"stg": 1, "batches": 1}}, ("so it needs at least 2",)),
        (TRU | {"observe": 2}, ("has no steps to observe",)),
        (TRU | {"training": {"eval_every": 2}}, ("training.eval_every: method 'tru' has no steps to choose from",)),
        (
            {"calibration": {"targets": [0.9]}, "training": {"eval_every": 2}},
            ("training.eval_every: a calibrated trial mixes its last step",),
        ),
        ({"calibration": {"targets": [0.9, 0.9]}}, ("calibration.targets: each share once",)),
        ({"rectifier": {"name": "clip", "tau": 1.0, "gamma": 0.8}}, ("'clip' takes tau; needed: tau",)),
    ],
)
def test_refusal_names_field_value_and_what_is_accepted(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    """All problems at once."""
    with pytest.raises(ValidationError) as error:
        Trial.model_validate(FIXED | changes)
    text = cli.describe_invalid_settings(error.value)
    assert [word for word in words if word not in text] == []
    assert "Value error" not in text
