"""What a start sets before Ray is imported."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from platform.schedule import ray_environment


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
        place.rmdir()
    found = {name: value for name, value in environ.items() if "metric" in name.lower()}
    found.pop("RAY_TRAIN_METRICS_ENABLED")
    own = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1"}
    assert found == {"DASHBOARD_METRIC_PORT": "1"} | ({} if address else own), "what a person has set stays"
