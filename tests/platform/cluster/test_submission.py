"""A sweep from a laptop: what is refused here, and a real head with its job server, left and found again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

import platform.status as status
import platform.sweep as sweep
from platform.cluster import connect
from tests.support import small_sweep
from tests.support.environment import INHERITED_PREFIXES
from tests.support.ports import free_port
from trainables.common import provenance

FILE = "cluster_name: some\nfile_mounts: {'~/elsewhere': /etc, '~/un learning': .}\n"
LAPTOP = """
import runpy, sys
import platform.cluster.connect as connect
connect.RAY = [sys.executable, {ray!r}]
sys.argv = ["-m", *{arguments!r}]
runpy.run_module({module!r}, run_name="__main__")
"""
RAY = """
import os, shutil, socket, sys, threading
HOME, PORT = {home!r}, {port}

def copy(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.close()

def forward(port):
    server = socket.create_server(("127.0.0.1", port))
    with open(HOME + "/forwards", "a") as stream:
        stream.write(str(os.getpid()) + "\\n")
    while True:
        near, _ = server.accept()
        try:
            far = socket.create_connection(("127.0.0.1", PORT))
        except ConnectionRefusedError:  # not up yet
            near.close()
            continue
        for pair in ((near, far), (far, near)):
            threading.Thread(target=copy, args=pair, daemon=True).start()

action, file, *rest = sys.argv[1:]
if action == "dashboard":
    forward(int(rest[rest.index("--port") + 1]))
shutil.copytree(rest[0].replace("~", HOME, 1), rest[1], dirs_exist_ok=True)
"""
"""Stands for `ray dashboard` and `ray rsync-down`, whose ssh needs a host to log in to."""


def invoke(main: Any, *arguments: object) -> Any:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# What is refused before anything is sent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    return path


def test_repository_on_the_cluster_is_the_mount_of_this_one(file: Path) -> None:
    found = connect.find_cluster(str(file))
    assert (found.repository, found.is_address) == ("~/'un learning'", False)
    stop = f"ray exec {file} 'cd ~/'\"'\"'un learning'\"'\"' && .venv/bin/ray job stop job'"
    assert found.stop_command("job") == stop
    forwarded = connect.find_cluster("http://127.0.0.1:8265/")
    assert forwarded.stop_command("job") == "ray job stop job --address http://127.0.0.1:8265"


REFUSED = [  # the cluster file's text, what is typed, what is said
    (
        None,
        "quickstart",
        "--cluster: '{file}': No such file or directory; name a cluster file, such as cluster.yaml; or",
    ),
    ("file_mounts: {a: /etc}", "quickstart", "has no line for this repository, such as ~/unlearning: ."),
    ("a: [", "quickstart", "is not YAML: while parsing"),
    (FILE, "quickstrat", "error: unknown sweep 'quickstrat'"),
    (FILE, "quickstart --address auto", "--cluster and --address exclude each other"),
    (FILE, "own --set=target=hf_of_nobody", "--cluster: --set=target=*** holds a password or token, which the"),
    (FILE, "own --storage=s3://somebody:word@bucket/x", "--cluster: --storage=s3://***@bucket/x holds a password or"),
]


@pytest.mark.parametrize(("text", "typed", "message"), REFUSED)
def test_what_is_wrong_here_is_said_before_the_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, typed: str, message: str
) -> None:
    file, command = tmp_path / "cluster.yaml", [*typed.split(), "--cluster", str(tmp_path / "cluster.yaml")]
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    monkeypatch.setattr(sys, "argv", ["sweep", *command])
    if text is not None:
        file.write_text(text)
    done = invoke(sweep.main, *command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message.format(file=file) in done.stderr


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "exit('Head node of cluster (some) not found!')",
            "cluster (some) not found!); is it up (ray up ",
        ),
        ("import time; time.sleep(60)", "), and is Ray running on its head?"),
    ],
)
def test_clusters_that_do_not_answer(script: str, message: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "RAY", [sys.executable, "-c", script])
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.1 if "sleep" in script else 60.0)
    done = invoke(sweep.main, "quickstart", "--cluster", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert not [child for child in psutil.Process().children() if script in child.cmdline()]


def test_what_does_not_answer_is_named() -> None:
    place = f"http://127.0.0.1:{free_port()}"
    assert f"no job server answers at '{place}'" in invoke(sweep.main, "quickstart", "--cluster", place).stderr
    assert "a.yaml" in invoke(status.main, "quickstart", "--cluster", "a.yaml").stderr


def test_a_report_is_fetched_from_where_the_sweep_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the repository, or below a storage elsewhere."""
    script = f"import pathlib, sys; pathlib.Path({str(tmp_path / 'typed')!r}).write_text(repr(sys.argv[1:]))"
    monkeypatch.setattr(connect, "RAY", [sys.executable, "-c", script])
    cluster = connect.Cluster("a.yaml", "~/unlearning")
    sources = {"runs/reports/some": "~/unlearning/runs/reports/some/", "/srv/a b/some": "'/srv/a b/some'/"}
    for remote, source in sources.items():
        assert connect.fetch_folder(cluster, remote, tmp_path / "some") is None
        assert (tmp_path / "typed").read_text() == repr(["rsync-down", "a.yaml", source, f"{tmp_path / 'some'}/"])


# A real head


@dataclass(frozen=True)
class Head:
    """A cluster of one node, whose home holds the repository, and the laptop that reaches it."""

    home: Path
    file: Path
    arguments: list[str]

    def command(self, module: str, *arguments: str) -> list[str]:
        typed = [*arguments, "--cluster", str(self.file)]
        script = LAPTOP.format(ray=str(self.home / "ray.py"), arguments=typed, module=f"platform.{module}")
        return [sys.executable, "-c", script]

    def open(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            self.command(module, *arguments), cwd=provenance.ROOT, env=clean() | {"HOME": str(self.home)}, **pipes
        )

    def run(self, module: str, *arguments: str) -> tuple[int, str, str]:
        child = self.open(module, *arguments)
        out, err = child.communicate(timeout=400)
        return child.returncode, out, err


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(INHERITED_PREFIXES)}


