"""`python -m platform.cluster check FILE`: whether a cluster file can be used, before machines are taken."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from platform.cluster.account import prepare_aws_account
from platform.cluster.check import find_cluster_file_problems, load_cluster_file
from platform.schedule.ray_environment import ensure_ray_token
from trainables.common import cli
from trainables.common.errors import InputError, suggest_name


def main(
    action: Annotated[str, typer.Argument(help="check, environment (for the head), account (AWS, once per account).")],
    path: Annotated[str, typer.Argument(metavar="FILE", help="Cluster file, such as cluster.yaml.")],
) -> int:
    """Check a cluster file; print the head's environment; make what an AWS account needs.

    Example: python -m platform.cluster check cluster.yaml
    """
    if action not in ACTIONS:
        raise InputError(f"unknown action '{action}'; {suggest_name(action, ACTIONS)}")
    return ACTIONS[action](path)


def print_cluster_file_problems(path: str) -> int:
    """Print every problem of a file on its own line; return 0 where there is none, else 2."""
    file = load_cluster_file(path)
    kubernetes = "python -m platform.sweep NAME --cluster"
    start = "sbatch" if file.is_batch_script else kubernetes if file.is_kubernetes else "ray up"
    if start == "ray up":
        ensure_ray_token()
    problems = find_cluster_file_problems(file)
    for problem in problems:
        cli.print_line(f"error: {problem}", error=True)
    if problems:
        cli.print_line(f"{path}: {len(problems)} to mend before `{start}`", error=True)
        return 2
    cli.print_line(f"{path}: can be used; start it with: {start} {shlex.quote(path)}")
    return 0


def print_head_environment(path: str) -> int:
    """Print what the shells of the head need, so that the commands as typed there use this cluster."""
    provider = load_cluster_file(path).provider
    if not provider.get("storage"):
        raise InputError("provider.storage: missing; name the storage that every node sees")
    databases = {"sqlite": f"sqlite:///{Path.home()}/mlflow/mlflow.db", "postgresql": "postgresql:///mlflow"}
    backend = str(provider.get("mlflow_backend", "sqlite"))
    variables = {
        "RAY_ADDRESS": "auto",
        "RAY_AUTH_MODE": "token",
        "UNLEARN_STORAGE": str(provider["storage"]),
        "MLFLOW_TRACKING_URI": databases.get(backend, backend),
    }
    for name, value in variables.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")  # a user's name in an address stays
    return 0


ACTIONS = {"check": print_cluster_file_problems, "environment": print_head_environment, "account": prepare_aws_account}


if __name__ == "__main__":
    cli.make_typer_app(main)()
