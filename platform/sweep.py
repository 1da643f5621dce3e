"""`python -m platform.sweep NAME`: plan, run and report a named sweep."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

import platform.computer as computer
import platform.disk as disk
import platform.gate as gate
import platform.keep as keep
import platform.overrides as overrides
import platform.plan as planning
import platform.starting as starting
import search_spaces.base as spaces
from trainables import benchmarks as kinds
from trainables import commands, places, sampling, storage
from trainables.errors import InputError, closest


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
    location: storage.Location = storage.DEFAULT,
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
        settings = [*(set_ or []), *([overrides.seeds(seeds)] if seeds is not None else [])]
        choice = starting.Choice(resume, new, retry_failed, reason)
        choice.check()
        limits = gate.Limits(gpu_hours, disk.parse(disk_budget))
        limits.check()
        if trials is not None and strategy != "optuna":
            raise InputError(
                f"--trials: the points of each study with --strategy optuna; --strategy {strategy} has its own"
            )
        if cluster is not None:
            return _elsewhere(name, cluster, address)
        options = {"address": address, "max_concurrent": max_concurrent, "keep": keep.check(kept), "limits": limits}
        store = storage.open_storage(location, writable=not dry_run)
        if dry_run:
            _check_place(store)
        sweep = overrides.apply(_find(name), settings)
        plan = planning.make(sweep, store, strategy=strategy, only=only, budget=trials, retry=choice.retry)
        slots = computer.slots(plan, max_concurrent, address)
        disk.check(plan, store, kept, limits.disk_bytes, slots)
        if dry_run:
            lacks = computer.lacks(plan.sweep) if computer.is_used(address) else []
            plan = replace(plan, needs=(*plan.needs, *lacks))
            return _show(plan, store, as_json, kept, slots)
        disk.check_free(plan, store, kept, slots)
        return starting.start(plan, store, choice, options)

    raise typer.Exit(commands.guarded(run))


def _elsewhere(name: str | None, cluster: str, address: str | None) -> int:
    if address is not None:
        raise InputError("--cluster and --address exclude each other: the first starts the sweep on the cluster's head")
    import platform.submission as submission

    return submission.sweep(_find(name).name, cluster, sys.argv[1:])


def _find(name: str | None) -> spaces.Sweep:
    if name is None:
        raise InputError(f"name a sweep: {', '.join(spaces.names())}")
    if name not in spaces.names():
        raise InputError(f"unknown sweep '{name}'; {closest(name, spaces.names())}")
    return _read(name)


def _read(name: str) -> spaces.Sweep:
    """A sweep's file. Raises InputError where it is wrong in any way: people write them."""
    try:
        sweep = spaces.find(name)
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"search_spaces/{name}.py: {first or type(error).__name__}") from error
    assert sweep is not None, name
    return sweep


def _list(as_json: bool) -> int:
    """Every sweep whose file is right; InputError then, where one is wrong."""
    sweeps, wrong = [], []
    for name in spaces.names():
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


def _check_place(store: storage.Storage) -> None:
    """A dry run touches nothing, but says whether the real one could write."""
    existing = store.existing()
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise InputError(f"--storage: cannot write to '{store.root}'")


def _show(plan: planning.Plan, store: storage.Storage, as_json: bool, kept: str, slots: int) -> int:
    document = describe(plan, store, kept, slots)
    if as_json:
        print(json.dumps(document, indent=2))
        return 0
    print(f"{plan.name}: {plan.sweep.title}")
    kind = "points" if plan.strategy == "optuna" else "trials"
    print(f"strategy {plan.strategy}, {len(plan.trials)} {kind}, {len(plan.trials) - len(plan.left)} done")
    for study in document["studies"]:
        print(f"  {study['study']:28} {study['trials']:4} trials  {study['done']:4} done")
    resources, free = plan.sweep.resources, document["disk_free_bytes"]
    each = f"{resources.cpus} CPU, {resources.gpus:g} GPU"
    many = f"{resources.ranks} ranks, each {each}" if resources.ranks > 1 else f"1 rank, {each}"
    print(f"each trial: {many}, {resources.precision}{_steps(plan)}")
    for line in _costs(plan):
        print(line)
    several = commands.several
    print(f"made once: {several(len(plan.recipes), 'model')}, {several(len(plan.references), 'reference evaluation')}")
    print(f"storage {store.location}: at least {disk.listed(document['disk'])} to come, {commands.size(free)} free")
    if plan.retried:
        print(f"{several(len(plan.retried), 'failed trial')} to run again")
    if plan.failed:
        print(f"{several(len(plan.failed), 'trial')} failed and count as done; --retry-failed runs them again")
    if warning := plan.history.warning():
        print(f"warning: {warning}")
    for path in plan.damaged:
        print(f"damaged: {path}; a start sets it aside and runs its trial again")
    for need in document["needs"]:
        print(f"needs: {need}")
    return 0


