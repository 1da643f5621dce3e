"""Cluster files as a person would write them, and what `check` says of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from platform.cluster import check


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with no token of Ray's."""
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # as submission sets it, and here again what it was
    return place


@pytest.fixture
def find_problems(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return `find_problems(text)`: what `check` says about a file with this text."""

    def find(text: str) -> list[str]:
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return check.find_cluster_file_problems(check.load_cluster_file(str(path)))

    return find
