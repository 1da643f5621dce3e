"""What clusters/slurm.sh does on one node and, with stand-ins for Slurm and Ray, on two."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainables.common.test_secrets import HIDDEN, SECRETS, files_with_secrets


def test_a_job_of_one_node_runs_the_command_itself_and_ends_as_it_does(root: Path) -> None:
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_NUM_NODES": "1", "RAY_ADDRESS": "auto", "RAY_AUTH_TOKEN": "mine"}
    told = 'echo "${RAY_ADDRESS-own}${RAY_AUTH_TOKEN-} $1"; exit 5'
    command = ["bash", "clusters/slurm.sh", "bash", "-c", told, "x", "a  b"]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "own a  b\n", "")


FAKES = {  # of a job of two nodes, which are this machine
    "scontrol": "printf 'one\\ntwo\\n'",
    "srun": 'echo "srun $*" >> "$CALLS"; while [[ $1 == --* ]]; do shift; done; '
    '[ "$1" = getent ] && echo 10.77.0.10 || exec "$@"',
    "ray": 'echo "$*" >> "$CALLS"; [ "$1" != symmetric-run ] && exit; '
    'while [ "$1" != -- ]; do shift; done; "${@:2}"; exit 0',
}


@pytest.fixture
def job(root: Path, tmp_path: Path) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Return `run(command)`: a job of two nodes whose command is of bash; exit status, what it called and said."""
    for name, words in FAKES.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{words}\n")
        (tmp_path / name).chmod(0o755)
    number, calls = f"90{os.getpid()}", tmp_path / "calls"
    env = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "CALLS": str(calls)}
    env |= {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "one,two", "SLURM_JOB_ID": number}
    env |= {"SLURM_CPUS_PER_TASK": "1", "KEPT": str(tmp_path / "kept"), **SECRETS}

    def run(command: str) -> tuple[int, str]:
        words = ["bash", "clusters/slurm.sh", "bash", "-c", command]
        done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=False)
        assert not Path(f"/tmp/ray-{number}").exists()
        return done.returncode, calls.read_text() + done.stdout + done.stderr

    yield run
    shutil.rmtree(f"/tmp/ray-{number}", ignore_errors=True)


@pytest.mark.parametrize(
    ("command", "status", "starts"),
    [
        ("exit 5", 5, 1),
        ('[ "${RAY_AUTH_TOKEN-none}" = none ]', 0, 1),
        ("kill -TERM $PPID", 143, 1),  # as `scancel --signal=TERM`, or a preemption, to all that the step runs
        ("not run", 1, 3),
    ],
)
def test_a_job_of_two_nodes_starts_the_command_once(
    job: Callable[[str], tuple[int, str]], tmp_path: Path, command: str, status: int, starts: int
) -> None:
    """Its status is the command's own; only where Ray has not started there is another try."""
    if command == "not run":
        (tmp_path / "ray").write_text('#!/bin/bash\necho "$*" >> "$CALLS"\n')
    found, output = job(command)
    assert (found, output.count("\nsymmetric-run --address 10.77.0.10:")) == (status, starts), output


def test_a_job_names_and_writes_no_secret_of_the_shell_that_it_was_submitted_from(
    job: Callable[[str], tuple[int, str]], tmp_path: Path
) -> None:
    """The command has them, but for a token of another Ray."""
    told = 'cp -r "$RAY_TMPDIR" "$KEPT"; for name in HF_TOKEN RAY_AUTH_TOKEN; do [ -v $name ] && echo "has $name"; done'
    status, output = job(f"{told}; exit 3")
    assert (status, "srun --nodes=2" in output, output.count("\nhas ")) == (3, True, 1), output
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"token", "status"}
    assert not [secret for secret in HIDDEN if secret in output]
    assert files_with_secrets(tmp_path / "kept") == []
