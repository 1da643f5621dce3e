"""`python -m platform.sweep NAME`: plan, run and report a named sweep."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from platform.driver import dry_run as dry
from platform.driver.options import Options
from platform.driver.start import Choice, start_sweep
from platform.plan import overrides
from platform.plan.build import make_plan
from platform.schedule import capacity
from platform.state import disk, weights
from platform.state.limits import Limits
from platform.state.sweep_state import scan, scan_without_results
from search_spaces.schema import sweep as spaces
from trainables.common import cli
from trainables.common.errors import InputError, closest, first_line
from trainables.storage.base import Storage
from trainables.storage.location import open_storage


def main(
    name: Annotated[str | None, typer.Argument(help="Sweep to run; --list names them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the sweeps.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and touch nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list or --dry-run: JSON.")] = False,
    strategy: Annotated[str, typer.Option(help="grid, paper or optuna.")] = "grid",
    trials: Annotated[int | None, typer.Option(min=1, help="optuna: points of each study.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="FIELD=V1,V2: these trials only.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE in every trial.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    address: Annotated[str | None, typer.Option(help="A running Ray cluster.")] = None,
    cluster: Annotated[str | None, typer.Option(help="File of ray up: run it there, and show it here.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(min=1, help="Trials at a time.")] = None,
    kept: Annotated[str, typer.Option("--keep", help="Weights: pareto, best, all or none.")] = "pareto",
    gpu_hours: Annotated[float | None, typer.Option(help="No new trial beyond so many in all its starts.")] = None,
    disk_budget: Annotated[str | None, typer.Option(help="Size of the whole storage, such as 20GB.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run what is missing of an unfinished sweep.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Set old results aside and run again.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again, too.")] = False,
    reason: Annotated[str | None, typer.Option(help="--retry-failed: failed or out_of_memory only.")] = None,
) -> None:
    """Run a named sweep."""

    def run() -> int:
        if list_:
            return _list(as_json)
        settings = [*(set_ or []), *([overrides.parse_seeds(seeds)] if seeds is not None else [])]
        choice = Choice(resume, new, retry_failed, reason)
        choice.check()
        limits = Limits(gpu_hours, disk.parse_size(disk_budget))
        limits.check()
        _check_budget(trials, strategy)
        if cluster is not None:
            return _elsewhere(name, cluster, address)
        weights.check_choice(kept)
        options = Options(address, max_concurrent, kept, limits)
        store = open_storage(location, writable=not dry_run)
        if dry_run:
            _check_place(store)
        sweep = overrides.apply(_find(name), settings)
        plan = make_plan(sweep, store, strategy=strategy, only=only, budget=trials)
        state = scan(plan, store, choice.retry)
        aside = len(state.outcomes) + len(state.damaged) if new else 0
        state = scan_without_results(plan, store) if new else state
        slots = capacity.count_slots(sweep.resources, state.outstanding, max_concurrent, address)
        disk.check_budget(state, store, kept, limits.disk_bytes, slots)
        if dry_run:
            lacks = capacity.find_shortages(sweep.resources) if capacity.runs_here(address) else []
            return dry.show(state, store, lacks, as_json=as_json, kept=kept, slots=slots, aside=aside)
        disk.check_free(state, store, kept, slots)
        return start_sweep(state, store, choice, options)

    raise typer.Exit(cli.guarded(run))


def _check_budget(trials: int | None, strategy: str) -> None:
    if trials is not None and strategy != "optuna":
        raise InputError(
            f"--trials: the points of each study with --strategy optuna; --strategy {strategy} has its own"
        )


def _elsewhere(name: str | None, cluster: str, address: str | None) -> int:
    if address is not None:
        raise InputError("--cluster and --address exclude each other: the first starts the sweep on the cluster's head")
    from platform.cluster import submit

    return submit.run_sweep(_find(name).name, cluster, sys.argv[1:])


def _find(name: str | None) -> spaces.Sweep:
    if name is None:
        raise InputError(f"name a sweep: {', '.join(spaces.sweep_names())}")
    if name not in spaces.sweep_names():
        raise InputError(f"unknown sweep '{name}'; {closest(name, spaces.sweep_names())}")
    return _read(name)


def _read(name: str) -> spaces.Sweep:
    """A sweep's file. Raises InputError where it is wrong in any way: people write them."""
    try:
        return spaces.load_sweep(name)
    except Exception as error:
        why = cli.describe_invalid(error) if isinstance(error, ValidationError) else first_line(error)
        raise InputError(f"search_spaces/{name}.py: {why}") from error


def _list(as_json: bool) -> int:
    """Every sweep whose file is right; InputError then, where one is wrong."""
    sweeps, wrong = [], []
    for name in spaces.sweep_names():
        try:
            sweeps.append(_read(name))
        except InputError as error:
            wrong.append(str(error))
    rows = [{"name": sweep.name, "title": sweep.title} for sweep in sweeps]
    width = max(len(row["name"]) for row in rows)
    print(
        json.dumps(rows, indent=2) if as_json else "\n".join(f"{row['name']:{width}}  {row['title']}" for row in rows)
    )
    if wrong:
        raise InputError("; ".join(wrong))
    return 0


def _check_place(store: Storage) -> None:
    """A dry run touches nothing, but says whether the real one could write."""
    existing = store.existing()
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise InputError(f"--storage: cannot write to '{store.root}'")


if __name__ == "__main__":
    typer.run(main)
