"""What a person sees in a browser: the report, and MLflow's UI of a sweep, in a headless Chromium that is Debian's."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import report, runs
from platform.tracking import tracker, views
from tests.support import browser
from tests.support.browser import read_page
from tests.support.environment import clean_environment
from tests.support.sweep_store import write_store
from tests.support.tracked_store import TRIALS, write_sweep
from tests.support.tracked_store import write_store as write_tracked

pytestmark = pytest.mark.slow
chromium = pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium: apt-get install chromium fonts-dejavu-core")
KNOWN = ("/mlflow/users/current", "ResizeObserver loop completed")
"""MLflow 3.17's page asks for the first, and its own server without accounts answers 404; the second is Chromium's word
for a layout that took two passes."""

MEASURE = """<script>
for (const part of document.querySelectorAll('details')) part.open = true
const drawn = [...document.querySelectorAll('figure img')]
document.body.dataset.widths = drawn.map(e => e.getBoundingClientRect().width)
document.body.dataset.fits = document.documentElement.scrollWidth <= window.innerWidth
</script>"""


@chromium
def test_report_is_whole_in_a_browser(tmp_path: Path, written_figures: None) -> None:
    folder = report.build("tiny", write_store(tmp_path / "store"))
    with (folder / "index.html").open("a", encoding="utf-8") as page:
        page.write(MEASURE)
    shown, said = read_page((folder / "index.html").as_uri(), tmp_path / "profile", seconds=5)
    for words in ("tiny-0a1b2c3d", "w/ GRU", "Retrain", "FQ", "MU", "failed", "python -m analysis.report"):
        assert words in shown, words
    (widths,) = re.findall('data-widths="([^"]*)"', shown)
    assert min(map(float, widths.split(","))) > 200
    assert 'data-fits="true"' in shown
    assert said == ""
    narrow, _ = read_page((folder / "index.html").as_uri(), tmp_path / "phone", width=500, seconds=5)
    assert 'data-fits="true"' in narrow  # 500 px is the narrowest window that Chromium opens


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Return the address of MLflow's server over a small sweep, and the experiment's id; it ends with its group."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("served")
    store = write_tracked(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracker.sync(write_sweep(store), store)
    uri = f"sqlite:///{store.root / 'mlflow.db'}"
    experiment = MlflowClient(tracking_uri=uri).get_experiment_by_name("tiny")
    assert experiment is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--workers", "1"]
    with (folder / "server.log").open("w") as log:
        started = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,  # at the root `python -m mlflow` would work too, but leave its folders there
            env=clean_environment(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", started, folder / "server.log")
        yield f"http://127.0.0.1:{port}", experiment.experiment_id
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"MLflow's server did not start: {log.read_text()[-2000:]}")


@chromium
def test_mlflow_shows_the_saved_view_its_charts_and_a_run(server: tuple[str, str], tmp_path: Path) -> None:
    """Parallel coordinates are the first chart; its axes are gamma, tau and the goals."""
    from mlflow import MlflowClient

    address, experiment = server
    trial = TRIALS["rectified"].label()
    (run,) = MlflowClient(tracking_uri=address).search_runs([experiment], f"attributes.run_name = '{trial}'")
    charts = f"{address}/{views.LINK.format(experiment=experiment, sweep='tiny-0a1b2c3d')}"
    view, kind = charts.removesuffix("&compareRunsMode=CHART"), "workflowType=machine_learning"
    labels = [trial.label() for trial in TRIALS.values() if trial != TRIALS["missing"]]
    axes = ("rectifier.gamma", "eval/forget_quality", "eval/model_utility")
    pages = {
        f"{view}&{kind}": (*labels, views.NAME.format(sweep="tiny-0a1b2c3d"), "forget_quality", "rectifier.tau"),
        f"{charts}&{kind}": ("Trade-off", "Along training", *axes),
        f"{address}/#/experiments/{experiment}/runs/{run.info.run_id}": (trial, *axes, "outcome", "benchmark.split"),
    }
    for number, (url, expected) in enumerate(pages.items()):
        shown, said = read_page(url, tmp_path / f"{number}", width=2800)  # columns out of sight are not on the page
        assert [words for words in expected if words not in shown] == [], url
        assert [line for line in said.splitlines() if "Uncaught" in line and not any(k in line for k in KNOWN)] == []


def test_trials_are_loaded_from_the_server(server: tuple[str, str]) -> None:
    loaded = runs.load("tiny", tracking=server[0])
    assert sorted(loaded["id"]) == sorted(trial.id() for name, trial in TRIALS.items() if name != "missing")
