"""`python -m platform.cluster check FILE`: whether a cluster file can be used, before `ray up` takes machines."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from platform.cluster.file import ClusterFile, load_cluster_file
from platform.schedule.ray_environment import make_token
from trainables.common import cli
from trainables.common.errors import InputError, closest
from trainables.common.redaction import redact


def main(
    action: Annotated[str, typer.Argument(help="check, environment (for the head), account (AWS, once per account).")],
    path: Annotated[str, typer.Argument(metavar="FILE", help="Cluster file, such as cluster.yaml.")],
) -> None:
    """Check a cluster file; print the head's environment; make what an AWS account needs.

    Example: python -m platform.cluster check cluster.yaml
    """

    def run() -> int:
        if action not in ACTIONS:
            raise InputError(f"unknown action '{action}'; {closest(action, ACTIONS)}")
        return ACTIONS[action](load_cluster_file(path))

    raise typer.Exit(cli.guarded(run))


def check_file(file: ClusterFile) -> int:
    """Print every problem of the file on its own line; return 0 where there is none, else 2."""
    from platform.cluster import checks, kuberay_checks

    if file.is_kubernetes:  # whose operator makes the token
        command, words = "python -m platform.sweep", "NAME --cluster "
        problems, notes = kuberay_checks.find_problems(file), []
    else:
        make_token()
        command, words = "ray up", ""
        problems, notes = checks.find_problems(file), list(checks.find_notes(file))
    for problem in problems:
        print(f"error: {redact(problem)}", file=sys.stderr)
    for note in notes:
        print(f"note: {note}")
    if problems:
        print(f"{file.path}: {len(problems)} to mend before `{command}`", file=sys.stderr)
        return 2
    print(f"{file.path}: can be used; start it with: {command} {words}{shlex.quote(str(file.path))}")
    return 0


def print_environment(file: ClusterFile) -> int:
    """Print what the shells of the head need, so that the commands as typed there use this cluster."""
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


def prepare_account(file: ClusterFile) -> int:
    """Make the security group and the instance profiles that an AWS cluster file names."""
    from platform.cluster import account

    group = account.prepare_account(file)
    print(f"fill in {file.path}: security_group_id: &group {group}")
    return 0


ACTIONS = {"check": check_file, "environment": print_environment, "account": prepare_account}


if __name__ == "__main__":
    cli.make_app(main)()
