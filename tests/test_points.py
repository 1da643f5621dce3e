"""A sweep's trials: those of each strategy, and what --set and --only make of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import small_sweep
from hypothesis import strategies as st

import platform.plan as planning
import platform.points as points
from platform.overrides import flatten
from search_spaces.base import Choice, Sweep
from search_spaces.tofu_tiny import SWEEP
from trainables.config import Benchmark, Model, RetainEvaluation, Trial
from trainables.errors import InputError
from trainables.storage import Storage

MakePlan = Callable[..., planning.Plan]
OBJECTIVES = SWEEP.model_copy(update={"methods": ("ga", "gd", "npo")})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> small_sweep.Small:
    return small_sweep.write(tmp_path_factory.mktemp("small"))


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "store")


@pytest.fixture
def make(small: small_sweep.Small, store: Storage) -> MakePlan:
    """`make(*settings, **options)`: the plan of tofu_tiny's objectives on the small folders; later settings win."""
    return functools.partial(small.plan, store, sweep=OBJECTIVES)


def point(trial: Trial) -> tuple[object, ...]:
    chosen = trial.rectifier
    return (trial.benchmark.split, trial.seed, trial.method, chosen.name, chosen.gamma, chosen.tau)


def values(plan: planning.Plan, path: str) -> set[object]:
    return {flatten(trial)[path] for trial in plan.trials}


def test_grid_is_every_point_once(make: MakePlan) -> None:
    plan = make()
    assert len(plan.trials) == 3 * 3 * (1 + 2 * 2) == 45
    assert len({trial.id() for trial in plan.trials}) == 45
    assert {name: len(found) for name, found in plan.studies().items()} == {
        f"{split}/{method}/{rectifier}": 4 if rectifier == "gru" else 1
        for split in SWEEP.splits
        for method in ("ga", "gd", "npo")
        for rectifier in ("none", "gru")
    }


def test_paper_is_one_trial_a_cell(make: MakePlan) -> None:
    plan = make(strategy="paper")
    assert len(plan.trials) == 18
    rectified = [trial for trial in plan.trials if trial.rectifier.name == "gru"]
    assert {(trial.method, trial.rectifier.gamma, trial.rectifier.tau) for trial in rectified} == {
        ("ga", 0.8, None),
        ("gd", 0.05, None),
        ("npo", 0.8, None),
    }


def test_optuna_searches_the_points_of_the_grid_with_the_published_one_first(make: MakePlan) -> None:
    searched, grid, paper = make(strategy="optuna", budget=3), make(), make(strategy="paper")
    assert {trial.id() for trial in searched.trials} == {trial.id() for trial in grid.trials}
    assert searched.budget == 3
    first = [found[0].id() for found in searched.studies().values()]
    assert first == [trial.id() for trial in paper.trials]
    assert first != [found[0].id() for found in grid.studies().values()]


def test_the_last_choice_that_fits_a_cell_is_the_published_one() -> None:
    choices = (Choice(gamma=0.8, tau=None), Choice(method="gd", gamma=0.05, tau=None))
    choices += (Choice(method="gd", split="forget10", gamma=0.05, tau=1.0), Choice(split="forget01", gamma=0.4, tau=2))
    sweep = SWEEP.model_copy(update={"choices": choices})
    cells = {
        ("ga", "forget05"): (0.8, None),
        ("gd", "forget05"): (0.05, None),
        ("gd", "forget10"): (0.05, 1.0),
        ("gd", "forget01"): (0.4, 2.0),
    }
    for (method, split), expected in cells.items():
        choice = points.published(sweep, method, split)
        assert (choice.gamma, choice.tau) == expected
    with pytest.raises(InputError, match="no published choice for npo on forget10"):
        points.published(sweep.model_copy(update={"choices": choices[1:]}), "npo", "forget10")


def test_unknown_strategy_names_the_closest(make: MakePlan) -> None:
    with pytest.raises(InputError, match=r"unknown strategy 'gird'; did you mean 'grid'\? known: grid, paper, optuna"):
        make(strategy="gird")


