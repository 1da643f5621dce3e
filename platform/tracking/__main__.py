"""`python -m platform.tracking sync NAME`: a sweep's runs in MLflow, made again from the storage."""

from typing import Annotated

import typer

from platform.state import manifest
from platform.state.lock import hold_sweep_lock
from platform.state.trial_outcomes import read_trial_results
from platform.tracking.runs import open_mlflow_runs, tracking_uri
from trainables.common import cli
from trainables.common.deadlines import check_server_responds
from trainables.common.errors import InputError, first_error_line
from trainables.common.redaction import redact
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import SweepFile


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
    count = sync_sweep_to_mlflow(manifest.find_ready_sweeps(name, store)[0], store)
    cli.print_line(f"{count} trials in {tracking_uri(store)}")
    return 0


def sync_sweep_to_mlflow(sweep: SweepFile, store: Storage) -> int:
    """Log every trial of a sweep that has a result; return how many. Raises InputError while its driver runs."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if (uri := tracking_uri(store)).startswith("http"):
        check_server_responds(f"{uri}/health", "MLflow", "is MLFLOW_TRACKING_URI right, and does its server run?")
    command = f"python -m platform.tracking sync {sweep.label}"
    with hold_sweep_lock(store, store.lock(sweep.name, sweep.hash), command):
        store.download_sweeps_and_results(sweep.trials)
        done, damaged = read_trial_results(sweep.trials, store)
        for path in damaged:
            cli.print_line(f"damaged: {path}; its trial is not shown")
        try:
            runs = open_mlflow_runs(sweep, store)
            for trial_id, result in done.items():
                runs.log_result(trial_id, result)
            runs.finish()
            runs.log_report()
        except (MlflowException, SQLAlchemyError, OSError) as error:
            advice = "if it is a damaged file, remove that: it is made again"
            raise InputError(f"MLflow at {redact(tracking_uri(store))}: {first_error_line(error)}; {advice}") from error
    return len(done)


if __name__ == "__main__":
    cli.make_typer_app(main)()
