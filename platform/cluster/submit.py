"""A sweep from a laptop, by a RayJob or a job of a running cluster: only the command travels."""

import asyncio
import contextlib
import copy
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from platform.cluster.check import ClusterFile, find_cluster_file_problems, load_cluster_file
from platform.schedule.ray_environment import RAY_TOKEN_FILE
from platform.state.manifest import format_resume_command, format_sweep_command
from trainables.common import cli
from trainables.common.deadlines import ANSWER_TIMEOUT, START_TIMEOUT, call_within
from trainables.common.errors import InputError, extract_last_line
from trainables.common.redaction import redact

REPOSITORY_ON_CLUSTER = "~/unlearning"
"""Where `file_mounts` of a cluster file puts this checkout."""
REPORT_LINE_PATTERN = re.compile(r"^report: (.+)/index\.html$", re.MULTILINE)
"""The line by which a report says where it is, at the end of a sweep (analysis.report)."""
RAY_COMMAND = [sys.executable, "-m", "ray.scripts.scripts"]


def run_sweep_on_cluster(name: str, place: str, arguments: Sequence[str]) -> int:
    """Run a sweep on a file's cluster, or attach to the job that runs it; return its status, 130 where we detach."""
    from aiohttp import ClientError

    pairs = zip(arguments, ["", *arguments], strict=False)
    typed = [word for word, before in pairs if "--cluster" not in (word, before) and not word.startswith("--cluster=")]
    for part in typed:
        if redact(part) != part:
            raise InputError(
                f"--cluster: {redact(part)} holds a password or token, which the cluster's dashboard would show; set "
                "it in the environment of the head (~/.bashrc there; with KubeRay a Secret that envFrom names) instead"
            )
    file = load_cluster_file(place)
    if file.is_batch_script:
        raise InputError(f"'{place}' is a batch script for Slurm; submit it with: sbatch {shlex.quote(place)}")
    if file.is_kubernetes:
        return _create_rayjob(file, name, typed)
    for number in (signal.SIGTERM, signal.SIGHUP):  # the forward ends with us
        signal.signal(number, signal.default_int_handler)
    job = None
    try:
        with open_job_client(place) as client:
            job = call_within(ANSWER_TIMEOUT, "the job server", lambda: submit_or_find_job(client, name, typed))
            log = asyncio.run(_follow_log(client, job))
            ask = partial(client.get_job_info, job)
            while not (info := call_within(ANSWER_TIMEOUT, "the job server", ask)).status.is_terminal():
                time.sleep(1)
            if info.driver_exit_code is None:  # Ray itself ended it
                cli.print_line(f"{job} {info.status.value.lower()}: {info.message}", error=True)
            _fetch_report(place, log)
            return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1
    except (OSError, RuntimeError, ClientError) as error:
        reason = str(error) or type(error).__name__
        if job is None:
            raise InputError(f"--cluster: the job server refused: {reason}") from error
        cli.print_line(f"\nthe connection is lost ({reason}); {_resume_hint(place, job, arguments)}", error=True)
        return 1
    except KeyboardInterrupt:
        said = f"detached; {_resume_hint(place, job, arguments)}" if job else "stopped; nothing was submitted"
        cli.print_line(f"\n{said}", error=True)
        return 130


def _create_rayjob(file: ClusterFile, name: str, arguments: Sequence[str]) -> int:
    """Make a RayJob like the file's that runs the sweep; print how to follow and to stop it. Raises InputError."""
    if problems := find_cluster_file_problems(file):
        check = f"python -m platform.cluster check {shlex.quote(str(file.path))}"
        raise InputError(f"--cluster: '{file.path}': {problems[0]}; all that is to mend: {check}")
    if shutil.which("kubectl") is None:
        raise InputError("--cluster: no kubectl here; install it, and let it reach the cluster (kubectl get pods)")
    job, words = copy.deepcopy(file.content), list(arguments)
    namespace = job["metadata"].get("namespace")
    job["metadata"].pop("name", None)
    job["metadata"]["generateName"] = f"{name.replace('_', '-')}-"
    if {"--new", "--retry-failed"} & set(words):  # a retry would set aside again what is done
        job["spec"]["backoffLimit"] = 0
    elif "--resume" not in words:
        words.append("--resume")
    job["spec"]["entrypoint"] = f"python -m platform.sweep {shlex.join(words)}"
    kubectl = ["kubectl", *(["--namespace", namespace] if namespace else [])]
    command = [*kubectl, "create", "--filename=-", "--output=name"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"--cluster: kubectl: {extract_last_line(done.stderr, 'it failed')}")
    made, typed = done.stdout.strip(), shlex.join(kubectl)
    cluster = f"$({typed} get {made} --output jsonpath={{.status.rayClusterName}})"
    cli.print_line(f"submitted {made}, which goes on without this machine")
    cli.print_line(f"its state: {typed} get {made}")
    head = f"--selector ray.io/node-type=head,ray.io/cluster={cluster}"
    cli.print_line(f"its log:   {typed} logs --follow --tail=-1 --container ray-job-submitter {head}")
    cli.print_line(f"stop it:   {typed} delete {made}")
    return 0