AXES = {
    "splits": ("forget01", "forget05", "forget10"),
    "methods": ("ga", "gd", "npo"),
    "rectifiers": ("none", "clip", "gru"),
    "gammas": (0.05, 0.8, None, 1.0),
    "taus": (None, 0.001, 1.0),
    "seeds": (0, 1, 7),
}


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    st.fixed_dictionaries(
        {name: st.lists(st.sampled_from(axis), min_size=1, max_size=3) for name, axis in AXES.items()}
    )
)
def test_every_point_of_any_axes_is_there_exactly_once(chosen: dict[str, list[object]]) -> None:
    """Whatever the axes, values given twice included: the trials are the product, no more and no less."""
    sweep = Sweep.model_validate({**SWEEP.model_dump(), **chosen})
    benchmarks = {split: Benchmark(split=split, fingerprint=f"files:{split}") for split in sweep.splits}
    models = (Model(path="m", fingerprint="files:1"), RetainEvaluation(path="r", fingerprint="2"))
    trials = points.enumerate_trials(sweep, "grid", benchmarks, lambda split: models)
    rectified: set[tuple[object, ...]] = set()
    for name in sweep.rectifiers:
        for gamma, tau in itertools.product(sweep.gammas, sweep.taus):
            if name == "none":
                rectified.add((name, None, None))
            elif name == "gru" or tau is not None:
                rectified.add((name, None if name == "clip" else gamma, tau))
    cells = itertools.product(sweep.splits, sweep.seeds, sweep.methods, rectified)
    expected = {(split, seed, method, *setting) for split, seed, method, setting in cells}
    assert {point(trial) for trial in trials} == expected
    assert len(trials) == len(expected) == len({trial.id() for trial in trials})


# task vectors


@pytest.fixture
def vectors(small: small_sweep.Small, store: Storage) -> MakePlan:
    """The plan of tofu_tiny's task vectors on forget05."""
    sweep = SWEEP.model_copy(update={"methods": ("tv", "tru"), "splits": ("forget05",)})
    return functools.partial(small.plan, store, sweep=sweep)


def strengths(plan: planning.Plan, field: str) -> list[object]:
    return [flatten(trial)[f"task_vector.{field}"] for trial in plan.trials]


def test_each_strength_is_a_trial_and_the_axis_of_rectifiers_does_not_multiply_them(vectors: MakePlan) -> None:
    plan = vectors()
    assert strengths(plan, "stg") == [None] * 5 + list(SWEEP.stgs)
    assert strengths(plan, "strength") == list(SWEEP.strengths) + [None] * 5
    assert set(plan.studies()) == {"forget05/tv/none", "forget05/tru/none"}
    assert strengths(vectors("task_vector.stg=3,4"), "stg") == [None] * 5 + [3.0, 4.0]


def test_all_strengths_of_a_seed_share_one_direction(vectors: MakePlan) -> None:
    assert len(vectors().directions()) == 2
    plan = vectors("seed=0,1")
    assert [made.rectified for made in plan.directions()] == [False, True, True]  # TV has nothing random,
    assert {trial.seed for trial in plan.trials if trial.method == "tv"} == {0}  # so another seed would be a copy
    one, other = vectors("task_vector.steps=1").directions(), vectors("task_vector.steps=2").directions()
    assert not {made.id() for made in one} & {made.id() for made in other}


def test_only_the_trials_that_are_chosen_need_points_to_divide(vectors: MakePlan) -> None:
    assert len(vectors("task_vector.batches=20", only=["method=tv"]).trials) == 5


