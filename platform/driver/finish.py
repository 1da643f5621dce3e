"""What a start says at its end: the table, where everything is, what failed, what to run next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from platform.plan.value import Plan
from platform.state import manifest
from trainables.common import cli, paths, provenance
from trainables.config.ids import digest
from trainables.storage import files
from trainables.storage.base import ERROR, FAILURES, LOST, Storage
from trainables.storage.results import summarise

OF = "of.json"
"""In a report's folder: what it was made from, so that a start that changed nothing need not make it again."""

AFTER_QUICKSTART = (
    ".venv/bin/python -m platform.sweep tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"
    "   (TOFU's real rows, 10 of its 165 trials)"
)
Say = Callable[[str], None]


def end(plan: Plan, store: Storage, say: Say) -> int:
    """Say how a start ended; 1 where trials of the plan failed, else 0."""
    shown = paths.shown(store.root)
    folder = store.root / "reports" / plan.name
    document = manifest.load_sweep(plan.name, store)
    results = {key: result for key in document["trials"] if (result := summarise(store, key))}
    of = {"results": digest({key: result.started for key, result in results.items()})}
    of |= {"commit": provenance.commit()[0], "selection": document["selection"]}
    again = [folder / "tables" / f"{name}.md" for name in ("verdict", "main")]
    if files.read_json(folder / OF) == of and all(path.is_file() for path in again):
        for path in again:
            say(path.read_text(encoding="utf-8").rstrip())
    elif _report(plan, store, say):
        files.write_json(folder / OF, of)
    say(f"report: {shown / 'reports' / plan.name / 'index.html'}")
    server = os.environ.get("MLFLOW_TRACKING_URI")
    own = f".venv/bin/mlflow ui --backend-store-uri sqlite:///{shown / 'mlflow.db'}  (http://127.0.0.1:5000)"
    say(f"MLflow: {server or own}")
    say(f"next:   {_next(plan, store)}")
    planned = (trial.id() for trial in plan.trials)
    failed = [key for key in planned if key in results and results[key].status in FAILURES]
    for key in failed:
        say(f"{results[key].status}: {key} {results[key].message} ({store.trial(key) / ERROR})")
    lost = sum(results[key].status == LOST for key in failed)
    if lost:
        say(f"{cli.format_count(lost, 'trial')} lost; --resume goes on with what they had")
    if len(failed) > lost:
        say(f"{cli.format_count(len(failed) - lost, 'trial')} failed; --retry-failed runs them again")
    return 1 if failed else 0


def _report(plan: Plan, store: Storage, say: Say) -> bool:
    """Make the report and say its table; whether it could be made."""
    report = subprocess.run(
        [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location],
        cwd=provenance.ROOT,
        capture_output=True,
        text=True,
    )
    if report.returncode:
        say(f"no report: {(report.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        return False
    say("\n".join(line for line in report.stdout.splitlines() if not line.startswith("report:")).rstrip())
    return True


def _next(plan: Plan, store: Storage) -> str:
    if plan.sweep.name == "quickstart":
        return AFTER_QUICKSTART
    report = f".venv/bin/python -m analysis.report {plan.name}{manifest.storage_option(store)}"
    return f"{report}   (or another seed: --seeds 0,1,2)"
