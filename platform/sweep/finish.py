"""The end of a start: its report, which prints its tables, MLflow's page and what to type next."""

import os
import subprocess
import sys
from pathlib import Path

from platform.plan.plan import Plan
from platform.state.manifest import format_resume_command
from platform.state.trial_outcomes import add_recorded_trials_to_plan
from platform.sweep.chosen_trials import judge_splits
from platform.tracking.mirror import MlflowMirror
from trainables.common import provenance, typed_paths
from trainables.common.cli import print_line
from trainables.common.errors import first_error_line
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.storage.file_names import ERROR, FAILED_STATUSES, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option
from trainables.storage.sweep_file import read_sweep

QUICKSTART_FOLLOW_UP = "tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"


def report_end_of_sweep(plan: Plan, store: Storage, mirror: MlflowMirror) -> int:
    """Make a start's report, which prints its tables, and print the rest; return 1 if trials or the report failed."""
    print_line("making the report")  # in a process of its own: the driver does not import the analysis
    command = [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location]
    if no_report := subprocess.run(command, cwd=provenance.CODE_ROOT, check=False).returncode:
        again = f"python -m analysis.report {plan.name}{format_storage_option(store)}"
        print_line(f"no report; when that is mended: {again} (or with --output DIR, into another folder)")
    database = typed_paths.make_path_relative(store.root) / "mlflow.db"
    uri = redact(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{database}")
    program = typed_paths.make_path_relative(Path(sys.executable).with_name("mlflow"))
    shown = uri if uri.startswith("http") else f"{program} ui --backend-store-uri {uri}"
    print_line(f"MLflow: {shown}")
    if page := mirror.runs and mirror.runs.page:
        server = uri if uri.startswith("http") else "http://127.0.0.1:5000"
        print_line(f"  table: {server}/{page}\n  chart: {server}/{page}&compareRunsMode=CHART")
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
    return int(bool(failed or no_report))


def suggest_next_command(plan: Plan, command: str, store: Storage) -> str:
    """Return what to type after `command`: a chat with the model that it wrote, more seeds after one, or an export."""
    storage = format_storage_option(store)
    every = add_recorded_trials_to_plan(plan, store, every=True)
    for _, found, _ in judge_splits(every, store) if plan.sweep.export else ():
        if found.key and not found.reason and store.find_export(found.key):
            return f"python -m trainables.chat {found.key}{storage}   (the model that was written)"
    if plan.sweep.benchmark.name == "own" and plan.sweep.export:
        return "docs/own.md says which settings decide most   (no model was written)"
    if plan.sweep.name == "quickstart":
        return f".venv/bin/python -m platform.sweep {QUICKSTART_FOLLOW_UP}   (TOFU's real rows, 10 of its 165 trials)"
    if len({trial.seed for trial in plan.trials}) == 1 and plan.strategy != "optuna" and "seed=" not in command:
        return f"{format_resume_command(command, storage)} --seeds 0,1,2   (one seed gives no verdict)"
    return f"python -m trainables.export ID --output DIR{storage}   (ID: the report's column Trial)"
