"""A sweep from a laptop: what is refused here, and what a job server is asked."""

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.job_submission import JobStatus

import platform.sweep.__main__ as sweep
from platform.cluster import submit
from tests.support import starts
from tests.support.starts import invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS, SERVER

signals = starts.signals
FILE = "cluster_name: some\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    return path


REFUSED = [  # the cluster file's text, what is typed, what is said
    (None, "quickstart", "'{file}': No such file or directory; name a cluster file, such as cluster.yaml"),
    (FILE, "quickstrat", "error: unknown sweep 'quickstrat'"),
    (FILE, "quickstart --address auto", "--cluster and --address exclude each other"),
    (FILE, "own --set=target=hf_of_nobody", "--cluster: --set=target=*** holds a password or token, which the"),
    (FILE, "own --storage=s3://somebody:word@bucket/x", "--cluster: --storage=s3://***@bucket/x holds a password or"),
]


@pytest.mark.parametrize(("text", "typed", "message"), REFUSED)
def test_what_is_wrong_here_is_said_before_the_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, typed: str, message: str
) -> None:
    file, command = tmp_path / "cluster.yaml", [*typed.split(), "--cluster", str(tmp_path / "cluster.yaml")]
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    monkeypatch.setattr(sys, "argv", ["sweep", *command])
    if text is not None:
        file.write_text(text)
    done = invoke(sweep.main, *command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message.format(file=file) in done.stderr


def test_a_cluster_that_does_not_answer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, message = "import time; time.sleep(60)", "is it up (ray up "
    monkeypatch.setattr(submit, "RAY_COMMAND", [sys.executable, "-c", script])
    monkeypatch.setattr(submit, "START_TIMEOUT", 0.1)
    done = invoke(sweep.main, "quickstart", "--cluster", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert not [child for child in psutil.Process().children() if script in child.cmdline()]


class Jobs:
    """Stands for a job server, whose jobs print `log` when they are followed, and end well after it."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self.log: list[str | type[BaseException]] = []
        self.sent = ""

    def submit_job(self, entrypoint: str, submission_id: str, metadata: dict[str, str] | None) -> str:
        job = {"submission_id": submission_id, "entrypoint": entrypoint, "metadata": metadata}
        self.sent += repr(job)
        self.jobs[submission_id] = SimpleNamespace(**job, status=JobStatus.RUNNING, driver_exit_code=0)
        return submission_id

    def list_jobs(self) -> list[Any]:
        return list(self.jobs.values())

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for text in self.log:
            if not isinstance(text, str):
                raise text
            yield text
        self.jobs[job].status = JobStatus.SUCCEEDED

    def get_job_info(self, job: str) -> Any:
        return self.jobs[job]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Return the job server, which gets to know no secret of this machine."""
    found = Jobs()
    for name, value in {**SECRETS, "MLFLOW_TRACKING_URI": SERVER}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(submit, "open_job_client", lambda place: contextlib.nullcontext(found))
    yield found
    assert found.sent
    assert not [secret for secret in HIDDEN if secret in found.sent]


def test_a_sweep_goes_on_without_the_laptop_and_is_found_again(
    jobs: Jobs, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make rehearsal` does the same on hosts, with a laptop that goes away."""

    def start(*typed: str) -> tuple[int, str, str]:
        words = [*typed, "--cluster", str(file)]
        monkeypatch.setattr(sys, "argv", ["sweep", *words])
        done = invoke(sweep.main, *words)
        return done.exit_code, done.stdout, done.stderr

    jobs.log = ["storage /srv\n", KeyboardInterrupt]
    status, out, err = start("quickstart", "--seeds", "0,1")
    (job,) = jobs.jobs
    assert (status, out) == (130, "storage /srv\n")
    assert jobs.jobs[job].entrypoint == (
        "cd ~/unlearning && exec .venv/bin/python -m platform.sweep quickstart --seeds 0,1"
    )
    again = f"python -m platform.sweep quickstart --seeds 0,1 --cluster {file}"
    stop = f"ray exec {file} 'cd ~/unlearning && .venv/bin/ray job stop {job}'"
    assert err == f"submitted {job}\n\ndetached; {job} goes on. See it again: {again}\nstop it: {stop}\n"

    fetched: list[str] = []
    monkeypatch.setattr(submit, "_fetch_report", lambda place, log: fetched.append(log))
    jobs.log = ["report: /srv/reports/quickstart-01/index.html\n"]
    status, out, err = start("quickstart", "--seeds", "0,1", "--resume")
    assert (status, out, len(jobs.jobs)) == (0, jobs.log[0], 1)
    assert f"attached to {job}, which runs already" in err
    assert fetched == jobs.log
