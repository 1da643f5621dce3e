"""What must hold after a rehearsal: every trial once, the views equal to the storage, nothing left behind."""

import subprocess
from pathlib import Path

import psutil

from tests.faults.checks import mirrored, twice
from tests.faults.sweep import Watch
from tests.rehearsal.lab import COUNT, Lab, require
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile

RAY, AGENT = ("raylet/raylet ", "gcs_server ", "ray::"), "Agent"
"""What computes or decides; a raylet's agents notice its end some minutes later."""


def check_trials(store: Storage, sweep: SweepFile, watch: Watch, count: int) -> None:
    """Require that each of a sweep's trials has finished, and once."""
    listed = sweep.trials
    require(len(listed) == count, f"{sweep.name} lists {len(listed)} trials, expected {count}")
    for key in listed:
        result = store.result(key)
        require(result and result["status"] == "finished", f"trial {key} did not finish: {result}")
    doubled = twice(watch, ())
    require(not doubled, f"trials ran to their end more than once: {doubled}")


def check_report(store: Storage, name: str, fetched: Path | None) -> None:
    """Require that the report was made, and that the laptop has the same where it asked for it."""
    made = store.root / "reports" / name
    for path in ("index.html", "tables/main.md"):
        require((made / path).is_file(), f"no report {made / path}")
        if fetched is None:
            continue
        require((fetched / path).is_file(), f"the report was not fetched: no {fetched / path}")
        require(
            (made / path).read_bytes() == (fetched / path).read_bytes(), f"{fetched / path} differs from {made / path}"
        )


def check_mlflow(uri: str, store: Storage, sweep: SweepFile) -> None:
    """Require that the MLflow server shows each trial once, with the numbers of its result and of each step."""
    differences = list(mirrored(store, uri, sweep))
    require(not differences, f"MLflow shows otherwise: {differences}")


def ray_processes(lab: Lab) -> list[str]:
    """Return the processes of Ray that a host still runs."""
    lines = [f"{host}: {line}" for host in range(COUNT) for line in lab.running(host)]
    return [line for line in lines if AGENT not in line and any(word in line for word in RAY)]


def find_leftovers(lab: Lab) -> list[str]:
    """Return what the rehearsal has left on this machine."""
    found = [f"namespace {name}" for name in _lines("ip", "netns", "list") if name.startswith(f"{lab.name}-")]
    found += [f"link {line}" for line in _lines("ip", "-o", "link") if f": {lab.name}" in line]
    found += [f"folder {lab.folder}"] if lab.folder.exists() else []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(lab.folder) in line:
            found.append(f"process {process.info['pid']} {line}")
    return found


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
