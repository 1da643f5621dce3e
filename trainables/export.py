"""`python -m trainables.export ID --storage URI --output DIR`: a trial's weights as a model folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from trainables import benchmarks
from trainables.benchmarks.tofu import open_unlearning_files
from trainables.common import cli, typed_paths
from trainables.robustness.came_back import read_shares
from trainables.storage.opening import open_storage


def main(
    trial_id: Annotated[str, typer.Argument(metavar="ID", help="A trial's id, as in the report's column Trial.")],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="open-unlearning: write its TOFU_EVAL.json and TOFU_SUMMARY.json, too, in evals."
        ),
    ] = None,
) -> None:
    """Export a trial's weights with a model card, and verify them by evaluating them again.

    A trial whose weights were not kept runs again first.

    Example: python -m trainables.export ID --output DIR
    """

    def run() -> int:
        from trainables.trial.export import model_folder, run_again, verify

        store, folder = open_storage(location, writable=False), typed_paths.expand(str(output)).absolute()
        result = model_folder.load_result(trial_id, store)
        trial = model_folder.read_trial(result, store)
        if form:
            open_unlearning_files.check(form, trial.benchmark)
        cli.silence_libraries()
        if model_folder.is_kept(trial_id, store):
            facts = model_folder.export(trial_id, store, folder, shares=read_shares(trial_id, store))
        else:
            model_folder.check_output(folder)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
                facts = model_folder.export(trial_id, run_again.run_again(result, store, Path(place)), folder)
        if form:
            verify.write_open_unlearning_files(trial, folder)
            print(f"{folder / verify.EVALUATIONS}: open-unlearning's files; they hold the text of the forget rows")
        name = facts["configuration"].get("benchmark", {}).get("name", "tofu")
        print(f"{facts['label']}: {benchmarks.describe_goals(name, facts['metrics'])}, evaluated again: {folder}")
        return 0

    raise typer.Exit(cli.guarded(run))


if __name__ == "__main__":
    cli.make_app(main)()
