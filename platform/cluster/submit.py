"""A sweep from a laptop: a job of a running cluster, whose log is shown here, and which goes on without us.

What travels is the command as it was typed, no variable of this machine: tokens and passwords are the cluster's own.
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

from platform.cluster import connect
from platform.cluster.connect import Cluster
from platform.state import manifest
from trainables.common import provenance
from trainables.common.errors import InputError
from trainables.common.redaction import redact

NAME, ARGUMENTS = "sweep", "arguments"
"""A job's metadata: what it runs."""
ALIVE = ("PENDING", "RUNNING")
REPORT = re.compile(r"^report: (.+)/index\.html$", re.MULTILINE)
"""The line by which a sweep names its report (platform.driver.finish)."""
RAYS = re.compile(r"^(\S+ \S+\tINFO job_manager\.py:\d+ -- |Running entrypoint for job ).*\n", re.MULTILINE)
"""Ray's own lines in a job's log."""
POLL = 1.0


def sweep(name: str, place: str, arguments: Sequence[str]) -> int:
    """Run a sweep on a cluster, or attach to the job that runs it; returns its exit status, 130 where we detach.

    `arguments`: as typed after `python -m platform.sweep`. Raises InputError where the cluster does not answer or runs
    the sweep otherwise.
    """
    from aiohttp import ClientError

    told = without_cluster(arguments)
    cluster = connect.find(place)
    _check_secrets(told)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    job = None
    try:
        with connect.client(cluster) as client:
            job = _running(client, name, told, cluster)
            if job:
                _note(f"attached to {job}, which runs already; its log from the beginning:")
            else:
                job = _submit(client, name, told, cluster)
                _note(f"submitted {job}")
            log = _follow(client, job, lambda text: print(text, end="", flush=True))
            status = _ended(client, job)
            _fetch(cluster, log)
            return status
    except (OSError, RuntimeError, ClientError) as error:
        reason = str(error) or type(error).__name__
        if job is None:
            raise InputError(f"--cluster: the job server refused: {reason}") from error
        _note(f"\nthe connection is lost ({reason}); {_go_on(cluster, job)}")
        return 1
    except KeyboardInterrupt:
        _note(f"\ndetached; {_go_on(cluster, job)}" if job else "\nstopped; nothing was submitted")
        return 130


def ask(place: str, module: str, arguments: Sequence[str]) -> int:
    """Run a short command on a cluster and print what it says; returns its exit status."""
    cluster = connect.find(place)
    told = without_cluster(arguments)
    with connect.client(cluster) as client:
        job = client.submit_job(entrypoint=_entrypoint(cluster, module, told), submission_id=_id(module.split(".")[-1]))
        try:
            _follow(client, job, lambda text: None)
            status = _ended(client, job)
            print(RAYS.sub("", client.get_job_logs(job)), end="", file=sys.stderr if status else sys.stdout)
        finally:
            if client.get_job_status(job).is_terminal():
                client.delete_job(job)
    return status


def _note(text: str) -> None:
    """Beside what the sweep itself says."""
    print(text, file=sys.stderr, flush=True)


def without_cluster(arguments: Sequence[str]) -> list[str]:
    """What was typed, for the cluster itself."""
    kept, parts = [], iter(arguments)
    for part in parts:
        if part == "--cluster":
            next(parts, None)
        elif not part.startswith("--cluster="):
            kept.append(part)
    return kept


def _check_secrets(arguments: Sequence[str]) -> None:
    """Refuse to send what everybody who sees the cluster's dashboard could read."""
    for part in arguments:
        if redact(part) != part:
            raise InputError(
                f"--cluster: {redact(part)} holds a password or token, which the cluster's dashboard would show; set "
                "it in the environment of the head (~/.bashrc there) instead"
            )


def _entrypoint(cluster: Cluster, module: str, arguments: Sequence[str]) -> str:
    return f"cd {cluster.repository} && exec .venv/bin/python -m {module} {shlex.join(arguments)}"


def _id(name: str) -> str:
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def _submit(client: Any, name: str, arguments: list[str], cluster: Cluster) -> str:
    return client.submit_job(
        entrypoint=_entrypoint(cluster, "platform.sweep", arguments),
        submission_id=_id(name),
        metadata={NAME: name, ARGUMENTS: shlex.join(arguments)},
    )


def _running(client: Any, name: str, arguments: list[str], cluster: Cluster) -> str | None:
    """The job that runs just this. Raises InputError where one runs the sweep with other arguments."""
    if "--dry-run" in arguments:
        return None
    for job in client.list_jobs():
        typed = (job.metadata or {}).get(ARGUMENTS)
        if job.status not in ALIVE or typed is None or (job.metadata or {}).get(NAME) != name:
            continue
        if "--dry-run" in shlex.split(typed):
            continue
        if manifest.go_on(typed) == manifest.go_on(shlex.join(arguments)):
            return job.submission_id
        again = f"python -m platform.sweep {typed} --cluster {shlex.quote(cluster.place)}"
        raise InputError(
            f"--cluster: {job.submission_id} runs {name} with other arguments; attach to it with: {again}; or stop it "
            f"with: {cluster.stop(job.submission_id)}"
        )
    return None


def _follow(client: Any, job: str, show: Callable[[str], None]) -> str:
    """Show a job's log to its end; returns its last part, in which the report is named."""

    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)

    async def work() -> str:
        kept = ""
        async for text in client.tail_job_logs(job):
            show(RAYS.sub("", text))
            kept = (kept + text)[-20_000:]
        return kept

    return asyncio.run(work())


def _ended(client: Any, job: str) -> int:
    """The exit status of a job; 1 where Ray itself ended it, with its reason."""
    while not (info := client.get_job_info(job)).status.is_terminal():
        time.sleep(POLL)
    if info.driver_exit_code is None:
        _note(f"{job} {info.status.value.lower()}: {info.message}")
    return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1


def _fetch(cluster: Cluster, log: str) -> None:
    """Bring the report here, where the sweep has told of one."""
    named = REPORT.findall(log.replace("\r\n", "\n"))
    if not named:
        return
    if cluster.by_address:
        _note(f"the report is on the cluster, in {named[-1]} of {cluster.repository}")
        return
    local = Path("runs") / "reports" / Path(named[-1]).name
    wrong = connect.fetch(cluster, named[-1], provenance.ROOT / local)
    _note(f"the report was not fetched: {wrong}" if wrong else f"fetched: {local / 'index.html'}")


def _go_on(cluster: Cluster, job: str) -> str:
    """How to see a job again, and how to stop it."""
    again = shlex.join(["python", "-m", "platform.sweep", *sys.argv[1:]])
    return f"{job} goes on. See it again: {again}\nstop it: {cluster.stop(job)}"
