"""UWC: the search for a mixture, and a calibrated trial against mixing by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.interrupted import configuration, finish
from tests.support.starts import write_evaluation
from trainables.config.settings import Calibration, Model
from trainables.config.shared_artifacts import evaluation_id
from trainables.config.trial import Rectifier, Trial
from trainables.methods import uwc
from trainables.storage.file_names import WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.runtime import prepare_process
from trainables.trial import weights_on_disk

SETTINGS = Calibration(targets=(0.9,))


@given(st.floats(0.05, 0.95), st.floats(0.3, 4.0))
def test_a_falling_utility_is_met(goal: float, power: float) -> None:
    """MU(w) = 1 - w^power: the answer is (1 - goal)^(1 / power)."""
    known = {0.0: 1.0, 1.0: 0.0}
    asked: list[float] = []

    def evaluate(weight: float) -> float:
        asked.append(weight)
        return 1 - weight**power

    found = uwc.search_mixture(goal, known, evaluate, SETTINGS)
    assert len(asked) == found["evaluations"] <= 12
    assert len(set(asked)) == len(asked)
    low, high = found["bracket"]
    assert known[low] >= goal > known[high]
    if found["reached"]:
        assert abs(1 - found["weight"] ** power - goal) <= 0.002
    else:
        assert found["evaluations"] == 12
        assert high - low == pytest.approx(2**-12)
    assert uwc.is_utility_monotone(known, 0.002)


def test_a_model_above_the_goal_is_left_as_it_is() -> None:
    found = uwc.search_mixture(0.8, {0.0: 1.0, 1.0: 0.9}, lambda weight: 0.0, SETTINGS)
    assert (found["weight"], found["reached"], found["evaluations"], found["bracket"]) == (1.0, True, 0, (1.0, 1.0))


def test_of_several_brackets_the_one_that_forgets_most_is_kept_and_said() -> None:
    def bumpy(weight: float) -> float:
        return 1 - weight if weight < 0.4 else 0.2 if weight < 0.7 else 1.5 - weight if weight < 0.9 else 0.1

    known = {weight: bumpy(weight) for weight in (0.0, 0.5, 0.75, 1.0)}
    found = uwc.search_mixture(0.65, known, bumpy, SETTINGS)
    assert found["reached"]
    assert found["weight"] == pytest.approx(0.85, abs=0.002)
    assert not uwc.is_utility_monotone(known, 0.002)


@pytest.fixture(scope="module")
def calibrated(trained_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, dict[str, Any], Storage]:
    """GA that goes too far, brought back to 60 % and 90 % of the target model's utility."""
    calibration = Calibration(targets=(0.9, 0.6), evaluations=6, tolerance=0.01)
    config = configuration(trained_inputs, every=None, lr=5e-3, max_steps=4)
    config = config.model_copy(update={"method": "ga", "rectifier": Rectifier(), "calibration": calibration})
    result, store = finish(config, tmp_path_factory.mktemp("calibrated"))
    return config, result, store


def test_a_trial_is_calibrated_and_keeps_its_own_numbers(
    trained_inputs: Any, calibrated: tuple[Trial, dict[str, Any], Storage], tmp_path: Path
) -> None:
    config, result, _ = calibrated
    assert result["status"] == "finished", result["error"]
    plain, _ = finish(config.model_copy(update={"calibration": Calibration()}), tmp_path)
    assert plain["calibration"] is None
    assert result["metrics"] == plain["metrics"]
    found = result["calibration"]
    assert [item["target"] for item in found["targets"]] == [0.6, 0.9]
    utilities = {item["weight"]: item["model_utility"] for item in found["evaluations"]}
    assert utilities[1.0] == plain["metrics"]["model_utility"]
    assert found["original_model_utility"] == utilities[0.0] > utilities[1.0]
    for item in found["targets"]:
        assert item["goal"] == pytest.approx(item["target"] * utilities[0.0])
        assert item["model_utility"] == utilities[item["weight"]]
        assert item["reached"] == (abs(item["model_utility"] - item["goal"]) <= 0.01)
    assert len(utilities) == 2 + sum(item["evaluations"] for item in found["targets"])


def test_mixtures_and_the_relative_change_are_those_of_the_weights(
    trained_inputs: Any, calibrated: tuple[Trial, dict[str, Any], Storage]
) -> None:
    config, result, store = calibrated
    saved = store.trial(config.id()) / WEIGHTS
    item = result["calibration"]["targets"][-1]
    target, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))
    unlearned, _ = model_files.load_model_and_tokenizer(Model(path=str(saved)))
    mixed, _ = model_files.load_model_and_tokenizer(Model(path=str(saved)))
    weights_on_disk.load_mixture(
        mixed, dict(unlearned.named_parameters()), weights_on_disk.map_tensors_to_files(config.target), item["weight"]
    )
    for before, after, between in zip(target.parameters(), unlearned.parameters(), mixed.parameters(), strict=True):
        expected = item["weight"] * after.double() + (1 - item["weight"]) * before.double()
        assert torch.allclose(between.double(), expected, atol=1e-7)
    before, after = (torch.nn.utils.parameters_to_vector(m.parameters()).detach().double() for m in (target, unlearned))
    change = float((after - before).norm() / before.norm())
    assert result["metrics"]["relative_change"] == pytest.approx(change, rel=1e-6)
    from trainables.benchmarks import evaluation

    prepare_process(config.resources, config.seed)
    again, _ = evaluation.evaluate(mixed.eval(), tokenizer, config.benchmark, None, token_budget=4096)
    assert again["model_utility"] == item["model_utility"]


def test_the_stored_evaluation_of_the_target_model_is_used(trained_inputs: Any, tmp_path: Path) -> None:
    """No evaluation at w = 0 where the sweep has one: its number is what the goal is a share of."""
    config = configuration(trained_inputs, every=None, max_steps=1)
    config = config.model_copy(update={"calibration": Calibration(targets=(0.01,))})
    store = Storage(tmp_path)
    key = evaluation_id(config.target, config.benchmark, None)
    write_evaluation(store, key, {"model_utility": 0.5})
    result, _ = finish(config, tmp_path)
    assert result["calibration"]["original_model_utility"] == 0.5
    assert [item["weight"] for item in result["calibration"]["evaluations"]] == [0.0, 1.0]
