"""`--dry-run` of every named sweep: no network, no GPU, its definition alone (for `own`: a model and rows)."""

import json
import math
import socket
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from search_spaces.schema import sweep as spaces
from tests.support import pages, shrunk_sweeps
from tests.support.environment import type_settings
from tests.support.starts import in_process


class Facts(NamedTuple):
    """What docs/reproduction.md says: trials of `grid` and `paper`; of the latter ranks and GB on disk of all."""

    grid: int
    trials: int
    ranks: int
    disk: float


TABLE = pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")
"""Some rows' memory and hours are compared in tests/docs/test_pages.py."""
FACTS = {
    name.strip("`"): Facts(int(grid), int(trials), int(gpus) if hours else 1, float(disk))
    for name, _, trials, gpus, _, hours, disk, grid, _ in TABLE
}
ON_CPU = ("quickstart", "tofu_tiny", "own", "arena", "arena_quick")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> NoReturn:
        raise AssertionError(f"a dry run asked for the network: {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def dry_run(name: str, place: Path, *options: object) -> str:
    """Return what a dry run prints that writes nothing."""
    settings = [*shrunk_sweeps.own(place), *shrunk_sweeps.target(place, "Llama")] if name == "own" else []
    flags = type_settings(settings)
    done = in_process(name, "--dry-run", "--storage", place / "runs", *flags, *options)
    assert done.exit_code == 0, done.output
    assert not (place / "runs").exists()
    return done.stdout


def test_every_sweep_is_here() -> None:
    assert set(FACTS) == set(spaces.list_sweep_names())


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", FACTS)
def test_facts_of_each_sweep(name: str, tmp_path: Path) -> None:
    """Disk by hand for tofu_phi_uwc, in GB: 8 studies keep one model of 1.418 x 2, three made models have 1.418 x 4."""
    found = json.loads(dry_run(name, tmp_path, "--strategy", "paper", "--json"))
    grid = dry_run(name, tmp_path).splitlines()[1]
    assert all(need["total_bytes"] <= (need["limit_bytes"] or math.inf) for need in found["memory"])
    assert (found["gpu_hours"] is None) == (name in ON_CPU)
    disk, ranks = round(found["disk_bytes"] / 1e9, 2), found["resources"]["ranks"]
    counts = (int(grid.split()[2]), len(found["trials"]))
    assert Facts(*counts, ranks, disk) == FACTS[name]
    gpus = [need for need in found["needs"] if " for each trial (a start" in need]
    many = "1 GPU" if ranks == 1 else f"{ranks} GPUs"
    assert gpus == ([] if name in ON_CPU else [f"{many} for each trial (a start counts the cluster's)"])