def _steps(plan: planning.Plan) -> str:
    """How many steps a trial takes, and why not as many as were asked for; empty where nobody knows or none are."""
    trial = next((trial for trial in plan.trials if trial.task_vector is None), None)
    if trial is None:
        return ""
    training = trial.training
    if plan.sweep.fictional is not None and not places.is_folder(trial.benchmark.data):
        return ""  # its rows are made at the first start
    points = kinds.find(trial.benchmark.name).extent(trial.benchmark, training.max_length).points
    if points is None:
        return f", {training.max_steps} steps" if training.max_steps else ""
    count = sampling.steps(points, training.batch_size, training.epochs, training.max_steps)
    told = f", {count} steps"
    if training.max_steps and count < training.max_steps:
        rows = f"{training.epochs:g} epochs of {points} rows in batches of {training.batch_size}"
        told += f" (not {training.max_steps}: {rows} have no more)"
    return told + (f", evaluated every {training.eval_every}" if 0 < (training.eval_every or 0) < count else "")


def _costs(plan: planning.Plan) -> list[str]:
    """The trial that takes the most memory, the GPU-hours of all, and the tables that they fill."""
    lines, largest = [], plan.costs.largest
    if largest is None:
        lines.append("memory: known when the model is there (its sizes are in its config.json)")
    else:
        peak = largest.fit.peak
        parts = largest.document()["bytes"]
        told = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items() if size >= 5e6 and name != "step")
        limit = "" if largest.fit.limit is None else f" of {largest.fit.limit / 1e9:.1f} usable"
        lines.append(
            f"memory of a rank: {peak.total / 1e9:.2f} GB{limit} ({largest.method}, {largest.rectifier}, "
            f"{largest.split}; ZeRO {largest.fit.stage}, micro-batch {largest.fit.micro_batch})"
        )
        lines.append(f"  GB: {told}")
    hours, basis = planning.hours(plan)
    if hours is not None:
        lines.append(f"about {hours:.1f} GPU-hours ({basis})")
    if plan.sweep.tables and plan.strategy == "paper":
        lines.append(f"fills the paper's {', '.join(plan.sweep.tables)}")
    return lines


def describe(plan: planning.Plan, store: storage.Storage, kept: str, slots: int) -> dict[str, Any]:
    """The plan as JSON."""
    parts, free = disk.forecast(plan, store, kept, slots), store.free()
    hours, basis = planning.hours(plan)
    room = disk.shortage(plan, store, kept, slots)
    return {
        "sweep": plan.sweep.name,
        "hash": plan.hash,
        "title": plan.sweep.title,
        "strategy": plan.strategy,
        "budget": plan.budget,
        "storage": store.location,
        "trials": [
            {"id": t.id(), "label": t.label(), "study": t.study(), "done": t.id() in plan.done} for t in plan.trials
        ],
        "studies": [
            {"study": name, "trials": len(found), "done": sum(t.id() in plan.done for t in found)}
            for name, found in plan.studies().items()
        ],
        "models": [recipe.id() for recipe in plan.recipes],
        "resources": plan.sweep.resources.model_dump(mode="json"),
        "tables": list(plan.sweep.tables),
        "memory": [need.document() for need in plan.costs.needs],
        "gpu_hours": hours,
        "gpu_hours_basis": basis,
        "disk_bytes": sum(parts.values()),
        "disk": parts,
        "disk_free_bytes": free,
        "retried": list(plan.retried),
        "failed": dict(plan.failed),
        "damaged": [str(path) for path in plan.damaged],
        "warning": plan.history.warning(),
        "needs": [*plan.needs, *([room] if room else [])],
    }


if __name__ == "__main__":
    typer.run(main)
