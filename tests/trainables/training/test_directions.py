"""How a direction is made and moved along: on many ranks, after an interruption, and by a trial."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file

from tests.support import ranks
from tests.support.naive_vectors import make, recipe
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources, TaskVector, Training
from trainables.config.shared_artifacts import TaskVectorRecipe
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.training import model_files, sharded_model
from trainables.trial import direction_files
from trainables.trial.direction_files import ensure_task_vector
from trainables.trial.runner import TrialRun
from trainables.workers import shared_artifacts

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def made(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskVectorRecipe, Storage, Tensors]:
    """A direction made at once by one process, three rows a micro-batch."""
    direction, place = recipe(trial_inputs), tmp_path_factory.mktemp("made")
    tensors = make(direction, place, micro_batch=3)
    return direction, Storage(place), tensors


def flat(tensors: Tensors) -> torch.Tensor:
    return torch.cat([tensors[name].reshape(-1) for name in sorted(tensors)])


def test_interrupted_making_begins_again_and_a_direction_that_is_there_is_found(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direction, _, whole = made

    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "publish_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            make(direction, tmp_path, micro_batch=3)
    folder = Storage(tmp_path).direction(direction.id())
    given = (direction, str(tmp_path), Resources(), 3)
    assert not folder.exists()
    shared_artifacts.ensure_shared_task_vector(*given)
    assert {path.name for path in folder.parent.iterdir()} == {direction.id()}
    torch.testing.assert_close(load_file(folder / "direction.safetensors"), whole, rtol=0, atol=0)
    written = (folder / RESULT).stat().st_mtime_ns
    monkeypatch.setattr(direction_files, "load_task_vector_trainer", stop)
    shared_artifacts.ensure_shared_task_vector(*given)
    assert (folder / RESULT).stat().st_mtime_ns == written


def test_a_rate_that_gives_no_direction_is_refused(trial_inputs: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="every vector is zero after 3 step"):
        make(recipe(trial_inputs, lr=1e-44), tmp_path)


def _one_of_two(rank: int, folder: Path, recipe_json: str) -> None:
    uneven = torch.nn.Module()
    uneven.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 7)])
    whole = sharded_model.shard_model(uneven, torch.device("cpu"), "fp32").gather()
    if rank == 0:
        save_torch_state_dict(whole, folder)
    direction = TaskVectorRecipe.model_validate_json(recipe_json)
    ensure_task_vector(direction, Storage(folder), micro_batch=1)


def test_two_ranks_share_the_vectors_and_make_the_same_direction(made: Any, tmp_path: Path) -> None:
    """Batches of three points on two ranks: one of them has nothing to do in a micro-batch. Seven rows can be saved."""
    direction, store, expected = made
    ranks.start(_one_of_two, (tmp_path, direction.model_dump_json()), 2)
    assert load_file(tmp_path / "model.safetensors")["blocks.0.weight"].shape == (7, 4)
    folders = [place.direction(direction.id()) for place in (store, Storage(tmp_path))]
    found = load_file(folders[1] / "direction.safetensors")
    assert found.keys() == expected.keys()
    assert float((flat(found) - flat(expected)).norm() / flat(expected).norm()) < 1e-4
    one, two = (atomic_files.read_parquet_rows(folder / direction_files.VECTOR_RECORDS_FILE) for folder in folders)
    for first, second in zip(one, two, strict=True):
        for name in ("batch", "rows", "tokens"):
            assert second[name] == first[name]
        assert second["norm"] == pytest.approx(first["norm"], rel=1e-3)


def test_a_trial_moves_the_target_model_as_far_as_its_strength(trial_inputs: Any, tmp_path: Path) -> None:
    """Alone, without a sweep, a trial makes the direction it needs; the next strength finds it."""
    store = Storage(tmp_path)
    results = []
    for strength in (1.0, 3.0):
        config = Trial(
            method="tru",
            benchmark=Benchmark(
                data=str(trial_inputs.data), split=trial_inputs.split, fingerprint="of-the-tests", limit=3
            ),
            target=Model(path=str(trial_inputs.target), fingerprint="of-the-tests"),
            training=Training(max_length=192),
            task_vector=TaskVector(steps=2, lr=0.05, batches=3, stg=strength),
        )
        *_, last = TrialRun(config, store).run_and_yield_events()
        results.append(last["result"])
    assert [result["status"] for result in results] == ["finished", "finished"], results[0]["error"]
    (folder,) = (store.root / "shared" / "directions").iterdir()
    assert {result["direction"] for result in results} == {folder.name}
    changes = [result["metrics"]["relative_change"] for result in results]
    assert changes[1] == pytest.approx(3 * changes[0], rel=1e-4)
    note = atomic_files.read_json(folder / RESULT) or {}
    norm = (
        torch.nn.utils.parameters_to_vector(model_files.load_model_and_tokenizer(config.target)[0].parameters())
        .detach()
        .norm()
    )
    assert changes[0] == pytest.approx(note["norm"] / float(norm), rel=1e-4)
    assert results[0]["metrics"]["forget_prob"] != results[1]["metrics"]["forget_prob"]
