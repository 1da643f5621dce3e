"""What a start sets before Ray is imported."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from platform.schedule import ray_environment


@pytest.mark.parametrize("long", [False, True])
def test_rays_files_lie_in_a_folder_of_the_user_alone(
    long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In TMPDIR, unless that is too long for the paths of sockets."""
    monkeypatch.setattr(ray_environment, "LONGEST_SOCKET", 107 if long else 10**6)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 90)))
    Path(tempfile.gettempdir()).mkdir()
    place = Path(ray_environment.make_private_folder())
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert place.parent == (Path("/tmp") if long else Path(tempfile.gettempdir()))
    assert len(f"{place}{ray_environment.SOCKET}") <= ray_environment.LONGEST_SOCKET
    place.rmdir()


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
