"""`python -m trainables.export ID --output DIR`: a trial's weights as a model folder, or with --push on the hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trainables import benchmarks
from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.data import hub_folders
from trainables.robustness.attacks import read_trial_recoveries
from trainables.storage import atomic_files
from trainables.storage.folder_storage import move_to_dated_folder
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import resolve_trial_id


def main(
    name: Annotated[str, typer.Argument(metavar="ID", help="A trial's id or name, as its line and the report say.")],
    output: Annotated[Path | None, typer.Option(help="Folder to write; with --push: STORAGE/exports/ID.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    push: Annotated[
        str | None, typer.Option(metavar="ORG/NAME", help="Upload the folder to the Hugging Face hub, private.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Write the trial's settings instead, for --set @FILE.yaml.")
    ] = None,
) -> int:
    """Export a trial's weights with a model card, and verify them by evaluating them again.

    Example: python -m trainables.export ID --output DIR
    """
    if (output or push) if settings else not (output or push):
        raise InputError("--output: give a new folder, or --push ORG/NAME, or --settings FILE.yaml alone")
    from huggingface_hub import HfApi

    from trainables.trial.export import model_folder, settings_file

    store = open_storage(location, writable=False)
    trial_id = resolve_trial_id(name, store)
    if settings:
        atomic_files.check_file_writable(settings, "--settings")
        trial, result = model_folder.load_evaluated_trial(trial_id, store)
        settings_file.write_reusable_settings(result, trial, settings)
        taken = f"python -m platform.sweep NAME --set @{settings}"
        cli.print_line(f"settings: {settings}; {taken} gives them to another sweep")
        return 0
    folder = typed_paths.expand_home(str(output)).absolute() if output else store.root / "exports" / trial_id
    model_folder.load_evaluated_result(trial_id, store)
    repository = None
    if push:
        hub_folders.check_hub_responds()
        with _hub_errors(push, "it needs a token that may write: set HF_TOKEN, or log in with 'hf auth login'"):
            repository = HfApi().create_repo(push, private=True, exist_ok=True).repo_id
            private = HfApi().model_info(repository).private
        if not private:
            raise InputError(f"--push: {push} is there and is public; give another name")
    cli.silence_libraries()
    if output is None and store.find_export(trial_id):
        cli.print_line(f"{folder}: it was exported before, and is uploaded as it is")
    else:
        if output is None and folder.exists():  # of an earlier run of the same trial
            move_to_dated_folder([folder], store)
        facts = model_folder.export_trial(trial_id, store, folder, shares=read_trial_recoveries(trial_id, store))
        benchmark = facts["configuration"].get("benchmark", {}).get("name", "tofu")
        goals = benchmarks.format_goal_values(benchmark, facts["metrics"])
        cli.print_line(f"{facts['label']}: {goals}, evaluated again: {folder}")
    if repository:
        again = f"the model is in '{folder}'; to try again: hf upload {repository} '{folder}'"
        with _hub_errors(repository, again):
            address = HfApi().upload_folder(repo_id=repository, folder_path=folder).repo_url
        cli.print_line(f"uploaded: {address}, private")
    return 0


@contextmanager
def _hub_errors(name: str, then: str) -> Iterator[None]:
    """Turn what the hub answers, or that it does not, into one line that ends with what to do."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:  # hf_xet's are RuntimeErrors
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"--push: {name}: {said}; {then}") from error


if __name__ == "__main__":
    cli.make_typer_app(main)()
