"""`python -m trainables.run`: one trial in its own process, the same every time, and what stops it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import psutil
import pytest

from tests.support import small_sweep
from tests.support.interrupted import same
from tests.support.starts import invoke, write_result
from trainables import benchmarks, run
from trainables.common import cli, fingerprints, process_identity
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources, RetainEvaluationFile, Training
from trainables.config.shared_artifacts import evaluation_id
from trainables.config.trial import Rectifier, Trial
from trainables.storage.atomic_files import write_json
from trainables.storage.file_names import PROGRESS, RESULT, STEPS
from trainables.storage.folder_storage import Storage
from trainables.workers import ray_processes


@pytest.fixture(scope="module")
def trial(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """GRU with NPO on the tiny models and a few general rows, measured against the retain model."""
    from trainables.workers import shared_artifacts

    place = tmp_path_factory.mktemp("evaluations")
    data = small_sweep.cut_short(trial_inputs.data, place / "data")
    benchmark = Benchmark(data=str(data), split=trial_inputs.split)
    found = benchmarks.get_benchmark("tofu").fingerprint(benchmark)
    benchmark = benchmark.model_copy(update={"fingerprint": found})
    target, retain = (
        Model(path=str(folder), fingerprint="files:" + fingerprints.hash_folder(folder, fingerprints.MODEL_PATTERNS))
        for folder in (trial_inputs.target, trial_inputs.retain)
    )
    shared_artifacts.ensure_evaluation(retain, benchmark, None, str(place), Resources())
    key = evaluation_id(retain, benchmark)
    kept = RetainEvaluationFile(path=str(Storage(place).evaluation(key) / RESULT), fingerprint=key)
    return Trial(
        method="npo",
        rectifier=Rectifier(name="gru", gamma=0.8, tau=1.0),
        benchmark=benchmark,
        target=target,
        retain_evaluation=kept,
        training=Training(lr=2e-3, batch_size=8, max_steps=2, epochs=10, max_length=192),
    )


def write_config(place: Path, trial: Trial) -> Path:
    path = place / "config.json"
    path.write_text(trial.model_dump_json())
    return path


def test_trial_runs_without_ray_and_twice_the_same_bit_for_bit(trial: Trial, tmp_path: Path) -> None:
    config = write_config(tmp_path, trial)
    done = invoke(run.main, config, "--storage", tmp_path / "one")
    assert (done.exit_code, "step 2/2 loss" in done.stdout) == (0, True), done.output
    assert run.main(config, str(tmp_path / "other")) == 0
    one, other = (Storage(tmp_path / name) for name in ("one", "other"))
    files = {"config.json", "result.json", "steps.parquet", "evaluation.parquet", "weights"}
    assert {path.name for path in one.trial(trial.id()).iterdir()} == files
    result = one.result(trial.id()) or {}
    assert (result["error"], result["training"]["steps"]) == (None, 2)
    assert Trial.model_validate(result["config"]) == trial
    assert result["metrics"]["forget_quality"] < 0 < result["metrics"]["forget_truth_ratio"] < 1
    same(one, other, trial)


def test_diverging_trial_is_a_result_and_exit_status_1(
    trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = trial.training.model_copy(update={"optimizer": "sgd", "lr": 1e6, "max_steps": 4})
    doomed = trial.model_copy(update={"training": wild, "rectifier": Rectifier(), "method": "ga"})
    assert cli.run_for_exit_status(lambda: run.main(write_config(tmp_path, doomed), str(tmp_path))) == 1
    result = Storage(tmp_path).result(doomed.id()) or {}
    assert (result["status"], result["error"]["kind"], result["metrics"]) == ("diverged", "diverged", {})
    step = result["error"]["step"]
    assert re.fullmatch(rf"(loss|gradient norm) is (nan|inf|-inf) at step {step}", result["error"]["message"])
    assert len(pandas.read_parquet(Storage(tmp_path).trial(doomed.id()) / STEPS)) == step - 1
    assert '"status": "diverged"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": {"fingerprint": "files:0"}}, "has changed since this trial was planned"),
        ({"target": {"fingerprint": "files:0"}}, "has changed since this trial was planned"),
        ({"benchmark": {"dialect": "open-unlearning"}}, "was made with dialect 'paper'"),
    ],
)
def test_inputs_that_are_not_what_was_planned(trial: Trial, change: dict[str, Any], said: str, tmp_path: Path) -> None:
    document = trial.model_dump()
    for section, settings in change.items():
        document[section] |= settings
    changed = Trial.model_validate(document)
    with pytest.raises(InputError, match=said):
        run.main(write_config(tmp_path, changed), str(tmp_path / "runs"))
    assert Storage(tmp_path / "runs").result(changed.id()) is None


def test_a_result_is_not_run_over(trial: Trial, tmp_path: Path) -> None:
    store = Storage(tmp_path / "runs")
    write_result(store, trial.id(), config=trial.model_dump(mode="json"))
    content = (store.trial(trial.id()) / RESULT).read_text()
    with pytest.raises(InputError, match=rf"CONFIG: trial {trial.id()} has a result already \(finished\) in "):
        run.main(write_config(tmp_path, trial), str(tmp_path / "runs"))
    assert (store.trial(trial.id()) / RESULT).read_text() == content


def test_a_trial_that_another_process_runs_is_left_alone(trial: Trial, tmp_path: Path) -> None:
    """Even one that is silent. Which processes count as alive: tests/platform/state."""
    store = Storage(tmp_path / "runs")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another:
        identity = {"pid": another.pid, "born": psutil.Process(another.pid).create_time(), "beat": 0.0}
        write_json(store.trial(trial.id()) / PROGRESS, process_identity.identify_self() | identity)
        with pytest.raises(InputError, match=f"CONFIG: process {another.pid} on .* is at trial {trial.id()} in "):
            run.main(write_config(tmp_path, trial), str(store.root))
        another.kill()


@pytest.mark.slow
def test_two_ranks_end_together_where_their_utility_is_too_low(trial: Trial, tmp_path: Path, ray_session: None) -> None:
    training = trial.training.model_copy(update={"eval_every": 2, "stop_below": 1.0})
    config = trial.model_copy(update={"training": training, "resources": Resources(ranks=2, zero_stage=2)})
    found = ray_processes.run_trial_on_ranks(config, Storage(tmp_path))
    assert (found["status"], found["training"]["steps"], found["error"]["step"]) == ("collapsed", 2, 2)
    assert [entry["step"] for entry in found["evaluations"]] == [2]
