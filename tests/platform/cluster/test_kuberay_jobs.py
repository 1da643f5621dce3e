"""The life of a sweep's RayJob, by kubectl's own program against an API server on loopback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import platform.status as status
import platform.sweep.__main__ as sweep
from platform.cluster import kuberay
from tests.support import starts
from tests.support.cluster_files import changed
from tests.support.kubernetes_server import Kubernetes, serve, write_kubeconfig
from tests.support.ports import free_port
from tests.support.rayjob_files import fill_rayjob
from tests.support.starts import invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS, SERVER

signals = starts.signals
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="needs kubectl (Debian's package kubernetes-client)"
)
Start = Callable[..., tuple[int, str, str]]
SUBMITTED = """\
Waiting for Ray Dashboard GCS to become healthy at http://127.0.0.1:8265 ...
2026-11-23 10:00:00,123\tINFO cli.py:36 -- Job submission server address: http://127.0.0.1:8265
2026-11-23 10:00:01,123\tSUCC cli.py:66 -- Job 'some-id' submitted successfully
2026-11-23 10:00:01,123\tINFO cli.py:352 -- Tailing logs until the job exits (disable with --no-wait):
2026-11-23 10:00:02,123\tINFO job_manager.py:568 -- Runtime env is setting up.
Running entrypoint for job some-id: python -m platform.sweep quickstart
storage s3://bucket/runs
"""
ENDED = """\
report: /cache/storages/1f/reports/quickstart-01/index.html
2026-11-23 10:00:09,123\tSUCC cli.py:67 -- Job 'some-id' succeeded
"""
FAILED = """\
error: --models: no such folder
2026-11-23 10:00:09,123\tERR cli.py:75 -- Job 'some-id' failed
2026-11-23 10:00:09,123\tINFO cli.py:89 -- Status message: Job entrypoint command failed with exit code {code}, last
error: --models: no such folder
"""


class Operator:
    """Stands for KubeRay: a head's pod for each job, whose log gets on each time that it has been read to its end."""

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster, self.ends, self.lines = cluster, [], 0
        cluster.on_create, cluster.on_log_end = self.create, self.end_log

    @property
    def job(self) -> dict[str, Any]:
        (job,) = self.cluster.objects["rayjobs"].values()
        return job

    def create(self, kind: str, item: dict[str, Any]) -> None:
        if kind == "rayjobs":
            self.start(item, "first")

    def start(self, job: dict[str, Any], name: str, **state: Any) -> None:
        """Make log, pod and status, in this order: the command may ask meanwhile. Each pod's clock begins anew."""
        self.lines = 0
        self.cluster.logs[f"{name}-head"] = ""
        self.write(f"{name}-head", SUBMITTED)
        labels = {"ray.io/cluster": name, "ray.io/node-type": "head"}
        containers = [{"name": "ray-job-submitter", "state": state or {"running": {}}}]
        metadata = {"name": f"{name}-head", "namespace": "default", "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        self.cluster.objects["pods"][f"{name}-head"] = pod | {"status": {"containerStatuses": containers}}
        job["status"] = {"jobDeploymentStatus": "Running", "rayClusterName": name}

    def write(self, pod: str, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self.lines += 1
            self.cluster.logs[pod] += f"2026-11-23T10:00:00.{self.lines:09}Z {line}"

    def interrupt_next(self, pod: str) -> None:
        """Send Ctrl-C as soon as the command asks for its job again: it has shown the log by then."""

        def interrupt(kind: str) -> None:
            self.cluster.on_get = lambda kind: None
            os.kill(os.getpid(), signal.SIGINT)

        self.cluster.on_get = interrupt

    def end_log(self, pod: str) -> None:
        if self.ends:
            self.ends.pop(0)(pod)

    def finish(self, pod: str, text: str = ENDED, **state: Any) -> None:
        self.write(pod, text)
        self.job["status"] |= state or {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}


@pytest.fixture
def operator(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setattr(kuberay, "POLL_SECONDS", 0.01)
    monkeypatch.setenv("KUBECONFIG", str(home / "config"))
    for name, value in {**SECRETS, "MLFLOW_TRACKING_URI": SERVER}.items():
        monkeypatch.setenv(name, value)
    (home / "bin").mkdir()
    typed = f'#!/bin/sh\necho "$*" >> {home}/typed\nexec {shutil.which("kubectl")} "$@"\n'
    (home / "bin" / "kubectl").write_text(typed)
    (home / "bin" / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    cluster = Kubernetes()
    with serve(cluster) as address:
        write_kubeconfig(home / "config", address)
        yield Operator(cluster)
    known = json.dumps([cluster.objects, cluster.asked, cluster.sent]) + (home / "typed").read_text()
    assert not [secret for secret in HIDDEN if secret in known]


@pytest.fixture
def file(root: Path, tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(fill_rayjob((root / "clusters" / "kuberay.yaml").read_text()))
    return tmp_path / "job.yaml"


@pytest.fixture
def start(file: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    def run(*typed: str, main: Any = sweep.main) -> tuple[int, str, str]:
        words = [*typed, "--cluster", str(file)]
        monkeypatch.setattr(sys, "argv", ["sweep", *words])
        done = invoke(main, *words)
        return done.exit_code, done.stdout, done.stderr

    return run


@needs_kubectl
def test_a_sweep_goes_on_without_the_laptop_and_is_found_again(operator: Operator, start: Start, file: Path) -> None:
    """As by `ray up`; a log that breaks off is taken up where it was."""
    operator.ends = [operator.interrupt_next]
    status, out, err = start("quickstart", "--seeds", "0,1", "--set", "training.lr=log(1e-6..1e-4)")
    name = operator.job["metadata"]["name"]
    again = f"python -m platform.sweep quickstart --seeds 0,1 --set 'training.lr=log(1e-6..1e-4)' --cluster {file}"
    assert (status, out) == (130, "storage s3://bucket/runs\n")
    assert err == (
        f"submitted {name}\n\ndetached; {name} goes on. See it again: {again}\nstop it: kubectl delete rayjob {name}\n"
    )
    typed = "python -m platform.sweep quickstart --seeds 0,1 --set 'training.lr=log(1e-6..1e-4)' --resume"
    assert operator.job["spec"]["entrypoint"] == typed
    assert name.startswith("quickstart-2")
    assert operator.job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["workingDir"]

    status, _, err = start("quickstart", "--seeds", "5")
    assert status == 2
    assert f"{name} runs quickstart with other arguments; attach to it with: {again}" in err

    operator.ends = [lambda pod: operator.write(pod, "halfway\n"), operator.finish]
    status, out, err = start("quickstart", "--seeds", "0,1", "--set", "training.lr=log(1e-6..1e-4)", "--resume")
    assert (status, out) == (0, "storage s3://bucket/runs\nhalfway\n" + ENDED.splitlines(keepends=True)[0])
    assert err == (
        f"attached to {name}, which runs already; its log from the beginning:\n"
        "the report is in s3://bucket/runs/reports/quickstart-01\n"
    )


@needs_kubectl
@pytest.mark.parametrize(("code", "status"), [(1, 1), (2, 2), (3, 3), (137, 0)])
def test_a_sweep_that_ended_by_itself_is_not_run_again(
    operator: Operator, start: Start, code: int, status: int
) -> None:
    """Its head stays for the file's ten minutes. A driver that was killed is run again, on another head."""
    operator.cluster.on_patch = lambda job: job["status"].update(jobDeploymentStatus="Failed")
    operator.ends = [lambda pod: operator.write(pod, FAILED.format(code=code))]
    if code > 3:
        operator.ends += [lambda pod: operator.start(operator.job, "second"), operator.finish]
    found, out, err = start("quickstart")
    assert (found, out.count("error: --models: no such folder\n")) == (status, 1)
    assert operator.job["spec"]["backoffLimit"] == (0 if code < 4 else 3), err
    assert [one for one in operator.cluster.asked if one[0] == "DELETE"] == []
    assert out.count("storage s3://bucket/runs\n") == (1 if code < 4 else 2)


@needs_kubectl
@pytest.mark.parametrize("options", [["--new"], ["--retry-failed", "--resume"]], ids="_".join)
def test_what_a_job_waits_for_is_told_and_a_failed_one_says_why(
    operator: Operator, start: Start, options: list[str]
) -> None:
    """No retry sets aside anew what the try before it has done."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    rounds = iter(range(100))

    def go_on(kind: str) -> None:
        if kind == "rayjobs" and next(rounds) == 5:
            reason = {"reason": "PreRunningDeadlineExceeded", "message": "has passed"}
            operator.job["status"] |= {"jobDeploymentStatus": "Failed", **reason}

    def create(kind: str, item: dict[str, Any]) -> None:
        operator.start(item, "first", **waiting)
        item["status"]["jobDeploymentStatus"] = "Initializing"

    operator.cluster.on_create, operator.cluster.on_get = create, go_on
    status, out, err = start("quickstart", *options)
    name = operator.job["metadata"]["name"]
    assert (status, out) == (1, "")
    assert err == (
        f"submitted {name}\n{name}: Initializing; ImagePullBackOff no such image\n"
        f"{name} failed: PreRunningDeadlineExceeded: has passed\n"
    )
    assert operator.job["spec"]["entrypoint"] == shlex.join(["python", "-m", "platform.sweep", "quickstart", *options])
    assert operator.job["spec"]["backoffLimit"] == 0


@needs_kubectl
@pytest.mark.parametrize(
    ("main", "module", "more"),
    [(status.main, "platform.status", "--json"), (sweep.main, "platform.sweep", "--dry-run")],
)
def test_short_commands_run_in_a_pod_without_ray(
    operator: Operator, start: Start, capfd: pytest.CaptureFixture[str], main: Any, module: str, more: str
) -> None:
    pods: list[dict[str, Any]] = []

    def create(kind: str, item: dict[str, Any]) -> None:
        pods.append(item)
        item["metadata"]["namespace"] = "default"
        ended = {"name": "ray-head", "state": {"terminated": {"exitCode": 3}}}
        item["status"] = {"phase": "Failed", "containerStatuses": [ended]}
        operator.cluster.logs[item["metadata"]["name"]] = "{}\n"

    operator.cluster.on_create = create
    assert start("quickstart", more, main=main)[0] == 3
    assert capfd.readouterr().out == "{}\n"
    (container,) = pods[0]["spec"]["containers"]
    assert container["command"] == ["python", "-m", module, "quickstart", more]
    assert not container.get("resources")
    assert (container["envFrom"][0]["secretRef"]["name"], operator.cluster.objects["pods"]) == ("unlearning", {})


@needs_kubectl
@pytest.mark.parametrize(("main", "more"), [(status.main, "--json"), (sweep.main, "--dry-run")])
def test_short_commands_say_that_no_cluster_is_reached(
    start: Start, home: Path, monkeypatch: pytest.MonkeyPatch, main: Any, more: str
) -> None:
    write_kubeconfig(home / "config", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("KUBECONFIG", str(home / "config"))
    found, out, err = start("quickstart", more, main=main)
    assert (found, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: --cluster: kubectl does not reach the cluster: The connection to the server 127.")
    assert err.endswith("; try `kubectl get pods`, choose a context with `kubectl config use-context`\n")


@needs_kubectl
def test_what_is_wrong_is_said_at_once(
    operator: Operator, start: Start, file: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.cluster.refused = {"POST rayjobs": "rayjobs is forbidden: you may not create it"}
    status, _, err = start("quickstart")
    assert (status, "--cluster: the job server refused: Error from server (Forbidden)" in err) == (2, True)
    assert "--set=target=*** holds a password or token" in start("own", f"--set=target={SECRETS['HF_TOKEN']}")[2]
    monkeypatch.setenv("PATH", "")
    assert "no kubectl here; install it, and let it reach the cluster" in start("quickstart")[2]
    text = changed(file.read_text(), "version: v2", "version: v1")
    file.write_text(changed(text, "value: s3://bucket/runs", "value: FILL IN"))
    assert "still to be filled in (value: FILL IN); and 1 more: python -m platform.cluster check" in start("arena")[2]
    assert [one for one in operator.cluster.asked if one[0] == "DELETE"] == []