@contextlib.contextmanager
def open_job_client(place: str) -> Iterator[Any]:
    """Yield a JobSubmissionClient by the forward of `ray dashboard FILE`. Raises InputError without an answer."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)  # Ray would take them over the address that it is given
    if Path(RAY_TOKEN_FILE).expanduser().exists():  # it is the one that `ray up` has sent to the cluster
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    from ray.job_submission import JobSubmissionClient  # below the variables: Ray reads them when it is imported

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command, deadline = [*RAY_COMMAND, "dashboard", place, "--port", str(port)], time.monotonic() + START_TIMEOUT
    with tempfile.TemporaryFile("w+") as output:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        # in a session of its own: an interrupt that is meant for us does not cut it off before us
        forward, client = subprocess.Popen(command, **streams, start_new_session=True), None
        try:
            while client is None:
                ended = forward.poll() is not None
                try:
                    connect = partial(JobSubmissionClient, f"http://127.0.0.1:{port}")
                    client = call_within(ANSWER_TIMEOUT, "the job server", connect)
                except (OSError, RuntimeError) as error:
                    if ended or time.monotonic() > deadline:
                        output.seek(0)
                        why = extract_last_line(output.read() if ended else str(error))
                        hint = f"is it up (ray up {place}), and is Ray running on its head?"
                        raise InputError(f"--cluster: no job server answers at '{place}' ({why}); {hint}") from None
                    time.sleep(0.5)
            yield client
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()


def submit_or_find_job(client: Any, name: str, arguments: Sequence[str]) -> str:
    """Return the job that runs just this sweep, or else a new one. Other starts of it meet at the sweep's lock."""
    command = format_sweep_command(arguments)
    for job in client.list_jobs():
        typed = (job.metadata or {}).get("command")
        if not job.status.is_terminal() and typed and format_resume_command(typed) == format_resume_command(command):
            said = f"attached to {job.submission_id}, which runs already; its log from the beginning:"
            cli.print_line(said, error=True)  # the standard stream is for what the sweep prints
            return job.submission_id
    made = client.submit_job(
        entrypoint=f"cd {REPOSITORY_ON_CLUSTER} && exec .venv/bin/{command}",
        submission_id=f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        metadata={"command": command},
    )
    cli.print_line(f"submitted {made}", error=True)
    return made


async def _follow_log(client: Any, job: str) -> str:
    """Print a job's log to its end; return its last part, in which the report is named."""
    tail = ""
    async for text in client.tail_job_logs(job):
        cli.print_line(text.replace("\r", ""), end="")
        tail = (tail + text)[-20_000:]
    return tail


def _fetch_report(place: str, log: str) -> None:
    named = REPORT_LINE_PATTERN.findall(log.replace("\r\n", "\n"))
    if not named:
        return
    remote = shlex.quote(named[-1]) if named[-1].startswith("/") else f"{REPOSITORY_ON_CLUSTER}/{named[-1]}"
    local = Path("runs") / "reports" / Path(named[-1]).name
    local.mkdir(parents=True, exist_ok=True)
    command = [*RAY_COMMAND, "rsync-down", place, f"{remote}/", f"{local.absolute()}/"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        cli.print_line(f"the report was not fetched: {extract_last_line(done.stderr or done.stdout)}", error=True)
    else:
        cli.print_line(f"fetched: {local / 'index.html'}", error=True)


def _resume_hint(place: str, job: str, arguments: Sequence[str]) -> str:
    stop = shlex.join(["ray", "exec", place, f"cd {REPOSITORY_ON_CLUSTER} && .venv/bin/ray job stop {job}"])
    return f"{job} goes on. See it again: {format_sweep_command(arguments)}\nstop it: {stop}"
