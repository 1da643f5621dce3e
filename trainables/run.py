"""`python -m trainables.run CONFIG.json --storage DIR`: one trial in this process, no Ray."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from trainables import benchmarks
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.data import templates
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT
from trainables.storage.opening import open_storage
from trainables.trial import progress


def main(
    config: Annotated[Path, typer.Argument(help="A trial's config.json.")],
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Run one trial, keep its weights and print its result.

    Example: python -m trainables.run runs/trials/ID/config.json --storage again
    """
    document = atomic_files.read_json(config)
    if document is None:
        raise InputError(f"CONFIG: '{config}' is missing, or holds no JSON object; give a trial's config.json")
    trial = Trial.model_validate(document)
    templates.check_template_name(trial.benchmark.template)
    benchmarks.get_benchmark(trial.benchmark.name).check_settings(trial.benchmark)
    if trial.resources.ranks > 1:
        raise InputError(
            "resources.ranks: this command is one process; use python -m platform.sweep, or set resources.ranks to 1"
        )
    if not trial.resources.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    store = open_storage(location)
    cli.silence_libraries()
    from trainables.trial.runner import TrialRun

    folder, other = store.trial(trial.id()), "give another --storage to run it apart"
    owner = progress.find_other_process_of_trial(folder)
    if owner is None:
        store.fetch_trial(trial.id())  # which would disturb a process here
        owner = progress.find_other_process_of_trial(folder)
    if owner:
        at = f"process {owner['pid']} on {owner['host']} is at trial {trial.id()} in {store.location}"
        raise InputError(f"CONFIG: {at}; wait for its end, or {other}")
    if store.has_result(trial.id()):
        status = (store.result(trial.id()) or {}).get("status", "damaged")
        raise InputError(f"CONFIG: trial {trial.id()} has a result already ({status}) in {folder}; {other}")
    for event in TrialRun(trial, store, keep_weights=True).run_and_yield_events():
        if event["phase"] == "training":
            cli.print_line(f"step {event['step']}/{event['steps']} loss {event['entry']['loss']:.4f}")
        elif event["phase"] == "done":
            result = event["result"]
            cli.print_line(json.dumps({key: result[key] for key in ("id", "status", "metrics", "error")}, indent=2))
            cli.print_line(f"result: {folder / RESULT}")
            return 0 if result["status"] == "finished" else 1
        else:
            cli.print_line(event["phase"])
    return 1


if __name__ == "__main__":
    cli.make_typer_app(main)()
