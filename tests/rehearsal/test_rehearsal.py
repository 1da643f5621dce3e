"""The rehearsals of clusters on three pretend hosts (tests/rehearsal), and what can be known of them without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from platform.cluster.check import find_problems, load_cluster_file
from tests.rehearsal import lab, rehearse, rehearse_slurm
from tests.support import pages


@pytest.mark.rehearsal
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "tools"), [("rehearse", lab.SSH), ("rehearse_slurm", rehearse_slurm.TOOLS)], ids=["ray up", "Slurm"]
)
def test_a_cluster_from_its_start_to_its_end(root: Path, shared: Path, name: str, tools: str) -> None:
    lacking = lab.missing(tools)
    if lacking:
        pytest.skip(lacking)
    command = [sys.executable, "-m", f"tests.rehearsal.{name}", "--shared", str(shared)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all held" in done.stdout


@pytest.mark.parametrize("make_lab", [lab.Lab, rehearse_slurm.make_lab])
def test_a_rehearsal_that_cannot_be_done_says_what_it_needs_and_does_not_pass(
    make_lab: Callable[[Path], lab.Lab],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where namespaces or tools are missing, that is said instead of the missing data."""
    monkeypatch.setattr("sys.argv", ["rehearse", "--shared", str(tmp_path)])
    assert rehearse.main(make_lab) == 2
    said = capsys.readouterr()
    assert said.out.startswith("this needs Linux, root, s")
    assert said.err.startswith("NOT DONE: no rehearsal here, missing: ")


def test_the_rehearsal_runs_what_the_file_for_own_machines_says(root: Path) -> None:
    """The two files differ in what a person fills in, in the .venv and in the size of a host, and in nothing else."""
    own, ours = (yaml.safe_load((root / "clusters" / f"{name}.yaml").read_text()) for name in ("onprem", "rehearsal"))
    assert own.keys() == ours.keys()
    for name in own.keys() - {"cluster_name", "provider", "auth", "setup_commands"}:
        given = ours[name]
        if name.endswith("start_ray_commands"):
            given = [line.replace(" --num-cpus=1 --object-store-memory=200000000", "") for line in given]
        assert given == own[name], name
    assert ours["setup_commands"][1:] == own["setup_commands"][1:]
    assert own["setup_commands"][0] == "cd ~/unlearning && make setup"


def test_the_file_for_own_machines_lacks_only_what_a_person_fills_in(root: Path) -> None:
    path = root / "clusters" / "onprem.yaml"
    places = {problem.partition(":")[0] for problem in find_problems(load_cluster_file(str(path)))}
    lines = path.read_text().splitlines()
    fields = {lines[int(place.split()[1]) - 1].split(":")[0].strip() for place in places}
    assert fields == {"head_ip", "worker_ips", "storage", "ssh_user"}


ELSEWHERE = {
    "python -m platform.cluster account cluster.yaml": "AWS alone has accounts: tests/platform/cluster",
    "make rehearsal": "is the rehearsal itself",
    "make rehearsal-slurm": "is the rehearsal itself",
    'make rehearsal ARGS="--shared DIR"': "is the rehearsal itself",
    "make setup": "has made the .venv that the hosts share",
    "hf auth login": "asks for a person's token",
    "docker build -t REGISTRY/unlearning:TAG .": "test_image",
    "docker push REGISTRY/unlearning:TAG": "the engine's own",
    "kubectl create secret generic unlearning --from-env-file=.env": "Kubernetes' own",
    "python -m platform.cluster check clusters/kuberay.yaml": "test_cluster_file",
    "kubectl create --dry-run=server --filename clusters/kuberay.yaml": "Kubernetes' own",
    "python -m platform.sweep tofu_llama --cluster clusters/kuberay.yaml": "test_kuberay_jobs",
    "python -m platform.status tofu_llama --storage s3://BUCKET/FOLDER": "test_s3_sweep",
    "squeue --me": "Slurm's own",
    "export UNLEARN_STORAGE=/scratch/me/unlearning": "the shell's own",
    "python -m platform.status tofu_llama": "test_stopped_trials",
    "srun --gpus=1 python -m trainables.export ID --output DIR --storage /scratch/me/unlearning": "test_export",
    "python -m trainables.export ID --output DIR --storage s3://BUCKET/FOLDER": "test_export",
}
"""Commands of those pages that no host of one's own can answer, and what runs them instead."""


def test_the_rehearsal_types_the_commands_of_the_pages(root: Path) -> None:
    """They stand in the rehearsal as in README.md and docs/cluster.md, or in the list of what runs elsewhere."""
    said = pages.cluster_commands()
    assert len(said) >= 10
    assert set(said) > set(ELSEWHERE)
    source = "".join(path.read_text(encoding="utf-8") for path in (root / "tests" / "rehearsal").glob("rehearse*.py"))
    assert [line for line in said if line not in ELSEWHERE and f'"{line}"' not in source] == []
