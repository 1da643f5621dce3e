"""The end of a start: prints the chosen settings, makes the report, and says what is next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from platform.plan.plan import Plan
from platform.state import manifest
from platform.state.manifest import resume_command
from platform.sweep.chosen_trials import choose_trials
from platform.tracking.mirror import MlflowMirror
from platform.tracking.runs import RUNS_CHART
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common import provenance, typed_paths
from trainables.common.cli import print_line
from trainables.common.errors import first_line, last_line_of
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.config.trial import Trial
from trainables.storage.file_names import ERROR, FAILURES, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import storage_option

AFTER_QUICKSTART = "tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"


def print_sweep_end(plan: Plan, store: Storage, mirror: MlflowMirror) -> int:
    """Print how a start ended, and make its report; return 1 if trials of the plan failed, else 0."""
    shown = typed_paths.shorten_path(store.root)
    sweep = manifest.load_manifest(plan.name, store)
    results = {key: result for key in sweep.trials if (result := store.result(key))}
    Console(width=None if sys.stdout.isatty() else 120).print(tabulate_chosen_settings(plan, store))
    print_line("making the report")  # in a process of its own: the driver does not import the analysis
    command = [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location]
    done = subprocess.run(command, cwd=provenance.ROOT, capture_output=True, text=True)
    if done.returncode:
        print_line(f"no report: {last_line_of(done.stderr)}")
    print_line(f"report: {shown / 'reports' / plan.name / 'index.html'}")
    print_line(describe_mlflow_page(store, mirror.page_path))
    print_line(f"next:   {suggest_next_command(plan, sweep.command, store)}")
    mirror.log_report()
    if mirror.problem is not None:
        sync = f".venv/bin/python -m platform.tracking sync {plan.name}{storage_option(store)}"
        print_line(f"MLflow is behind ({first_line(mirror.problem)}); mend it with: {sync}")
    planned = (trial.id() for trial in plan.trials)
    failed = [key for key in planned if key in results and results[key]["status"] in FAILURES]
    for key in failed:
        message = (results[key].get("error") or {}).get("message")
        print_line(f"{results[key]['status']}: {key} {message} ({store.trial(key) / ERROR})")
    lost = sum(results[key]["status"] == LOST for key in failed)
    if lost:
        print_line(f"{format_count(lost, 'trial')} lost; --resume goes on with what they had")
    if len(failed) > lost:
        print_line(f"{format_count(len(failed) - lost, 'trial')} failed; --retry-failed runs them again")
    return 1 if failed else 0


def describe_mlflow_page(store: Storage, page: str) -> str:
    """Return where MLflow is, or the command that starts its UI; below, the sweep's table there and its chart."""
    uri = redact(
        os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{typed_paths.shorten_path(store.root) / 'mlflow.db'}"
    )
    program = typed_paths.shorten_path(Path(sys.executable).with_name("mlflow"))
    server = uri if uri.startswith("http") else "http://127.0.0.1:5000"
    shown = uri if uri.startswith("http") else f"{program} ui --backend-store-uri {uri}"
    links = f"\n  table: {server}/{page}\n  chart: {server}/{page}{RUNS_CHART}" if page else ""
    return f"MLflow: {shown}{links}"


def suggest_next_command(plan: Plan, command: str, store: Storage) -> str:
    """Return what to type after `command`: a chat with the model that it wrote, more seeds after one, or an export."""
    storage = storage_option(store)
    for trial in reversed(plan.trials) if plan.sweep.export else ():
        if store.exists(store.root / "exports" / trial.id()):
            return f"python -m trainables.chat {trial.id()}{storage}   (the model that was written)"
    if plan.sweep.name == "quickstart":
        return f".venv/bin/python -m platform.sweep {AFTER_QUICKSTART}   (TOFU's real rows, 10 of its 165 trials)"
    if len({trial.seed for trial in plan.trials}) == 1 and plan.strategy != "optuna" and "seed=" not in command:
        return f"{resume_command(command, storage)} --seeds 0,1,2   (one seed gives no verdict)"
    return f"python -m trainables.export ID --output DIR{storage}   (ID: the report's column Trial)"


def tabulate_chosen_settings(plan: Plan, store: Storage) -> Table:
    """Return a table of the goals, means over seeds: the reference models, then the chosen setting of each study."""
    name, rule = plan.sweep.benchmark.name, plan.sweep.selection
    goals = benchmarks.get_benchmark(name).GOALS
    table = Table("split", "method", "rectifier", "setting", "seeds", *(goal.short for goal in goals), box=box.SIMPLE)

    def add(labels: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> None:
        metrics = [selection.pick_metrics(document, rule, reported=True) for document in documents]
        columns = [[one[goal.metric] for one in metrics if one.get(goal.metric) is not None] for goal in goals]
        shown = [f"{fmean(v):.{goal.digits}f}" if v else "" for goal, v in zip(goals, columns, strict=True)]
        table.add_row(*labels, *shown)

    for ref in plan.references:
        add((ref.split, ref.role, "", "", ""), [store.read_evaluation(ref.evaluation) or {}])
    chosen: dict[str, list[Trial]] = {}
    for trial in choose_trials(plan, store):
        chosen.setdefault(trial.study(), []).append(trial)
    for trials in chosen.values():
        first, seeds = trials[0], str(len(trials))
        labels = (first.benchmark.split, first.method, first.rectifier.name, plan.label(first), seeds)
        add(labels, [store.result(trial.id()) or {} for trial in trials])
    return table
