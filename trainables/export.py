"""`python -m trainables.export ID --output DIR`: a trial's weights as a model folder, or with --push on the hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from trainables import benchmarks
from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.robustness.came_back import read_shares
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage


@cli.command
def main(
    trial_id: Annotated[str, typer.Argument(metavar="ID", help="A trial's id, as in the report's column Trial.")],
    output: Annotated[Path | None, typer.Option(help="Folder to write; with --push: STORAGE/exports/ID.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    push: Annotated[
        str | None, typer.Option(metavar="ORG/NAME", help="Upload the folder to the Hugging Face hub, private.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: make the repository public.")] = False,
) -> int:
    """Export a trial's weights with a model card, and verify them by evaluating them again.

    A trial whose weights were not kept runs again first.

    Example: python -m trainables.export ID --output DIR
    """
    if output is None and push is None:
        raise InputError("--output: give a new folder, or --push ORG/NAME")
    if public and push is None:
        raise InputError("--public: goes with --push ORG/NAME")
    from trainables.trial.export import hub_upload, model_folder

    if push is not None:
        hub_upload.check_target(push)
    store = open_storage(location, writable=False)
    folder = typed_paths.expand(str(output)).absolute() if output else store.root / "exports" / trial_id
    result = model_folder.load_result(trial_id, store)
    if push is not None:
        hub_upload.check_visibility(push, public=public)
    cli.silence_libraries()
    if output is None and atomic_files.read_json(folder / model_folder.FACTS):
        print(f"{folder}: it was exported before, and is uploaded as it is", flush=True)
    else:
        _export(result, store, folder)
    if push is not None:
        address = hub_upload.upload(folder, push, public=public)
        print(f"uploaded: {address}, {'public' if public else 'private'}")
    return 0


def _export(result: dict[str, Any], store: Storage, folder: Path) -> None:
    """Write and verify the folder, after the trial ran again if its weights were not kept."""
    from trainables.trial.export import model_folder, run_again

    key = str(result["id"])
    if store.has_weights(key):
        facts = model_folder.export(key, store, folder, shares=read_shares(key, store))
    else:
        model_folder.check_output(folder)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
            facts = model_folder.export(key, run_again.run_again(result, store, Path(place)), folder)
    name = facts["configuration"].get("benchmark", {}).get("name", "tofu")
    print(f"{facts['label']}: {benchmarks.describe_goals(name, facts['metrics'])}, evaluated again: {folder}")


if __name__ == "__main__":
    cli.make_app(main)()
