"""`python -m platform.tracking sync NAME`: MLflow's runs and Optuna's journal made again from the storage."""

from __future__ import annotations

import sqlite3
from typing import Annotated

import typer

from platform.state import manifest
from platform.tracking.database import tracking_uri
from platform.tracking.tracker import sync
from trainables.common import cli
from trainables.common.errors import InputError, first_line
from trainables.common.redaction import redact
from trainables.storage.opening import open_storage


@cli.command
def main(
    action: Annotated[str, typer.Argument(help="sync")],
    name: cli.SweepArgument,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Make a sweep's MLflow runs, and Optuna's journal of a search, from its storage.

    Example: python -m platform.tracking sync tofu_tiny
    """
    if action != "sync":
        raise InputError(f"unknown action '{action}'; known: sync")
    store = open_storage(location)
    from mlflow.exceptions import MlflowException

    sweep = manifest.load_manifest(name, store)
    try:
        count = sync(sweep, store)
    except (MlflowException, sqlite3.Error) as error:
        raise InputError(f"MLflow at {redact(tracking_uri(store))}: {first_line(error)}") from error
    print(f"{count} trials in {redact(tracking_uri(store))}")
    return 0


if __name__ == "__main__":
    cli.make_app(main)()
