"""A sweep as a RayJob: what kubectl is given, and what is said of following and stopping it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import platform.sweep.__main__ as sweep
from tests.support import starts
from tests.support.cluster_files import changed
from tests.support.starts import invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS

signals = starts.signals
Start = Callable[..., Any]


@pytest.fixture
def start(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return `start(*typed)`: a sweep by clusters/kuberay.yaml, with a kubectl that keeps what it is given."""
    text = (root / "clusters" / "kuberay.yaml").read_text()
    text = changed(changed(text, "image: FILL IN", "image: registry.test/unlearning:1"), "FILL IN", "s3://bucket/runs")
    (tmp_path / "job.yaml").write_text(changed(text, "  name: unlearning\n", "  name: unlearning\n  namespace: team\n"))
    script = f'#!/bin/sh\necho "$*" > {tmp_path}/typed\ncat > {tmp_path}/job.json\necho rayjob.ray.io/quickstart-x1\n'
    (tmp_path / "kubectl").write_text(script)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    def run(*typed: str) -> Any:
        words = [*typed, "--cluster", str(tmp_path / "job.yaml")]
        monkeypatch.setattr(sys, "argv", ["sweep", *words])
        return invoke(sweep.main, *words)

    return run


@pytest.mark.parametrize(
    ("typed", "entrypoint", "tries"),
    [
        ("--set training.lr=log(1e-6..1e-4)", "--set 'training.lr=log(1e-6..1e-4)' --resume", 3),
        ("--resume", "--resume", 3),
        ("--new", "--new", 0),
    ],
)
def test_a_sweep_is_a_rayjob_that_may_be_tried_again(
    start: Start, tmp_path: Path, typed: str, entrypoint: str, tries: int
) -> None:
    done = start("quickstart", *typed.split())
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "typed").read_text() == "--namespace team create --filename=- --output=name\n"
    sent = (tmp_path / "job.json").read_text()
    job = json.loads(sent)
    assert job["metadata"] == {"generateName": "quickstart-", "namespace": "team"}
    assert job["spec"]["entrypoint"] == f"python -m platform.sweep quickstart {entrypoint}"
    assert job["spec"]["backoffLimit"] == tries
    lines = done.stdout.splitlines()
    assert lines[0] == "submitted rayjob.ray.io/quickstart-x1, which goes on without this machine"
    assert "logs --follow --tail=-1 --container ray-job-submitter --selector ray.io/node-type=head," in lines[2]
    assert lines[3] == "stop it:   kubectl --namespace team delete rayjob.ray.io/quickstart-x1"
    assert not [secret for secret in HIDDEN if secret in sent]


def test_what_cannot_be_used_is_not_sent(start: Start, tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho 'error: no such host' >&2\nexit 1\n")
    done = start("quickstart")
    assert (done.exit_code, done.stderr) == (2, "error: --cluster: kubectl: error: no such host\n")
    (tmp_path / "job.yaml").write_text(changed((tmp_path / "job.yaml").read_text(), "mode: token", "mode: disabled"))
    done = start("quickstart")
    assert done.exit_code == 2
    assert "authOptions.mode: not token" in done.stderr
    assert f"all that is to mend: python -m platform.cluster check {tmp_path}/job.yaml\n" in done.stderr
