"""`python -m platform.tracking sync NAME`: a sweep's runs in MLflow, made again from the storage."""

from typing import Annotated

import typer

from platform.state import manifest
from platform.state.lock import hold_sweep_lock
from platform.state.trial_outcomes import read_trial_results
from platform.tracking.mirror import start_mlflow_mirror
from platform.tracking.runs import tracking_uri
from trainables.common import cli
from trainables.common.deadlines import check_server_responds
from trainables.common.errors import InputError, first_error_line
from trainables.common.redaction import redact
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import SweepFile

SYNC_PATIENCE_SECONDS = 600.0
"""For the next trial to be logged: a new database on a slow disk takes minutes."""


def main(
    action: Annotated[str, typer.Argument(help="sync")],
    name: cli.SweepArgument,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Log to MLflow what a storage holds of a sweep, and MLflow lacks.

    Example: python -m platform.tracking sync tofu_tiny
    """
    if action != "sync":
        raise InputError(f"unknown action '{action}'; known: sync")
    store = open_storage(location)
    count = sync_sweep_to_mlflow(manifest.load_manifests_by_name(name, store)[0], store)
    cli.print_line(f"{count} trials in {tracking_uri(store)}")
    return 0


def sync_sweep_to_mlflow(sweep: SweepFile, store: Storage) -> int:
    """Log every trial of a sweep that has a result; return how many. Raises InputError while its driver runs."""
    uri = tracking_uri(store)
    if uri.startswith("http"):
        check_server_responds(f"{uri}/health", "MLflow", "is MLFLOW_TRACKING_URI right, and does its server run?")
    command = f"python -m platform.tracking sync {sweep.label}"
    with hold_sweep_lock(store, store.lock(sweep.name, sweep.hash), command):
        store.download_sweeps_and_results(sweep.trials)
        done, damaged = read_trial_results(sweep.trials, store)
        for path in damaged:
            cli.print_line(f"damaged: {path}; its trial is not shown")
        mirror = start_mlflow_mirror(sweep, store)
        mirror.close(SYNC_PATIENCE_SECONDS)
        mirror.log_report()
    if mirror.problem is not None:
        advice = "if it is a damaged file, remove that: it is made again"
        raise InputError(f"MLflow at {redact(uri)}: {first_error_line(mirror.problem)}; {advice}") from mirror.problem
    return len(done)


if __name__ == "__main__":
    cli.make_typer_app(main)()
