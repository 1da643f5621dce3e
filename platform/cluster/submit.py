"""A sweep from a laptop: a job of a running cluster, whose log is shown here, and which goes on without us.

Only the command travels, no variable of this machine: tokens and passwords are the cluster's own.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from platform.cluster import connect_to_jobs
from platform.cluster.connect_to_jobs import Cluster
from platform.state.typed_commands import drop_options, resume_command
from trainables.common.errors import InputError
from trainables.common.redaction import redact

NAME, ARGUMENTS = "sweep", "arguments"
"""A job's metadata: what it runs."""
ALIVE = ("PENDING", "RUNNING")
REPORT = re.compile(r"^report: (.+)/index\.html$", re.MULTILINE)
"""The line by which a sweep names its report (platform.sweep.finish)."""
RAY_LINES = re.compile(r"^(\S+ \S+\tINFO job_manager\.py:\d+ -- |Running entrypoint for job ).*\n", re.MULTILINE)
"""Ray's own lines in a job's log."""
POLL_SECONDS = 1.0


def run_sweep(name: str, place: str, arguments: Sequence[str]) -> int:
    """Run a sweep on a cluster, or attach to the job that runs it; return its exit status, 130 where we detach.

    Raises InputError where the cluster does not answer or runs the sweep with other `arguments`.
    """
    from aiohttp import ClientError

    typed = drop_options(arguments, ["--cluster"])
    cluster = connect_to_jobs.find_cluster(place)
    _refuse_secrets(typed)
    if cluster.kubernetes and "--dry-run" in typed:  # which needs no Ray
        return cluster.kubernetes.run_command("platform.sweep", typed)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    job = None
    try:
        with connect_to_jobs.open_client(cluster) as client:
            job = _find_job(client, name, typed, cluster)
            if job:
                _print_note(f"attached to {job}, which runs already; its log from the beginning:")
            else:
                metadata = {NAME: name, ARGUMENTS: shlex.join(typed)}
                job = _submit(client, cluster, "platform.sweep", typed, name, metadata)
                _print_note(f"submitted {job}")
            log = _follow_log(client, job, lambda text: print(text, end="", flush=True))
            status = _wait_for_status(client, job)
            _fetch_report(cluster, log)
            return status
    except (OSError, RuntimeError, ClientError) as error:
        reason = str(error) or type(error).__name__
        if job is None:
            raise InputError(f"--cluster: the job server refused: {reason}") from error
        _print_note(f"\nthe connection is lost ({reason}); {_resume_hint(cluster, job)}")
        return 1
    except KeyboardInterrupt:
        _print_note(f"\ndetached; {_resume_hint(cluster, job)}" if job else "\nstopped; nothing was submitted")
        return 130


def run_command(place: str, module: str, arguments: Sequence[str]) -> int:
    """Run a short command on a cluster and print its output; return its exit status."""
    cluster, typed = connect_to_jobs.find_cluster(place), drop_options(arguments, ["--cluster"])
    if cluster.kubernetes:
        return cluster.kubernetes.run_command(module, typed)
    with connect_to_jobs.open_client(cluster) as client:
        job = _submit(client, cluster, module, typed, module.split(".")[-1], None)
        try:
            _follow_log(client, job, lambda text: None)
            status = _wait_for_status(client, job)
            print(RAY_LINES.sub("", client.get_job_logs(job)), end="", file=sys.stderr if status else sys.stdout)
        finally:
            if client.get_job_status(job).is_terminal():
                client.delete_job(job)
    return status


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


def _submit(
    client: Any, cluster: Cluster, module: str, arguments: Sequence[str], name: str, metadata: dict[str, str] | None
) -> str:
    """Submit `python -m module arguments` as a job called after `name`; return its id."""
    return client.submit_job(
        entrypoint=cluster.spell_command(module, arguments),
        submission_id=f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        metadata=metadata,
    )


def _find_job(client: Any, name: str, arguments: list[str], cluster: Cluster) -> str | None:
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
        attach = f"python -m platform.sweep {typed} --cluster {shlex.quote(cluster.place)}"
        raise InputError(
            f"--cluster: {job.submission_id} runs {name} with other arguments; attach to it with: {attach}; or stop it "
            f"with: {cluster.stop_command(job.submission_id)}"
        )
    return None


def _follow_log(client: Any, job: str, show: Callable[[str], None]) -> str:
    """Show a job's log to its end; return its last part, in which the report is named."""

    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)

    async def follow() -> str:
        tail = ""
        async for text in client.tail_job_logs(job):
            show(RAY_LINES.sub("", text))
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


def _fetch_report(cluster: Cluster, log: str) -> None:
    """Copy the report here, where the sweep has named one."""
    named = REPORT.findall(log.replace("\r\n", "\n"))
    if not named:
        return
    if cluster.kubernetes:
        _print_note(f"the report is in {cluster.kubernetes.storage.rstrip('/')}/reports/{Path(named[-1]).name}")
        return
    if cluster.is_address:
        _print_note(f"the report is on the cluster, in {named[-1]} of {cluster.repository}")
        return
    local = Path("runs") / "reports" / Path(named[-1]).name
    problem = connect_to_jobs.fetch_folder(cluster, named[-1], local.absolute())
    _print_note(f"the report was not fetched: {problem}" if problem else f"fetched: {local / 'index.html'}")


def _resume_hint(cluster: Cluster, job: str) -> str:
    """Return how to see a job again, and how to stop it."""
    again = f"python -m platform.sweep {shlex.join(sys.argv[1:])}"
    return f"{job} goes on. See it again: {again}\nstop it: {cluster.stop_command(job)}"
