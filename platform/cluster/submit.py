"""A sweep from a laptop: a job of a running cluster, whose log is shown here, and which goes on without us.

Only the command travels, no variable of this machine: tokens and passwords are the cluster's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from platform.cluster import kuberay
from platform.cluster.check import load_cluster_file
from platform.schedule.ray_environment import TOKEN
from platform.state.typed_commands import drop_options, resume_command, typed_command
from trainables.common.errors import InputError, last_line_of
from trainables.common.redaction import redact

REPOSITORY = "~/unlearning"
"""Where `file_mounts` of a cluster file puts this checkout."""
NAME, ARGUMENTS = "sweep", "arguments"
"""A job's metadata: what it runs."""
ALIVE = ("PENDING", "RUNNING")
REPORT = re.compile(r"^report: (.+)/index\.html$", re.MULTILINE)
"""The line by which a sweep names its report (platform.sweep.finish)."""
RAY_LINES = re.compile(r"^(\S+ \S+\tINFO job_manager\.py:\d+ -- |Running entrypoint for job ).*\n", re.MULTILINE)
"""Ray's own lines in a job's log."""
CONNECT_SECONDS, POLL_SECONDS = 90.0, 1.0
"""Until the job server has to answer, and between two looks at a job that ends."""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def run_sweep(name: str, place: str, arguments: Sequence[str]) -> int:
    """Run a sweep on a cluster, or attach to the job that runs it; return its exit status, 130 where we detach.

    `place`: a file of `ray up` or KubeRay, or the address of a cluster's dashboard. Raises InputError where the cluster
    does not answer or runs the sweep with other `arguments`.
    """
    from aiohttp import ClientError

    typed = drop_options(arguments, ["--cluster"])
    _refuse_secrets(typed)
    if not _is_address(place):
        file = load_cluster_file(place)
        if file.is_batch_script:
            raise InputError(f"'{place}' is a batch script for Slurm; submit it with: sbatch {shlex.quote(place)}")
        if file.is_kubernetes:
            return kuberay.create_job(file, name, typed)
    for number in (signal.SIGTERM, signal.SIGHUP):  # the forward ends with us
        signal.signal(number, signal.default_int_handler)
    job = None
    try:
        with open_client(place) as client:
            job = _find_job(client, name, typed, place)
            if job:
                _print_note(f"attached to {job}, which runs already; its log from the beginning:")
            else:
                job = client.submit_job(
                    entrypoint=f"cd {REPOSITORY} && exec .venv/bin/python -m platform.sweep {shlex.join(typed)}",
                    submission_id=f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
                    metadata={NAME: name, ARGUMENTS: shlex.join(typed)},
                )
                _print_note(f"submitted {job}")
            log = _follow_log(client, job)
            status = _wait_for_status(client, job)
            _fetch_report(place, log)
            return status
    except (OSError, RuntimeError, ClientError) as error:
        reason = str(error) or type(error).__name__
        if job is None:
            raise InputError(f"--cluster: the job server refused: {reason}") from error
        _print_note(f"\nthe connection is lost ({reason}); {_resume_hint(place, job, arguments)}")
        return 1
    except KeyboardInterrupt:
        _print_note(f"\ndetached; {_resume_hint(place, job, arguments)}" if job else "\nstopped; nothing was submitted")
        return 130


