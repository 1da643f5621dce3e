"""`python -m platform.cluster check FILE`: whether a cluster file can be used, before machines are taken."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from platform.cluster import slurm
from platform.cluster.file import is_batch_script, load_cluster_file
from platform.schedule.ray_environment import make_token
from trainables.common import cli
from trainables.common.errors import InputError, closest
from trainables.common.redaction import redact


@cli.command
def main(
    action: Annotated[str, typer.Argument(help="check, environment (for the head), account (AWS, once per account).")],
    path: Annotated[str, typer.Argument(metavar="FILE", help="Cluster file, such as cluster.yaml.")],
) -> int:
    """Check a cluster file; print the head's environment; make what an AWS account needs.

    Example: python -m platform.cluster check cluster.yaml
    """
    if action not in ACTIONS:
        raise InputError(f"unknown action '{action}'; {closest(action, ACTIONS)}")
    if action != "check" and load_cluster_file(path).is_kubernetes:
        raise InputError(f"'{path}' is a file for KubeRay, which needs no `{action}`; only `check` takes it")
    return ACTIONS[action](path)


def check_file(path: str) -> int:
    """Print what `check` says of a file, by its kind: a batch script for Slurm, a RayJob, or a file for `ray up`."""
    place = Path(path).expanduser()
    text = place.read_bytes().decode(errors="replace") if place.is_file() else ""
    if is_batch_script(text):
        return report_problems(path, slurm.find_problems(path, text), slurm.find_notes(text), "sbatch")
    from platform.cluster import checks, kuberay_checks

    file = load_cluster_file(path)
    if file.is_kubernetes:  # whose operator makes the token
        return report_problems(
            path, kuberay_checks.find_problems(file), [], "python -m platform.sweep", "NAME --cluster "
        )
    make_token()
    return report_problems(path, checks.find_problems(file), checks.find_notes(file), "ray up")


def report_problems(path: str, problems: list[str], notes: Iterable[str], start: str, words: str = "") -> int:
    """Print every problem on its own line; return 0 where there is none, else 2. `start`, `words`: the next command."""
    for problem in problems:
        print(f"error: {redact(problem)}", file=sys.stderr)
    for note in notes:
        print(f"note: {note}")
    if problems:
        print(f"{path}: {len(problems)} to mend before `{start}`", file=sys.stderr)
        return 2
    print(f"{path}: can be used; start it with: {start} {words}{shlex.quote(path)}")
    return 0


def print_environment(path: str) -> int:
    """Print what the shells of the head need, so that the commands as typed there use this cluster."""
    file = load_cluster_file(path)
    if file.storage is None:
        raise InputError("provider.storage: missing; name the storage that every node sees")
    databases = {"sqlite": f"sqlite:///{Path.home()}/mlflow/mlflow.db", "postgresql": "postgresql:///mlflow"}
    backend = str(file.provider.get("mlflow_backend", "sqlite"))
    variables = {
        "RAY_ADDRESS": "auto",
        "RAY_AUTH_MODE": "token",
        "UNLEARN_STORAGE": str(file.storage),
        "MLFLOW_TRACKING_URI": databases.get(backend, backend),
    }
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def prepare_account(path: str) -> int:
    """Make the security group and the instance profiles that an AWS cluster file names."""
    from platform.cluster import account

    file = load_cluster_file(path)
    group = account.prepare_account(file)
    print(f"fill in {file.path}: security_group_id: &group {group}")
    return 0


ACTIONS = {"check": check_file, "environment": print_environment, "account": prepare_account}


if __name__ == "__main__":
    cli.make_app(main)()
