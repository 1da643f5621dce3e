"""What a sweep says where Ray's processes or a cluster's address do not answer, and which packages processes have."""

import os
import stat
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from platform.schedule import ray_environment
from tests.support.environment import RunModule, clean_environment, free_port
from tests.support.small_sweep import Small
from trainables.common.process_identity import identify_self
from trainables.storage import atomic_files

SITE = next(path for path in sys.path if (Path(path) / "ray" / "__init__.py").is_file())
"""Where the packages of these tests are."""
CHECK = "from platform.schedule import ray_environment as e; e.set_ray_environment(None)\n"
CHECK += "from platform.schedule import ray_session as s; s.join_or_start_ray(None); s.check_nodes_start_processes()\n"


@pytest.mark.slow
def test_packages_that_come_by_pythonpath_reach_rays_processes(tmp_path: Path, root: Path) -> None:
    """As modules of a cluster's software come: the Python that runs has no packages of its own."""
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", CHECK + "import ray; print(ray.cluster_resources()['CPU'])"],
        cwd=root,
        env=clean_environment(PYTHONPATH=SITE),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(done.stdout.splitlines()[-1]) >= 1


@pytest.mark.parametrize("port", [None, 70000], ids=["dead", "no port"])
def test_an_address_where_nothing_answers_is_refused_at_once(
    small: Small, tmp_path: Path, run_module: RunModule, port: int | None
) -> None:
    address, begun = f"127.0.0.1:{port or free_port()}", time.monotonic()
    arguments = ("tofu_tiny", *small.flags(), "--storage", tmp_path, "--address", address)
    done = run_module("platform.sweep", *arguments, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --address: no Ray cluster answers at '{address}' (")
    assert time.monotonic() - begun < 60


@pytest.mark.faults
@pytest.mark.parametrize("package", ["ray", "trainables"])
def test_processes_that_cannot_work_end_the_sweep_with_the_end_of_their_log(
    small: Small, tmp_path: Path, run_module: RunModule, package: str
) -> None:
    """A package is missing for Ray's processes of tasks alone: they do not start, or fail in their first task."""
    (tmp_path / "broken").mkdir()
    hidden = "import sys\nif any('default_worker' in word for word in sys.orig_argv):\n"
    (tmp_path / "broken" / "sitecustomize.py").write_text(f"{hidden}    sys.modules[{package!r}] = None\n")
    arguments = ("tofu_tiny", *small.flags(), "--storage", tmp_path / "runs")
    done = run_module("platform.sweep", *arguments, timeout=300, PYTHONPATH=str(tmp_path / "broken"))
    assert done.returncode == 1, done.stdout + done.stderr
    *log, resume = done.stdout.partition("Ray failed: ")[2].splitlines()
    assert done.stdout.count("waiting for Ray to start a process on ") == (package == "ray")
    assert log[0].startswith("no process started within 60 s on ")
    assert any("ModuleNotFoundError: " in line for line in log)
    assert resume.startswith("go on with: python -m platform.sweep tofu_tiny ")
    assert resume.endswith(" --resume")


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_ray_of_our_own_opens_no_port_of_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """Of the autoscaler and the dashboard, which it has although it shows none, and of its agents."""
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "DASHBOARD_METRIC_PORT": "1"}
    monkeypatch.setattr(os, "environ", environ)
    ray_environment.set_ray_environment(address)
    if not address:
        place = Path(environ["RAY_TMPDIR"])
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, "of this user alone"
        ray_environment.remove_own_ray_folder()
        assert not place.exists()
    found = {name: value for name, value in environ.items() if "metric" in name.lower()}
    found.pop("RAY_TRAIN_METRICS_ENABLED")
    own = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1"}
    assert found == {"DASHBOARD_METRIC_PORT": "1"} | ({} if address else own), "what a person has set stays"


def test_a_start_removes_the_folders_of_starts_that_have_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that live, here or in another container, and those of others stay."""
    monkeypatch.setattr(ray_environment, "RAY_FOLDERS_PARENT", tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    ended = subprocess.Popen(["true"])
    ended.wait()
    changes = {"dead": {"pid": ended.pid}, "alive": {}, "container": {"pid": ended.pid, "place": "another"}}
    for name, change in changes.items():
        atomic_files.write_json(tmp_path / f"unlearn-{name}" / "owner.json", identify_self() | change)
    (tmp_path / "unlearn-other").mkdir()
    ray_environment.set_ray_environment(None)
    left = {folder.name for folder in tmp_path.glob("unlearn-*")}
    made = Path(os.environ["RAY_TMPDIR"]).name
    assert left == {"unlearn-alive", "unlearn-container", "unlearn-other", made}
