"""What a start sets before Ray is imported."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from platform.schedule import ray_environment
from trainables.common.process_identity import describe_self
from trainables.storage import atomic_files


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
        ray_environment.remove_ray_folder()
        assert not place.exists()
    found = {name: value for name, value in environ.items() if "metric" in name.lower()}
    found.pop("RAY_TRAIN_METRICS_ENABLED")
    own = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1"}
    assert found == {"DASHBOARD_METRIC_PORT": "1"} | ({} if address else own), "what a person has set stays"


def test_a_start_removes_the_folders_of_starts_that_have_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that live, here or in another container, and those of others stay."""
    monkeypatch.setattr(ray_environment, "FOLDERS", tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    ended = subprocess.Popen(["true"])
    ended.wait()
    changes = {"dead": {"pid": ended.pid}, "alive": {}, "container": {"pid": ended.pid, "place": "another"}}
    for name, change in changes.items():
        atomic_files.write_json(tmp_path / f"unlearn-{name}" / "owner.json", describe_self() | change)
    (tmp_path / "unlearn-other").mkdir()
    ray_environment.set_ray_environment(None)
    left = {folder.name for folder in tmp_path.glob("unlearn-*")}
    made = Path(os.environ["RAY_TMPDIR"]).name
    assert left == {"unlearn-alive", "unlearn-container", "unlearn-other", made}
