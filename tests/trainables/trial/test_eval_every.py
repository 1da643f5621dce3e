"""training.eval_every: each evaluated step is what a shorter trial gives, and the rule's choice is the result."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support import own_rows
from tests.support.interrupted import finish, same
from trainables.config.settings import Benchmark, Model, Resources, Selection, Training
from trainables.config.trial import Rectifier, Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import ROWS, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial.step_selection import StepSelection

STEPS, EVERY = 6, 2


def configuration(trial_inputs: Any, **training: Any) -> Trial:
    """GA with GRU on a model that knows its authors: utility falls from step to step."""
    settings: dict[str, Any] = {"lr": 2e-3, "max_steps": STEPS, "epochs": 50, "batch_size": 8, "max_length": 192}
    return Trial(
        method="ga",
        rectifier=Rectifier(name="gru", gamma=0.8),
        benchmark=Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=4),
        target=Model(path=str(trial_inputs.target)),
        training=Training.model_validate(settings | {"eval_every": EVERY} | training),
        resources=Resources(zero_stage=1, evaluation_tokens=8192, checkpoint_every=3),
    )


@pytest.fixture(scope="module")
def watched(trained_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Storage]:
    return finish(configuration(trained_inputs), tmp_path_factory.mktemp("watched"))


def test_the_rule_chooses_a_step_which_is_a_shorter_trial(trained_inputs: Any, watched: Any, tmp_path: Path) -> None:
    """No retain model: no FQ to go by, so that the highest utility is chosen, and its weights are kept."""
    result, store = watched
    utilities = {entry["step"]: entry["model_utility"] for entry in result["evaluations"]}
    assert list(utilities) == [2, 4, 6]
    assert len(set(utilities.values())) > 1
    assert utilities[result["chosen_step"]] == max(utilities.values()) == result["metrics"]["model_utility"]
    assert result["training"]["steps"] == STEPS
    config = configuration(trained_inputs)
    assert not (store.trial(config.id()) / "evaluations").exists()
    step = result["chosen_step"]
    shorter = configuration(trained_inputs, eval_every=None, max_steps=step)
    found, alone = finish(shorter, tmp_path)
    (entry,) = [entry for entry in result["evaluations"] if entry["step"] == step]
    assert entry == {"step": step, **found["metrics"]}
    assert (found["evaluations"], found["chosen_step"]) == (None, None)
    folders = (store.trial(config.id()), alone.trial(shorter.id()))
    kept, expected = (load_file(folder / WEIGHTS / "model.safetensors") for folder in folders)
    assert all(torch.equal(kept[name], expected[name]) for name in expected)
    rows = [atomic_files.read_parquet_rows(folder / ROWS) for folder in folders]
    assert rows[0] == rows[1]


def test_interrupted_between_evaluations(trained_inputs: Any, watched: Any, tmp_path: Path) -> None:
    """Checkpoint at step 3, evaluations at 2 and 4: none is lost and none is made twice."""
    config = configuration(trained_inputs)
    assert finish(config, tmp_path, stop_after=5)[0] == {}
    resumed, store = finish(config, tmp_path)
    assert resumed["training"]["resumed_at"] == 3
    for name in ("halves", "evaluations", "chosen_step"):
        assert resumed[name] == watched[0][name]
    same(store, watched[1], config)


def test_utility_below_the_bar_stops_the_trial(trained_inputs: Any, watched: Any, tmp_path: Path) -> None:
    """The bar is between the utilities of steps 2 and 4: training ends there, and the rule chooses of what there is.

    So it does when the trial was killed before its result.
    """
    utilities = {entry["step"]: entry["model_utility"] for entry in watched[0]["evaluations"]}
    assert utilities[2] > utilities[4]
    bar = round((utilities[2] + utilities[4]) / 2, 6)
    config = configuration(trained_inputs, stop_below=bar)
    checkpointed = Resources(zero_stage=1, evaluation_tokens=8192, checkpoint_every=1)
    config = config.model_copy(update={"resources": checkpointed})
    assert config.id() != configuration(trained_inputs).id()
    finish(config, tmp_path, stop_after=4)
    found, _ = finish(config, tmp_path)
    message = f"model_utility {utilities[4]:.4g} is below training.stop_below={bar:g} at step 4"
    assert found["error"] == {"kind": "collapsed", "message": message, "step": 4}
    assert (found["status"], found["training"]["steps"], found["chosen_step"]) == ("collapsed", 4, 2)
    assert found["evaluations"] == watched[0]["evaluations"][:2]
    assert found["metrics"] == {name: value for name, value in found["evaluations"][0].items() if name != "step"}


def test_a_quick_look_chooses_and_the_choice_is_measured_whole(
    trained_inputs: Any, watched: Any, tmp_path: Path
) -> None:
    """A look is an evaluation of two rows of each task; the weights that it chose are evaluated on four."""
    config = configuration(trained_inputs)
    looked = config.model_copy(update={"selection": Selection(rows=2, rule="highest_utility")})
    assert looked.id() != config.id()
    assert finish(looked, tmp_path, stop_after=5)[0] == {}
    found, store = finish(looked, tmp_path)
    fewer = config.model_copy(update={"benchmark": config.benchmark.model_copy(update={"limit": 2})})
    expected, _ = finish(fewer, tmp_path)
    assert found["evaluations"] == expected["evaluations"]
    assert found["chosen_step"] == expected["chosen_step"]
    (whole,) = [entry for entry in watched[0]["evaluations"] if entry["step"] == found["chosen_step"]]
    assert found["metrics"] == pytest.approx({name: value for name, value in whole.items() if name != "step"})
    assert ("ended" in found["training"], found["training"]["steps"]) == (False, STEPS)
    assert not (store.trial(looked.id()) / "evaluations").exists()
    floored, _ = finish(config.model_copy(update={"selection": Selection(rows=2)}), tmp_path)
    why = "less than 90% of the utility was kept at steps 2 and 4"
    assert (floored["training"]["ended"], floored["training"]["steps"], floored["status"]) == (why, 4, "finished")
    assert floored["evaluations"] == found["evaluations"][:2]
    unchanged = configuration(trained_inputs, lr=1e-12, stop_when="utility:0.99")  # three rows are harder than four
    kept, _ = finish(unchanged.model_copy(update={"selection": Selection(rows=3)}), tmp_path)
    assert ("ended" in kept["training"], kept["training"]["steps"]) == (False, STEPS)


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ([0.9, 0.4, 0.3, 0.3, 0.4, 0.3, 0.3], "4 looks found nothing better than step 12"),
        ([0.9, 0.4, 0.3, 0.3, 0.4, 0.3], None),
        ([0.9, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6], None),  # of less than half: it may be slow
        ([0.9, 0.5, 0.5, 0.5, 0.5, 0.4], None),
    ],
)
def test_training_ends_where_nothing_better_is_found(said: list[float], ended: str | None, tmp_path: Path) -> None:
    files = {part: tmp_path / f"{part}.jsonl" for part in ("forget", "retain")}
    training = Training(lr=1e-5, eval_every=4)
    trial = Trial(
        method="ga",
        benchmark=own_rows.on(files),
        target=Model(path="m"),
        training=training,
        selection=Selection(rows=9),
    )
    steps = StepSelection(trial, Storage(tmp_path), None, None, None)
    steps.target = {"metrics": {"forget_said_any": 1.0, "utility": 1.0}, "halves": None}
    for number, one in enumerate(said, 1):
        found = {"metrics": {"forget_said_any": one, "utility": 0.95}, "halves": None}
        atomic_files.write_json(steps.evaluations_folder / f"{4 * number}.json", found)
    assert steps.find_reason_to_end_training() == ended


def test_a_spent_budget_ends_the_trial_at_a_step_before(trained_inputs: Any, watched: Any, tmp_path: Path) -> None:
    """It finishes with the last step within the budget, and the spent one is evaluated once; killed, it does alike."""
    utilities = {entry["step"]: entry["model_utility"] for entry in watched[0]["evaluations"]}
    before = finish(configuration(trained_inputs, lr=1e-12, max_steps=1, eval_every=1), tmp_path / "target")[0]
    share = round((utilities[2] + utilities[4]) / 2 / before["metrics"]["model_utility"], 6)
    assert utilities[4] < share * before["metrics"]["model_utility"] < utilities[2]
    config = configuration(trained_inputs, stop_when=f"utility:{share}")
    found, _ = finish(config, tmp_path / "whole")
    assert (found["status"], found["chosen_step"], found["training"]["steps"]) == ("finished", 2, 4)
    assert found["training"]["ended"].endswith("was kept at step 4")
    assert found["evaluations"] == watched[0]["evaluations"][:2]
    finish(config, tmp_path / "killed", stop_after=3)
    again, _ = finish(config, tmp_path / "killed")
    for name in ("metrics", "evaluations", "chosen_step", "status"):
        assert again[name] == found[name]
    assert again["training"] == found["training"] | {"resumed_at": 3}


def test_adapters_are_not_folded_in_while_they_train(trained_inputs: Any, tmp_path: Path) -> None:
    config = configuration(trained_inputs, lora_rank=4, max_steps=2, eval_every=1)
    plain = configuration(trained_inputs, lora_rank=4, max_steps=2, eval_every=None)
    found, expected = finish(config, tmp_path)[0], finish(plain, tmp_path)[0]
    assert {"step": 2, **expected["metrics"]} == found["evaluations"][-1]
