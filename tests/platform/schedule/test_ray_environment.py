"""What a start sets before Ray is imported."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from platform.schedule import ray_environment


def test_rays_files_lie_in_a_folder_of_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_environment, "LONGEST_SOCKET", 10**6)
    place = Path(ray_environment.make_private_folder())
    assert (place.parent, stat.S_IMODE(place.stat().st_mode)) == (tmp_path, 0o700)
    place.chmod(0o777)
    assert ray_environment.make_private_folder() == str(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    (tmp_path / f"unlearn-{os.getuid()}").mkdir()
    other = Path(ray_environment.make_private_folder())
    assert other.name != f"unlearn-{os.getuid()}", "somebody else's folder is not taken"
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    monkeypatch.setattr(ray_environment.os, "getuid", lambda: "taken")
    (tmp_path / "unlearn-taken").symlink_to(tmp_path / "nowhere")
    assert Path(ray_environment.make_private_folder()).name != "unlearn-taken", "a link is not followed"


def test_a_long_tmpdir_leaves_room_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("x" * 90)))
    place = ray_environment.make_private_folder()
    assert place.startswith("/tmp/unlearn-")
    assert len(place) + ray_environment.SOCKET <= ray_environment.LONGEST_SOCKET


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_ray_of_our_own_opens_no_port_of_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """Of the autoscaler and the dashboard, which it has although it shows none, and of its agents."""
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "DASHBOARD_METRIC_PORT": "1"}
    monkeypatch.setattr(os, "environ", environ)
    ray_environment.set_ray_environment(address)
    found = {name: value for name, value in environ.items() if "metric" in name.lower()}
    found.pop("RAY_TRAIN_METRICS_ENABLED")
    own = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1"}
    assert found == {"DASHBOARD_METRIC_PORT": "1"} | ({} if address else own), "what a person has set stays"
