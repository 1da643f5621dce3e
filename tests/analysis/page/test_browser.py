"""What a person sees in a browser: the report, and MLflow's UI of a sweep, in a headless Chromium that is Debian's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from analysis import report, runs
from platform.tracking import tracker, views
from tests.support import browser
from tests.support.browser import Page
from tests.support.environment import INHERITED_PREFIXES
from tests.support.sweep_store import write_store
from tests.support.tracked_store import TRIALS, write_sweep
from tests.support.tracked_store import write_store as write_tracked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium: apt-get install chromium fonts-dejavu-core"),
]
KNOWN = ("/mlflow/users/current", "ResizeObserver loop completed")
"""MLflow 3.17's page asks for the first, and its own server without accounts answers 404; the second is Chromium's word
for a layout that took two passes."""

AXES = """[...document.querySelectorAll('.parcoords .dimension')].map(axis => [
    (axis.querySelector('.axis-label-tooltip text') ?? axis.querySelector('.label')).textContent,
    [...axis.querySelectorAll('.tick text')].map(tick => tick.textContent)])"""
"""The name of each axis of the parallel coordinates, and its ticks. Of a long name the label is its two ends; the whole
is in a tooltip."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser.opened(tmp_path) as found:
        found.size(1600, 1000)
        yield found


def test_report_is_whole_in_a_browser(page: Page, tmp_path: Path) -> None:
    """And comes from its one file: nothing is asked of a network."""
    folder = report.build("tiny", write_store(tmp_path / "store"))
    page.open((folder / "index.html").as_uri())
    page.says("w/ GRU")
    said = page.text()
    for words in ("tiny-0a1b2c3d", "Retrain", "FQ", "MU", "failed", "python -m analysis.report"):
        assert words in said, words
    widths = page.evaluate("[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width)")
    assert widths
    assert min(widths) > 200
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert {urlsplit(url).scheme for url in page.requests} <= {"file", "data"}
    assert page.problems == []
    assert page.screenshot(tmp_path / "report.png", whole=True).stat().st_size > 20_000


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
    clean = {name: value for name, value in os.environ.items() if not name.startswith(INHERITED_PREFIXES)}
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--workers", "1"]
    with (folder / "server.log").open("w") as log:
        started = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,  # at the root `python -m mlflow` would work too, but leave its folders there
            env=clean | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
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


def test_mlflow_shows_the_saved_view_its_charts_and_a_run(page: Page, server: tuple[str, str], tmp_path: Path) -> None:
    """Parallel coordinates are the first chart; its axes are gamma, tau and the goals."""
    from mlflow import MlflowClient

    address, experiment = server
    view = f"{address}/{views.LINK.format(experiment=experiment)}"
    page.size(2800, 1000)  # columns out of sight are not on the page
    page.open(f"{view}&workflowType=machine_learning")
    page.says("4 matching runs", 120)
    labels = [trial.label() for trial in TRIALS.values() if trial != TRIALS["missing"]]
    for words in (*labels, views.NAME, "forget_quality", "model_utility", "rectifier.gamma", "rectifier.tau"):
        page.says(words)
    page.screenshot(tmp_path / "runs.png")
    page.size(1600, 1000)
    page.open(f"{view}&compareRunsMode=CHART&workflowType=machine_learning")
    page.says("Trade-off", 120)
    page.says("Along training")
    page.wait("document.querySelectorAll('.js-plotly-plot, .parcoords').length >= 2", 120)
    page.wait(f"{AXES}.length > 0", 120)
    names, ticks = zip(*page.evaluate(AXES), strict=True)
    assert names == ("rectifier.gamma", "tau", "eval/forget_quality", "eval/model_utility")
    assert [[text for text in texts if text.strip()] for texts in ticks] == [["0.8"], ["none"], ["-2.5"], ["0.6"]]
    page.screenshot(tmp_path / "charts.png")
    label = TRIALS["rectified"].label()
    (run,) = MlflowClient(tracking_uri=address).search_runs([experiment], f"attributes.run_name = '{label}'")
    page.open(f"{address}/#/experiments/{experiment}/runs/{run.info.run_id}")
    for words in (label, "eval/model_utility", "rectifier.gamma", "outcome", "tofu/forget05"):
        page.says(words, 120)
    assert [problem for problem in page.problems if not any(words in problem for words in KNOWN)] == []


def test_trials_are_loaded_from_the_server(server: tuple[str, str]) -> None:
    loaded = runs.load("tiny", tracking=server[0])
    assert sorted(loaded["id"]) == sorted(trial.id() for name, trial in TRIALS.items() if name != "missing")
