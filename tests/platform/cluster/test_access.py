"""Who reaches the head of a cluster: a real `ray start`, and a real MLflow server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from platform.cluster.check import load_cluster_file
from platform.schedule.ray_environment import make_token
from tests.support import other_user
from tests.support.environment import clean_environment
from tests.support.ports import free_port

pytestmark = pytest.mark.slow


def end(process: subprocess.Popen[str]) -> None:
    found = [process, *psutil.Process(process.pid).children(recursive=True)]
    for one in found:
        one.kill()
    process.wait()


@pytest.fixture
def clean(root: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return clean_environment(RAY_USAGE_STATS_ENABLED="0", PATH=path)


@pytest.fixture
def head(root: Path, home: Path, clean: dict[str, str]) -> Iterator[str]:
    """Return the address of a head that the file's own command has started, but for its size and ports."""
    make_token()
    port, place = free_port(), tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets have short paths
    content = load_cluster_file(str(root / "clusters" / "onprem.yaml")).content
    start = content["head_start_ray_commands"][1].partition(" --autoscaling")[0]
    small = f"--num-cpus=0 --dashboard-port={free_port()} --dashboard-agent-listen-port={free_port()}"
    small += f" --object-store-memory=100000000 --temp-dir={place} --block"
    command = re.sub("--port=6379", f"--port={port} --node-ip-address=127.0.0.1 {small}", start)
    command = f"exec env {command.rpartition('; ')[2]} --ray-client-server-port={free_port()}"
    process = subprocess.Popen(["bash", "-c", command], env=clean, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ray runtime started" in line:
                break
        yield f"127.0.0.1:{port}"
    finally:
        end(process)
        shutil.rmtree(place, ignore_errors=True)


def test_who_has_not_the_token_is_refused(head: str, home: Path, clean: dict[str, str], tmp_path: Path) -> None:
    def ask(place: Path, mode: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", head]
        env = clean | {"HOME": str(place), "RAY_AUTH_MODE": mode}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert ask(home, "token").returncode == 0
    assert ask(tmp_path, "disabled").returncode != 0
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    refused = ask(tmp_path, "token")
    assert refused.returncode != 0
    assert "nauthenticated" in refused.stderr + refused.stdout


def test_no_port_lets_anybody_in_who_has_not_the_token(head: str) -> None:
    """The dashboard, the autoscaler and each node's agent would serve metrics to all."""
    ray = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ports = {one.laddr.port for process in ray for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
    assert len(ports) > 4
    answers = other_user.ask_all([f"127.0.0.1:{port}" for port in sorted(ports)])
    found = other_user.find_breaches({"read": [], "answers": answers})
    assert [line for line in found if not line.startswith("not asked")] == []


def find_processes(place: Path) -> list[psutil.Process]:
    running = psutil.process_iter(["cmdline"])
    return [one for one in running if str(place) in " ".join(one.info["cmdline"] or ())]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a server, which ends with the test."""
    yield tmp_path / "mlflow"
    while found := find_processes(tmp_path / "mlflow"):  # the server starts its worker anew, too
        for process in found:
            process.kill()
        psutil.wait_procs(found, 5)


def test_mlflow_listens_at_a_socket_that_only_its_user_reaches(root: Path, clean: dict[str, str], place: Path) -> None:
    env = clean | {"MLFLOW_PLACE": str(place), "MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db"}
    subprocess.run(["bash", str(root / "clusters" / "mlflow.sh")], env=env, timeout=200, check=True)
    found = find_processes(place)
    assert place.stat().st_mode & 0o777 == 0o700
    assert found
    assert not [one for process in found for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
    command = ["curl", "-sf", "--unix-socket", str(place / "socket"), "http://127.0.0.1/health"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "OK"