@contextlib.contextmanager
def open_client(place: str) -> Iterator[Any]:
    """Yield a JobSubmissionClient, at an address or by the forward of `ray dashboard FILE`.

    Raises InputError where nothing answers in time.
    """
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)  # Ray would take them over the address that it is given
    if _is_address(place):
        yield _wait_for_server(place, place)
        return
    if Path(TOKEN).expanduser().exists():  # it is the one that `ray up` has sent to the cluster
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*RAY, "dashboard", place, "--port", str(port)]
    with tempfile.TemporaryFile("w+") as output:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        # in a session of its own: an interrupt that is meant for us does not cut it off before us
        forward = subprocess.Popen(command, **streams, start_new_session=True)
        try:
            yield _wait_for_server(f"http://127.0.0.1:{port}", place, forward, output)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _wait_for_server(
    address: str, place: str, forward: subprocess.Popen[Any] | None = None, output: Any | None = None
) -> Any:
    """Return the client as soon as the job server answers; without a forward it has to answer at once."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + (CONNECT_SECONDS if forward else 0.0)
    hint = f"; is it up (ray up {place}), and is Ray running on its head?" if forward else ""
    while True:
        ended = forward is not None and forward.poll() is not None
        try:
            return JobSubmissionClient(address)
        except AuthenticationError as error:
            raise InputError(
                "--cluster: the cluster wants its token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to what "
                "'ray get-auth-token' says on its head"
            ) from error
        except (OSError, RuntimeError) as error:
            if ended or time.monotonic() > deadline:
                if ended and output:
                    output.seek(0)
                why = last_line_of(output.read() if ended and output else str(error))
                raise InputError(f"--cluster: no job server answers at '{place}' ({why}){hint}") from None
        time.sleep(0.5)


def _print_note(text: str) -> None:
    """Print a note to the error stream: the standard one is for what the sweep prints."""
    print(text, file=sys.stderr, flush=True)


def _refuse_secrets(arguments: Sequence[str]) -> None:
    """Raise InputError for what everybody who sees the cluster's dashboard could read."""
    for part in arguments:
        if redact(part) != part:
            raise InputError(
                f"--cluster: {redact(part)} holds a password or token, which the cluster's dashboard would show; set "
                "it in the environment of the head (~/.bashrc there; with KubeRay a Secret that envFrom names) instead"
            )


def _find_job(client: Any, name: str, arguments: list[str], place: str) -> str | None:
    """Return the job that runs just this. Raises InputError where one runs the sweep with other arguments."""
    if "--dry-run" in arguments:
        return None
    for job in client.list_jobs():
        metadata = job.metadata or {}
        typed = metadata.get(ARGUMENTS)
        if job.status not in ALIVE or typed is None or metadata.get(NAME) != name or "--dry-run" in shlex.split(typed):
            continue
        if resume_command(typed) == resume_command(shlex.join(arguments)):
            return job.submission_id
        attach = typed_command([*shlex.split(typed), "--cluster", place])
        raise InputError(
            f"--cluster: {job.submission_id} runs {name} with other arguments; attach to it with: {attach}; or stop it "
            f"with: {_stop_command(place, job.submission_id)}"
        )
    return None


def _follow_log(client: Any, job: str) -> str:
    """Print a job's log to its end; return its last part, in which the report is named."""
    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)

    async def follow() -> str:
        tail = ""
        async for text in client.tail_job_logs(job):
            print(RAY_LINES.sub("", text), end="", flush=True)
            tail = (tail + text)[-20_000:]
        return tail

    return asyncio.run(follow())


def _wait_for_status(client: Any, job: str) -> int:
    """Return the exit status of a job; 1 where Ray itself ended it, with its reason."""
    while not (info := client.get_job_info(job)).status.is_terminal():
        time.sleep(POLL_SECONDS)
    if info.driver_exit_code is None:
        _print_note(f"{job} {info.status.value.lower()}: {info.message}")
    return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1


def _fetch_report(place: str, log: str) -> None:
    """Copy the report here, where the sweep has named one."""
    named = REPORT.findall(log.replace("\r\n", "\n"))
    if not named:
        return
    remote = shlex.quote(named[-1]) if named[-1].startswith("/") else f"{REPOSITORY}/{named[-1]}"
    if _is_address(place):
        _print_note(f"the report is on the cluster, in {remote}")
        return
    local = Path("runs") / "reports" / Path(named[-1]).name
    local.mkdir(parents=True, exist_ok=True)
    command = [*RAY, "rsync-down", place, f"{remote}/", f"{local.absolute()}/"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        _print_note(f"the report was not fetched: {last_line_of(done.stderr or done.stdout)}")
    else:
        _print_note(f"fetched: {local / 'index.html'}")


def _resume_hint(place: str, job: str, arguments: Sequence[str]) -> str:
    """Return how to see a job again, and how to stop it."""
    return f"{job} goes on. See it again: {typed_command(arguments)}\nstop it: {_stop_command(place, job)}"


def _stop_command(place: str, job: str) -> str:
    if _is_address(place):
        return f"ray job stop {job} --address {place}"
    return shlex.join(["ray", "exec", place, f"cd {REPOSITORY} && .venv/bin/ray job stop {job}"])
