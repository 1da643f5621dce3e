"""MLflow's runs in a PostgreSQL server of the test's own: the same as in SQLite."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from platform.tracking import __main__ as command
from tests.support.ports import free_port
from tests.support.tracked_store import all_runs, series, write_store
from trainables.storage.folder_storage import Storage

pytestmark = pytest.mark.slow
PASSWORD = "for-this-test-alone"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server on a port and folder of its own; yields its address without a database."""
    psycopg = pytest.importorskip("psycopg", reason="no psycopg: make setup installs it")
    places = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    initdb, who = next((Path(place).resolve() for place in places if place), None), {}
    if initdb is None:
        pytest.skip("no PostgreSQL here: initdb is neither on the PATH nor in /usr/lib/postgresql (Debian: postgresql)")
    if os.geteuid() == 0:  # PostgreSQL refuses root
        try:
            who = {"user": "postgres", "group": pwd.getpwnam("postgres").pw_gid, "extra_groups": []}
        except KeyError:
            pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        (place / "password").write_text(PASSWORD)
        for path in (place, place / "password") if who else ():
            shutil.chown(path, who["user"], who["group"])
        data = place / "data"
        rules = ["--auth=scram-sha-256", f"--pwfile={place / 'password'}", "--username=tester", "--encoding=UTF8"]
        subprocess.run([initdb, "-D", data, "--no-sync", *rules], check=True, capture_output=True, cwd=place, **who)
        port = free_port()
        settings = ["-p", str(port), "-h", "127.0.0.1", "-k", place, "-F"]
        command = [initdb.with_name("postgres"), "-D", data, *settings]
        with (
            (place / "log").open("w") as log,
            subprocess.Popen(command, stdout=log, stderr=log, cwd=place, **who) as child,
        ):
            uri = f"postgresql://tester:{PASSWORD}@127.0.0.1:{port}"
            try:
                _wait(lambda: psycopg.connect(f"{uri}/postgres").close(), psycopg.OperationalError, place / "log")
                yield uri
            finally:
                child.send_signal(signal.SIGINT)
                child.wait(60)


def _wait(connect: Callable[[], None], refused: type[Exception], log: Path) -> None:
    for _ in range(120):
        try:
            return connect()
        except refused:
            time.sleep(0.5)
    pytest.fail(f"PostgreSQL did not start: {log.read_text()[-2000:]}")


def describe_runs(uri: str) -> dict[str, Any]:
    """Return status, parameters and every point of every series of all runs of the sweep, by trial."""
    from mlflow import MlflowClient

    client, found = MlflowClient(tracking_uri=uri), {}
    for run in all_runs(client):
        metrics = {name: sorted(series(client, run, name)) for name in run.data.metrics}
        found[run.data.tags.get("trial_id", "parent")] = (run.info.status, run.data.params, metrics)
    return found


def test_the_runs_are_those_of_sqlite_and_their_files_in_the_storage(
    server: str, tracked: Storage, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by the command, which tells no password."""
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
        session.execute("CREATE DATABASE mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{server}/mlflow")
    store = write_store(tmp_path / "store")
    app = typer.Typer()
    app.command()(command.main)
    done = CliRunner().invoke(app, ["sync", "tiny", "--storage", str(store.root)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("4 trials in postgresql://***@127.0.0.1")
    runs = describe_runs(f"{server}/mlflow")
    assert len(runs) == 5
    assert runs == describe_runs(f"sqlite:///{tracked.root / 'mlflow.db'}")
    assert len(list((store.root / "mlartifacts").glob("*/artifacts/result.json"))) == 4
    assert not (store.root / "mlflow.db").exists()
    assert not (root / "mlruns").exists()
