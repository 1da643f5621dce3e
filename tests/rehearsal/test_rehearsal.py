"""The rehearsals of clusters on three pretend hosts (tests/rehearsal), and what can be known of them without one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.rehearsal import lab, rehearse, rehearse_slurm


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
