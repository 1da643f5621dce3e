"""Cluster files that would be rented in vain, and those that work although they are written otherwise than ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from platform.cluster import checks, file
from tests.support.cluster_files import changed, fill

A100 = "available_node_types.a100"
NODE = f"{A100}.node_config"
HEAD_SETUP = re.compile(r"(?<=^head_setup_commands:)\n(  - .*\n)+", re.M)
WORKER_START = re.compile(r"  - unset .*RAY_HEAD_IP.*\n")
NO_START = "worker_start_ray_commands: none of them is `ray start`, no worker would join; add: ray start --address="
UNABLE = [  # what would be rented and could not work: each is one line
    (HEAD_SETUP, " []\n", "head_setup_commands: none of them sets UNLEARN_STORAGE, results would stay on the head"),
    ("--port=6379", "--port=6380", "worker_start_ray_commands[1]: looks for the head at port 6379, it listens at 6380"),
    (" --port=6379", " --port 6380", "worker_start_ray_commands[1]: looks for the head at port 6379, it listens at 63"),
    (":6379", ":6380", "worker_start_ray_commands[1]: looks for the head at port 6380, it listens at 6379"),
    (WORKER_START, "", NO_START),
    (
        "file_mounts:\n  ~/unlearning: .\n",
        "",
        "file_mounts: puts nothing at ~/unlearning, where setup_commands[2]",
    ),
    (
        "  ~/unlearning: .",
        "  ~/other: .",
        "file_mounts: puts nothing at ~/unlearning, where setup_commands[2]",
    ),
    (
        "  - cd ~/unlearning && make setup\n",
        "",
        "setup_commands: none of them makes the .venv that setup_commands",
    ),
    ("s3://bucket/runs", "s3://", "provider.storage: 's3://' names no bucket; write it like s3://BUCKET/FOLDER"),
    ("s3://bucket/runs", "s4://bucket/x", "provider.storage: unknown scheme 's4' in 's4://bucket/x'; write it like s3"),
    ("s3://bucket/runs", "s3://key:word@bucket/x", "provider.storage: the address holds a user name or password"),
    ("m7i.2xlarge", "m7g.2xlarge", "head.node_config.ImageId: an image for amd64, but m7g.2xlarge is arm64; change"),
    ("p4de.24xlarge", "g5g.16xlarge", f"{NODE}.ImageId: an image for x86_64, but g5g.16xlarge is arm64; change one"),
    ("/amd64/", "/arm64/", "head.node_config.ImageId: an image for arm64, but m7i.2xlarge is amd64; change one"),
    ("    max_workers: 4", "    max_workers: 0", f"{A100}.max_workers: 0; no worker would ever start"),
    ("\nmax_workers: 4", "\nmax_workers: 0", "max_workers: 0; no worker would ever start"),
    (
        "backend: sqlite ",
        "backend: postgresql://h/db?user=u&password=word ",
        "provider.mlflow_backend: holds a password",
    ),
    ("backend: sqlite ", "backend: postgresql://me:a/b@h/db ", "provider.mlflow_backend: holds a password; leave it"),
]


@pytest.mark.parametrize(("old", "new", "told"), UNABLE)
def test_what_ray_would_rent_in_vain(
    shipped: str, problems: Callable[[str], list[str]], old: str | re.Pattern[str], new: str, told: str
) -> None:
    text = changed(fill(shipped), *(old, new)) if isinstance(old, str) else old.sub(new, fill(shipped))
    text = text.replace("GPU: 8", "GPU: 2").replace("CPU: 96", "CPU: 64") if "g5g" in new else text
    (problem,) = problems(text)
    assert told in problem


ABLE = [  # what Ray takes and works
    ("~/unlearning: .", "/home/ubuntu/unlearning: ."),
    ("  - cd ~/unlearning && make setup\n", "  - make -C ~/unlearning setup PYTHON=python3.12\n"),
    ("  - cd ~/unlearning && make setup\n", "  - ln -sfn /efs/venv ~/unlearning/.venv\n"),
    ("file_mounts:\n  ~/unlearning: .\n", "initialization_commands: ['git clone https://host/unlearning.git']\n"),
    ("us-east-1  ", "us-gov-west-1"),
    ("us-east-1  ", "cn-north-1"),
    ("203.0.113.7/32", "203.0.113.7"),
    ("203.0.113.7/32", "2001:db8::/32"),
    ("s3://bucket/runs", "gs://bucket/runs"),
    ("backend: sqlite ", "backend: postgresql://me@host/mlflow "),
    ("    max_workers: 4", "    max_workers: 10"),
    ("\nmax_workers: 4", "\nmax_workers: 2"),
    ("\nmax_workers: 4", ""),
]


@pytest.mark.parametrize(("old", "new"), ABLE)
def test_what_works_can_be_used(shipped: str, problems: Callable[[str], list[str]], old: str, new: str) -> None:
    assert problems(changed(fill(shipped, region="us-east-1  "), old, new)) == []


def test_a_head_command_of_several_lines(shipped: str, problems: Callable[[str], list[str]]) -> None:
    folded = re.compile(r"  - >-\n    unset (.*)ray start --head (.*)\n")
    text, count = folded.subn(r"  - |\n    unset \1ray start \\\n      --head \2 \\\n", fill(shipped))
    assert count == 1
    assert problems(text) == []


@pytest.mark.parametrize("name", ["onprem", "rehearsal"])
def test_the_files_for_own_machines_lack_no_step(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from platform.cluster import shell

    monkeypatch.chdir(root)
    assert list(shell.problems(file.read(f"clusters/{name}.yaml"))) == []


def test_numbers_of_workers_that_ray_lowers_are_noted(shipped: str, tmp_path: Path) -> None:
    from ray.autoscaler._private.util import prepare_config

    path = tmp_path / "cluster.yaml"

    def noted(old: str, new: str) -> str:
        path.write_text(changed(fill(shipped), old, new))
        return "\n".join(checks.notes(file.read(str(path))))

    told = noted("    max_workers: 4", "    max_workers: 10")
    assert f"{A100}.max_workers: 10 is more than the file's max_workers of 4, which is the one that counts" in told
    told = noted("\nmax_workers: 4", "")
    assert "max_workers: missing; Ray starts 2 workers at most, although the node types have 4; write max_" in told
    assert prepare_config(yaml.safe_load(path.read_text()))["max_workers"] == checks.RAYS_MOST
    assert "max_workers" not in noted("cluster_name", "cluster_name")
