"""The end of a start: makes the report if its trials changed, and prints its tables, where all is, and what is next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from platform.plan.plan import Plan
from platform.state import manifest
from platform.state.typed_commands import resume_command, storage_option
from platform.sweep.live_table import print_line
from trainables.common import provenance, typed_paths
from trainables.common.errors import last_line_of
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.config.ids import digest
from trainables.storage.atomic_files import read_json, write_json
from trainables.storage.folder_storage import Storage
from trainables.storage.names import ERROR, FAILURES, LOST, STOPPED

MADE_FROM = "of.json"
"""File in a report's folder that says what it was made from. A start that changed nothing does not make it again."""
MLFLOW_UI = "http://127.0.0.1:5000"
"""Where MLflow's UI listens, unless it is told otherwise."""
TABLES = ("verdict", "main", "retain_free", "uwc")
"""The tables of a report that a start prints, as far as it has them."""
AFTER_QUICKSTART = "tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"


def print_end(plan: Plan, store: Storage, page: str) -> int:
    """Print how a start ended; return 1 if trials of the plan failed, else 0. `page`: the sweep's view in MLflow."""
    shown = typed_paths.shorten(store.root)
    sweep = manifest.load_manifest(plan.name, store)
    results = {key: result for key in sweep.trials if (result := store.result(key))}
    made_from = {"results": digest({key: result["started"] for key, result in results.items()})}
    made_from |= {"commit": provenance.commit()[0], "selection": sweep.selection.model_dump(mode="json")}
    _print_report(plan, store, made_from)
    if plan.sweep.search.stop_dominated is not None and plan.strategy == "optuna":
        print_line(describe_saving(results.values()))
    print_line(f"report: {shown / 'reports' / plan.name / 'index.html'}")
    print(describe_mlflow(store, page), flush=True)  # redacted, the view's key would be hidden as a secret
    print_line(f"next:   {suggest_next(plan, sweep.command, storage_option(store))}")
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


def describe_mlflow(store: Storage, page: str) -> str:
    """Return where MLflow shows the sweep; without a server between, below the command that starts MLflow's UI."""
    uri = redact(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{typed_paths.shorten(store.root) / 'mlflow.db'}")
    if uri.startswith("http"):
        return f"MLflow: {uri}/{page}"
    program = typed_paths.shorten(Path(sys.executable).with_name("mlflow"))
    return f"MLflow: {program} ui --backend-store-uri {uri}\n        {MLFLOW_UI}/{page}"


def suggest_next(plan: Plan, command: str, storage: str) -> str:
    """Return the command to type after `command`, which is done: more seeds where there was one, else the export."""
    if plan.sweep.name == "quickstart":
        return f".venv/bin/python -m platform.sweep {AFTER_QUICKSTART}   (TOFU's real rows, 10 of its 165 trials)"
    if len({trial.seed for trial in plan.trials}) == 1 and plan.strategy != "optuna" and "seed=" not in command:
        return f"{resume_command(command, storage)} --seeds 0,1,2   (one seed gives no verdict)"
    return f"python -m trainables.export ID --output DIR{storage}   (ID: the report's column Trial)"


def describe_saving(results: Iterable[Mapping[str, Any]]) -> str:
    """Return how many trials a search has stopped, and what share of all steps that has saved."""
    trained = [result for result in results if result.get("training")]
    saved = [result["error"]["steps"] - result["error"]["step"] for result in trained if result["status"] == STOPPED]
    steps = sum(saved) + sum(result["training"]["steps"] for result in trained)
    return f"search: {len(saved)} of {format_count(len(trained), 'trial')} stopped, {sum(saved)} of {steps} steps saved"


def _print_report(plan: Plan, store: Storage, made_from: Mapping[str, Any]) -> None:
    """Print the report's tables. Make the report before, if there is none or it was made from something else."""
    folder = store.root / "reports" / plan.name
    tables = [folder / "tables" / f"{name}.md" for name in TABLES]
    if read_json(folder / MADE_FROM) != made_from or not tables[0].is_file():
        print_line("making the report")
        command = [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location]
        done = subprocess.run(command, cwd=provenance.ROOT, capture_output=True, text=True)
        if done.returncode:
            print_line(f"no report: {last_line_of(done.stderr)}")
            return
        write_json(folder / MADE_FROM, made_from)
    print_line("\n\n".join(path.read_text(encoding="utf-8").rstrip() for path in tables if path.is_file()))
