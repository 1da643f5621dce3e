"""`runs.load` from MLflow: the frame that the storage gives, but for what is said to be missing."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import runs
from analysis.load import tracking
from analysis.stats.sweep_results import Results
from platform.plan.overrides import flatten_settings
from platform.tracking import tracker
from tests.support.tracked_store import TRIALS, make_trial, write_result, write_store, write_sweep
from trainables.common.errors import InputError
from trainables.config.settings import Calibration, Rectifier, TaskVector
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage

VARIED = {
    "no rectifier": make_trial(method="ga"),
    "GRU without clipping": make_trial(method="npo", rectifier=Rectifier(name="gru", gamma=0.8), seed=2),
    "GRU": make_trial(method="gd", rectifier=Rectifier(name="gru", gamma=1e-3, tau=2), observe=5),
    "clipping": make_trial(method="gd", rectifier=Rectifier(name="clip", tau=1)),
    "a task vector": make_trial(method="tru", task_vector=TaskVector(stg=12.0)),
    "a calibration": make_trial(method="wga", calibration=Calibration(targets=(0.85, 0.9))),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    place = write_store(tmp_path_factory.mktemp("mirrored"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracker.sync(write_sweep(place), place)
    return place


@pytest.fixture(scope="module")
def uri(store: Storage) -> str:
    return f"sqlite:///{store.root / 'mlflow.db'}"


@pytest.fixture(scope="module")
def frames(store: Storage, uri: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """From the storage, of trials that have a result; and from MLflow, in the same order."""
    stored, served = runs.load("tiny", store), runs.load("tiny", tracking=uri)
    stored = stored.loc[stored["status"] != "missing"].set_index("id")
    return stored, served.set_index("id").loc[stored.index]


def test_both_give_equal_frames(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    stored, served = frames
    assert stored["status"].tolist() == ["finished", "finished", "diverged", "failed"]
    common = [column for column in stored if column in served and not lacking(str(column))]
    assert {"forget_quality", "rectifier.name", "rectifier.tau", "configuration", "choice.utility"} <= set(common)
    assert {"seconds.training", "dirty", "chosen_step", "error.message", "strength", "started"} <= set(common)
    pd.testing.assert_frame_equal(plain(stored.loc[:, common]), plain(served.loc[:, common]))
    assert {column for column in stored if column not in served and not lacking(str(column))} == set()
    assert set(served) <= set(stored)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """A setting that no trial has is NaN or None, as a trial without a configuration is among them or not."""
    return frame.astype(object).where(frame.notna(), None)


def lacking(column: str) -> bool:
    """Return whether MLflow holds no such column, by its name or its part; an unmeasured metric is no column at all."""
    return any(column == name or column.startswith(f"{name}.") for name in [*tracking.NOT_HELD, "forget_quality_ks"])


def test_a_choice_among_served_trials_is_the_storage_s(store: Storage, uri: str) -> None:
    models = runs.references("tiny", store)
    for frame in (runs.load("tiny", store), runs.load("tiny", tracking=uri)):
        assert Results(frame, models).chosen["id"].tolist() == [TRIALS[name].id() for name in ("finished", "rectified")]


@pytest.mark.parametrize("name", VARIED)
def test_params_give_the_whole_configuration_back(name: str) -> None:
    """As platform.tracking writes them: as texts, `none` for no value and for the rectifier of that name."""
    config = VARIED[name].model_dump(mode="json")
    params = {path: "none" if value is None else str(value) for path, value in flatten_settings(config).items()}
    assert tracking._config(params) == config
    assert Trial.model_validate(tracking._config(params)).id() == VARIED[name].id()


def test_of_two_sweeps_the_newest_is_taken_or_the_one_that_is_named(
    store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"sqlite:///{tmp_path / 'both.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for digest, name in (("0a1b2c3d", "finished"), ("ffffffff", "rectified")):
        place = Storage(tmp_path / digest)
        write_result(place, TRIALS[name], "finished")
        tracker.sync(write_sweep(place, digest=digest), place)
    with caplog.at_level(logging.WARNING):
        newest = runs.load("tiny", tracking=uri)
    assert newest["id"].tolist() == [TRIALS["rectified"].id()]
    assert "tiny has 2 sweeps: taking the newest, tiny-ffffffff" in caplog.text
    assert runs.load("tiny-0a1b2c3d", tracking=uri)["id"].tolist() == [TRIALS["finished"].id()]


@pytest.fixture
def changed(store: Storage, tmp_path: Path) -> Any:
    """A client of a copy of the tracking store, to be changed."""
    from mlflow import MlflowClient

    shutil.copy(store.root / "mlflow.db", tmp_path / "mlflow.db")
    return MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")


def parent(client: Any) -> Any:
    experiment = client.get_experiment_by_name("tiny").experiment_id
    (found,) = client.search_runs([experiment], filter_string="tags.role = 'parent'")
    return found


def test_a_run_under_way_is_no_result_and_a_rule_on_halves_is_refused(changed: Any) -> None:
    """The params of a run may be there already, its outcome is not."""
    run = parent(changed)
    tags = {"sweep_id": "tiny-0a1b2c3d", "trial_id": TRIALS["missing"].id()}
    changed.create_run(run.info.experiment_id, tags=tags)
    assert len(runs.load("tiny", tracking=changed.tracking_uri)) == 4
    assert json.loads(run.data.tags["selection"])["halves"] is False
    changed.set_tag(run.info.run_id, "selection", '{"halves": true}')
    with pytest.raises(InputError, match="chooses on half of the evaluation rows, which MLflow does not hold"):
        runs.load("tiny", tracking=changed.tracking_uri)


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("tinny", "{uri}", r"NAME tinny: sqlite:.* holds no such sweep; there are: tiny-0a1b2c3d$"),
        ("tiny", "sqlite:///nowhere/mlflow.db", r"sqlite:///nowhere/mlflow.db: there is no such file"),
        ("tiny", "127.0.0.1:5000", r"tracking 127.0.0.1:5000: give an address such as http://127.0.0.1:5000"),
        ("tiny", "http://127.0.0.1:9", r"tracking http://127.0.0.1:9: cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(
    uri: str, name: str, where: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=said):
        runs.load(name, tracking=where.format(uri=uri))
    assert not Path("nowhere").exists()
