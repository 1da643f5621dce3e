"""`python -m trainables.export ID --storage URI --output DIR`: a trial's kept weights as a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainables import benchmarks
from trainables.common import cli, typed_paths
from trainables.storage.opening import open_storage


def main(
    trial_id: Annotated[str, typer.Argument(metavar="ID", help="A trial's id, as in the report's column Trial.")],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> None:
    """Export a trial's kept weights with a model card, and verify them by evaluating them again.

    Example: python -m trainables.export ID --output DIR
    """

    def run() -> int:
        from trainables.trial.export.model_folder import export, load_kept_result

        store = open_storage(location, writable=False)
        load_kept_result(trial_id, store)
        cli.silence_libraries()
        folder = typed_paths.expand(str(output)).absolute()
        facts = export(trial_id, store, folder)
        name = facts["configuration"].get("benchmark", {}).get("name", "tofu")
        print(f"{facts['label']}: {benchmarks.describe_goals(name, facts['metrics'])}, evaluated again: {folder}")
        return 0

    raise typer.Exit(cli.guarded(run))


if __name__ == "__main__":
    cli.make_app(main)()