def test_published_strength_is_first_or_alone(vectors: MakePlan) -> None:
    assert strengths(vectors(strategy="paper"), "stg") == [None, 12.0]
    assert strengths(vectors(strategy="optuna"), "stg")[5] == 12.0
    sweep = SWEEP.model_copy(update={"methods": ("tv",), "splits": ("forget05",), "choices": (Choice(gamma=1.0),)})
    with pytest.raises(InputError, match="no published strength for tv on forget05; use --strategy grid"):
        vectors(strategy="paper", sweep=sweep)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("task_vector.batches=1",), "task_vector.batches: tru rectifies each batch with the other ones"),
        (("task_vector.batches=11",), "task_vector.batches=11: forget05 has 10 forget points"),
        (("task_vector.stg=-1",), "task_vector.stg: Input should be greater than 0"),
        (("task_vector.normalise=all",), "task_vector.normalise: Input should be 'whole' or 'per_tensor'"),
        (("calibration.targets=90",), "targets are shares of the target model's utility, above 0 and up to 1; got 90"),
    ],
)
def test_bad_task_vector_is_refused_with_words(vectors: MakePlan, settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as error:
        vectors(*settings)
    assert said in str(error.value)


# --set and --only


@pytest.mark.parametrize(
    ("setting", "path", "expected", "trials"),
    [
        ("method=npo", "method", {"npo"}, 15),
        ("method=ga,npo", "method", {"ga", "npo"}, 30),
        ("benchmark.split=forget05", "benchmark.split", {"forget05"}, 15),
        ("rectifier.name=none", "rectifier.name", {"none"}, 9),
        ("rectifier.name=none,clip", "rectifier.tau", {None, 1.0}, 18),
        ("rectifier.gamma=0.1,none,1", "rectifier.gamma", {None, 0.1, 1.0}, 63),
        ("rectifier.tau=none", "rectifier.tau", {None}, 27),
        ("seed=0,1,2", "seed", {0, 1, 2}, 135),
    ],
)
def test_setting_an_axis_replaces_its_values(
    make: MakePlan, setting: str, path: str, expected: set[object], trials: int
) -> None:
    plan = make(setting)
    assert values(plan, path) == expected
    assert len(plan.trials) == trials


@pytest.mark.parametrize(
    ("setting", "path", "expected"),
    [
        ("training.lr=1e-5", "training.lr", 1e-5),
        ("training.max_steps=4", "training.max_steps", 4),
        ("training.max_steps=none", "training.max_steps", None),
        ("training.betas=0.5,0.9", "training.betas", (0.5, 0.9)),
        ("benchmark.dialect=paper", "benchmark.dialect", "paper"),
        ("objective.beta=0.5", "objective.beta", 0.5),
        ("resources.micro_batch=4", "resources.micro_batch", 4),
    ],
)
def test_setting_a_field_reaches_every_trial(make: MakePlan, setting: str, path: str, expected: object) -> None:
    assert values(make(setting), path) == {expected}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("methd=ga", "unknown field 'methd'; did you mean 'method'?"),
        ("training.learning_rate=1", "unknown field 'training.learning_rate'; did you mean"),
        ("benchmark.fingerprint=x", "unknown field 'benchmark.fingerprint'"),
        ("method", "--set method: write FIELD=VALUE"),
        ("method=", "--set method=: write FIELD=VALUE"),
        ("method=gaa", "--set: method: Input should be 'ga', 'ga_kl'"),
        ("training.lr=fast", "training.lr: Input should be a valid number, unable to parse"),
        ("training.lr=-1", "training.lr: Input should be greater than 0 (got '-1')"),
        ("rectifier.gamma=2", "rectifier.gamma: Input should be less than or equal to 1 (got 2.0)"),
        ("rectifier.name=grr", "rectifier.name: Input should be 'none', 'clip', 'gru'"),
        ("benchmark.split=forget5", "benchmark.split: unknown split 'forget5'; did you mean 'forget05'?"),
        ("benchmark.template=lama2", "benchmark.template: unknown template 'lama2'; did you mean 'llama2'?"),
    ],
)
def test_bad_setting_is_refused_with_words(make: MakePlan, setting: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        make(setting)
    assert said in str(error.value)


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
    ("only", "said"),
    [
        (["methods=ga"], "--only methods=ga: unknown field 'methods'; did you mean 'method'?"),
        (["method=gd,np"], "--only method=gd,np: no trial has method=np; did you mean 'npo'? known: ga, gd, npo"),
        (["rectifier.tau=2"], "no trial has rectifier.tau=2; known: 1.0, none"),
        (["method"], "--only method: write FIELD=VALUE"),
        (["rectifier.name=none", "rectifier.gamma=0.8"], "no trial"),
    ],
)
def test_only_refuses_what_no_trial_has(make: MakePlan, only: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        make(only=only)
    assert said in str(error.value)


def test_axes_without_a_single_trial_are_refused(make: MakePlan) -> None:
    with pytest.raises(InputError, match="no trial"):
        make("rectifier.name=clip", "rectifier.tau=none")


# RMU's layer


@pytest.mark.parametrize("where", ["target", "base"])
def test_layer_that_rmu_cannot_steer_is_refused_before_anything_starts(
    make: MakePlan, small: small_sweep.Small, tmp_path: Path, where: str
) -> None:
    """In the words of the trial itself; the depth is the target's, or that of the base it will be made from."""
    folder = small_sweep.write_model(tmp_path / "models" / "base")
    (folder / "config.json").write_text('{"num_hidden_layers": 6}')
    setting = f"target={folder}" if where == "target" else f"models={tmp_path / 'models'}"
    with pytest.raises(InputError) as error:
        make(setting, "method=ga,rmu")
    assert str(error.value) == "objective.layer: RMU steers a layer before the last; the model has 6, got 7"
    with pytest.raises(InputError, match="the model has 6, got 5"):
        make(setting, "method=rmu", "objective.layer=5")
    assert len(make(setting, "method=rmu", "objective.layer=4", "benchmark.split=forget05").trials) == 5
    assert make(setting, "method=ga,rmu", only=["method=ga"]).trials


def test_layer_is_not_checked_in_models_that_are_not_here(make: MakePlan) -> None:
    assert make("target=somebody/a-model", "method=rmu", "objective.layer=99").trials
