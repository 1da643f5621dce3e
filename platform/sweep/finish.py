"""The end of a start: its table, report, MLflow's page and what to type next."""

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
from platform.state.manifest import format_resume_command
from platform.sweep.chosen_trials import choose_trials_of_each_study
from platform.tracking.mirror import MlflowMirror
from platform.tracking.runs import MLFLOW_CHART_QUERY
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common import provenance, typed_paths
from trainables.common.cli import print_line
from trainables.common.errors import first_error_line, last_line_of_text
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.config.trial import Trial
from trainables.storage.file_names import ERROR, FAILED_STATUSES, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option
from trainables.storage.sweep_file import read_sweep

QUICKSTART_FOLLOW_UP = "tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"


def report_end_of_sweep(plan: Plan, store: Storage, mirror: MlflowMirror) -> int:
    """Print how a start ended, and make its report; return 1 if trials of the plan failed, else 0."""
    shown = typed_paths.make_path_relative(store.root)
    Console(width=None if sys.stdout.isatty() else 120).print(tabulate_references_and_choices(plan, store))
    print_line("making the report")  # in a process of its own: the driver does not import the analysis
    command = [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location]
    done = subprocess.run(command, cwd=provenance.CODE_ROOT, capture_output=True, text=True)
    if done.returncode:
        print_line(f"no report: {last_line_of_text(done.stderr)}")
    print_line(f"report: {shown / 'reports' / plan.name / 'index.html'}")
    print_line(describe_mlflow_page(store, mirror.page_path))
    first = read_sweep(store.sweep(plan.sweep.name, plan.hash)).command
    print_line(f"next:   {suggest_next_command(plan, first, store)}")
    mirror.log_report()
    if mirror.problem is not None:
        sync = f".venv/bin/python -m platform.tracking sync {plan.name}{format_storage_option(store)}"
        print_line(f"MLflow is behind ({first_error_line(mirror.problem)}); mend it with: {sync}")
    results = filter(None, (store.result(trial.id()) for trial in plan.trials))
    failed = [result for result in results if result["status"] in FAILED_STATUSES]
    for result in failed:
        message = (result.get("error") or {}).get("message")
        print_line(f"{result['status']}: {result['id']} {message} ({store.trial(result['id']) / ERROR})")
    lost = sum(result["status"] == LOST for result in failed)
    if lost:
        print_line(f"{format_count(lost, 'trial')} lost; --resume goes on with what they had")
    if len(failed) > lost:
        print_line(f"{format_count(len(failed) - lost, 'trial')} failed; --retry-failed runs them again")
    return 1 if failed else 0


def describe_mlflow_page(store: Storage, page: str) -> str:
    """Return where MLflow is, or the command that starts its UI; below, the sweep's table there and its chart."""
    uri = redact(
        os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{typed_paths.make_path_relative(store.root) / 'mlflow.db'}"
    )
    program = typed_paths.make_path_relative(Path(sys.executable).with_name("mlflow"))
    server = uri if uri.startswith("http") else "http://127.0.0.1:5000"
    shown = uri if uri.startswith("http") else f"{program} ui --backend-store-uri {uri}"
    links = f"\n  table: {server}/{page}\n  chart: {server}/{page}{MLFLOW_CHART_QUERY}" if page else ""
    return f"MLflow: {shown}{links}"


def suggest_next_command(plan: Plan, command: str, store: Storage) -> str:
    """Return what to type after `command`: a chat with the model that it wrote, more seeds after one, or an export."""
    storage = format_storage_option(store)
    for trial in reversed(plan.trials) if plan.sweep.export else ():
        if store.exists(store.root / "exports" / trial.id()):
            return f"python -m trainables.chat {trial.id()}{storage}   (the model that was written)"
    if plan.sweep.name == "quickstart":
        return f".venv/bin/python -m platform.sweep {QUICKSTART_FOLLOW_UP}   (TOFU's real rows, 10 of its 165 trials)"
    if len({trial.seed for trial in plan.trials}) == 1 and plan.strategy != "optuna" and "seed=" not in command:
        return f"{format_resume_command(command, storage)} --seeds 0,1,2   (one seed gives no verdict)"
    return f"python -m trainables.export ID --output DIR{storage}   (ID: the report's column Trial)"


def tabulate_references_and_choices(plan: Plan, store: Storage) -> Table:
    """Return a table of the goals, means over seeds: the reference models, then the chosen setting of each study."""
    name, rule = plan.sweep.benchmark.name, plan.sweep.selection
    goals = benchmarks.get_benchmark(name).GOALS
    table = Table("split", "method", "rectifier", "setting", "seeds", *(goal.short for goal in goals), box=box.SIMPLE)

    def add(labels: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> None:
        metrics = [selection.pick_half_metrics(document, rule, reported=True) for document in documents]
        columns = [[one[goal.metric] for one in metrics if one.get(goal.metric) is not None] for goal in goals]
        shown = [f"{fmean(v):.{goal.digits}f}" if v else "" for goal, v in zip(goals, columns, strict=True)]
        table.add_row(*labels, *shown)

    for ref in plan.references:
        add((ref.split, ref.role, "", "", ""), [store.read_evaluation(ref.evaluation) or {}])
    chosen: dict[str, list[Trial]] = {}
    for trial in choose_trials_of_each_study(plan, store):
        chosen.setdefault(trial.study(), []).append(trial)
    for trials in chosen.values():
        first, seeds = trials[0], str(len(trials))
        labels = (first.benchmark.split, first.method, first.rectifier.name, plan.label(first), seeds)
        add(labels, [store.result(trial.id()) or {} for trial in trials])
    return table
