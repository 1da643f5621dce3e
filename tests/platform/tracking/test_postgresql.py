"""MLflow's runs in a PostgreSQL server of the test's own: the same as in SQLite, for one real sweep."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from tests.support.environment import RunModule
from tests.support.ports import free_port

pytestmark = pytest.mark.slow
PASSWORD = "for-this-test-alone"
TRIALS = 3  # GA without GRU and with tau none and 1
OF_A_RUN = ("mlflow.parentRunId", "mlflow.user", "mlflow.source.name", "mlflow.source.git.commit")
"""Tags that hold another run's id, or where it was logged from."""


def program(name: str) -> str:
    """A program of PostgreSQL's. Skips where there is none."""
    places = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    found = next((place for place in places if place), None)
    if found is None:
        pytest.skip(
            f"no PostgreSQL here: {name} is neither on the PATH nor in /usr/lib/postgresql (Debian: postgresql)"
        )
    return os.path.realpath(found)


def somebody() -> dict[str, Any]:
    """Who PostgreSQL runs as: it refuses root. Skips where nobody else is there."""
    if os.geteuid() != 0:
        return {}
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    if "postgres" not in names:
        pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    return {"user": "postgres", "group": pwd.getpwnam("postgres").pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server on a port and folder of its own; yields its address without a database."""
    psycopg = pytest.importorskip("psycopg", reason="no psycopg: make setup installs it")
    initdb, postgres, who = program("initdb"), program("postgres"), somebody()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        (place / "password").write_text(PASSWORD)
        for path in (place, place / "password"):
            if who:
                shutil.chown(path, who["user"], who["group"])
        data = place / "data"
        rules = ["--auth=scram-sha-256", f"--pwfile={place / 'password'}", "--username=tester", "--encoding=UTF8"]
        subprocess.run([initdb, "-D", data, "--no-sync", *rules], check=True, capture_output=True, cwd=place, **who)
        port = free_port()
        settings = ["-p", str(port), "-h", "127.0.0.1", "-k", place, "-F"]
        with (
            (place / "log").open("w") as log,
            subprocess.Popen([postgres, "-D", data, *settings], stdout=log, stderr=log, cwd=place, **who) as running,
        ):
            uri = f"postgresql://tester:{PASSWORD}@127.0.0.1:{port}"
            try:
                _wait(lambda: psycopg.connect(f"{uri}/postgres").close(), psycopg.OperationalError, place / "log")
                yield uri
            finally:
                running.send_signal(signal.SIGINT)
                running.wait(60)


def _wait(connect: Callable[[], None], refused: type[Exception], log: Path) -> None:
    for _ in range(120):
        try:
            return connect()
        except refused:
            time.sleep(0.5)
    pytest.fail(f"PostgreSQL did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def make_database(server: str) -> Callable[[str], str]:
    """Return `make(name)`: a new database's address."""
    import psycopg

    def make(name: str) -> str:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
            session.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        return f"{server}/{name}"

    return make


@dataclass(frozen=True)
class Logged:
    """One sweep's runs in three databases: as it went, and written again from its storage."""

    done: subprocess.CompletedProcess[str]
    synced: subprocess.CompletedProcess[str]
    storage: Path
    live: str
    again: str
    sqlite: str


@pytest.fixture(scope="module")
def logged(
    make_database: Callable[[str], str],
    house: Any,
    run_module: RunModule,
    tmp_path_factory: pytest.TempPathFactory,
) -> Logged:
    place = tmp_path_factory.mktemp("postgresql")
    shutil.copytree(house.target, place / "models" / "full")
    shutil.copytree(house.retain, place / "models" / "retain75")
    small_sweep.cut_short(house.data, place / "data")
    settings = (f"benchmark.data={place / 'data'}", f"models={place / 'models'}", *SETTINGS)
    arguments = ["tofu_tiny", *(part for setting in settings for part in ("--set", setting)), "--only", "method=ga"]
    storage, live, again = place / "runs", make_database("live"), make_database("again")
    env = {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": live}
    done = run_module("platform.sweep", *arguments, "--storage", storage, timeout=400, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    sync = ("platform.tracking", "sync", "tofu_tiny", "--storage", storage)
    synced = run_module(*sync, timeout=200, MLFLOW_TRACKING_URI=again)
    plain = run_module(*sync, timeout=200)
    assert (synced.returncode, plain.returncode) == (0, 0), synced.stderr + plain.stderr
    return Logged(done, synced, storage, live, again, f"sqlite:///{storage / 'mlflow.db'}")


def everything(uri: str) -> dict[str, Any]:
    """All runs of the sweep as a person sees them, by trial: ids and places aside."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("tofu_tiny")
    assert experiment is not None
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        found[run.data.tags.get("trial_id", "parent")] = {
            "name": run.info.run_name,
            "status": run.info.status,
            "params": run.data.params,
            "tags": {name: value for name, value in run.data.tags.items() if name not in OF_A_RUN},
            "metrics": {
                name: sorted((point.step, point.value) for point in points) for name, points in history.items()
            },
            "data": [
                (item.dataset.name, item.dataset.digest) for item in (run.inputs.dataset_inputs if run.inputs else ())
            ],
            "files": sorted(item.path for item in client.list_artifacts(run.info.run_id)),
        }
    return found


def test_the_sweep_says_where_its_runs_are_and_tells_no_password(logged: Logged) -> None:
    assert logged.done.stderr == ""
    assert PASSWORD not in logged.done.stdout + logged.synced.stdout
    assert f"{TRIALS} trials in postgresql://***@127.0.0.1" in logged.synced.stdout
    assert "is behind" not in logged.done.stdout


def test_the_runs_are_those_of_sqlite(logged: Logged) -> None:
    live, again, plain = (everything(uri) for uri in (logged.live, logged.again, logged.sqlite))
    assert len(plain) == TRIALS + 1
    trial = next(run for name, run in plain.items() if name != "parent")
    assert trial["status"] == "FINISHED"
    assert len(trial["metrics"]["train/loss"]) == 4
    assert trial["files"] == ["result.json"]
    assert plain["parent"]["files"] == ["report"]
    assert live == plain
    assert again == plain


def test_artifacts_are_in_the_storage(logged: Logged, root: Path) -> None:
    assert len(list((logged.storage / "mlartifacts").glob("*/artifacts/result.json"))) == 3 * TRIALS
    assert not (root / "mlruns").exists()


def test_the_heads_server_keeps_its_runs_there(
    logged: Logged, make_database: Callable[[str], str], run_module: RunModule, root: Path, tmp_path: Path
) -> None:
    """clusters/mlflow.sh in front of PostgreSQL: on the loopback address alone, and started once."""
    port, backend = free_port(), make_database("behind")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "MLFLOW_BACKEND": backend, "MLFLOW_PLACE": str(tmp_path), "MLFLOW_PORT": str(port)}
    script = ["bash", str(root / "clusters" / "mlflow.sh")]
    try:
        for _ in range(2):  # the second finds it running
            subprocess.run(script, env={"HOME": str(tmp_path)} | env, check=True, timeout=250)
        assert listening(port) == {"127.0.0.1"}
        sync = ("platform.tracking", "sync", "tofu_tiny", "--storage", logged.storage)
        done = run_module(*sync, timeout=200, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}")
        assert done.returncode == 0, done.stderr
        assert everything(f"http://127.0.0.1:{port}") == everything(logged.sqlite)
    finally:
        stop(tmp_path)


def listening(port: int) -> set[str]:
    import psutil

    heard = (tuple(each.laddr) for each in psutil.net_connections("tcp") if each.status == "LISTEN")
    found: list[tuple[Any, ...]] = list(heard)
    return {address[0] for address in found if address[1] == port}


def stop(place: Path) -> None:
    """End the server that was started in this folder, and what it started."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ended meanwhile, or is another's
            if process.cwd() == str(place):
                process.kill()