@pytest.fixture(scope="module")
def head(trial_inputs: Any) -> Iterator[Head]:
    home = Path(tempfile.mkdtemp(prefix="head-", dir="/tmp"))  # sockets have short names
    (home / "unlearning").mkdir()
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(uuid.uuid4().hex)
    for entry in provenance.ROOT.iterdir():
        if entry.name not in (".venv", "runs"):
            (home / "unlearning" / entry.name).symlink_to(entry)
    (home / "unlearning" / ".venv").symlink_to(sys.prefix)
    shutil.copytree(trial_inputs.target, home / "models" / "full")
    shutil.copytree(trial_inputs.retain, home / "models" / "retain75")
    small_sweep.cut_short(trial_inputs.data, home / "data")
    port, names = free_port(), ("--port", "--dashboard-agent-listen-port", "--ray-client-server-port")
    (home / "ray.py").write_text(RAY.format(home=str(home), port=port))
    (home / "cluster.yaml").write_text("file_mounts: {'~/unlearning': .}")
    settings = (f"benchmark.data={home / 'data'}", f"models={home / 'models'}", "benchmark.split=forget25")
    settings += ("training.max_steps=3", "training.batch_size=8", "rectifier.gamma=0.8")
    sets = [part for setting in settings for part in ("--set", setting)]
    ports = [part for name in names for part in (name, str(free_port()))]
    command = [*connect.RAY, "start", "--head", "--block", "--num-cpus=1", f"--temp-dir={home / 'ray'}", *ports]
    command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={port}", "--object-store-memory=100000000"]
    env = clean() | {"HOME": str(home), "UNLEARN_STORAGE": str(home / "runs"), "RAY_USAGE_STATS_ENABLED": "0"}
    env |= {"RAY_AUTH_MODE": "token"}
    with (home / "log").open("w") as log:
        child = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield Head(home, home / "cluster.yaml", ["tofu_tiny", *sets, "--only", "method=ga,npo"])
    finally:
        child.terminate()
        child.wait(timeout=60)
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.slow
def test_a_sweep_goes_on_without_the_laptop_and_is_found_again(head: Head) -> None:
    """It is planned there, started, left as soon as it says where its results go, and ends with its report here."""
    status, out, err = head.run("sweep", *head.arguments, "--dry-run", "--json")
    assert (status, json.loads(out)["storage"]) == (0, str(head.home / "runs")), err
    status, out, _ = head.run("sweep", "tofu_tiny", "--dry-run", "--set", "benchmark.data=/nowhere")
    assert (status, "/nowhere" in out) == (2, True)

    first = head.open("sweep", *head.arguments)
    assert first.stdout is not None
    lines = iter(first.stdout)
    assert any(line.startswith(f"storage {head.home / 'runs'}, ") for line in lines), first.communicate()
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    job = said.split("submitted ")[1].split()[0]
    assert first.returncode == 130
    assert f"detached; {job} goes on. See it again: python -m platform.sweep tofu_tiny " in said
    assert f".venv/bin/ray job stop {job}" in said
    status, out, err = head.run("sweep", "tofu_tiny", "--set", "seed=5")
    assert (status, out) == (2, "")
    assert f"{job} runs tofu_tiny with other arguments; attach to it with: python -m platform.sweep tofu_tiny " in err

    status, out, err = head.run("sweep", *head.arguments)
    assert status == 0, out + err
    assert f"attached to {job}, which runs already" in err
    assert "6 of 6 trials run in " in out
    assert out.count("sweep tofu_tiny-") == 1
    assert len(list((head.home / "runs" / "trials").glob("*/result.json"))) == 6
    named = [line.split()[-1] for line in err.splitlines() if line.startswith("fetched: ")]
    report = provenance.ROOT / named[0]
    assert "tofu_tiny" in report.read_text(encoding="utf-8")
    shutil.rmtree(report.parent)

    status, out, err = head.run("status", "tofu_tiny", "--json")
    assert (status, json.loads(out)["counts"]["done"]) == (0, 6), err
    status, out, err = head.run("status", "quickstart")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: no sweep 'quickstart' in {head.home / 'runs'}")

    forwards = (head.home / "forwards").read_text().split()
    assert len(forwards) == 7
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(int(pid)) for pid in forwards):
        assert time.monotonic() < deadline
        time.sleep(0.2)
