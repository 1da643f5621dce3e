"""The way from here to a cluster's jobs: the ssh forward that `ray dashboard FILE` makes, an address, or kubectl."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from platform.cluster import kuberay_checks
from platform.cluster.file import as_mapping, load_cluster_file
from platform.cluster.kuberay import KubernetesJobs
from platform.schedule.ray_environment import TOKEN
from trainables.common import provenance, typed_paths
from trainables.common.errors import InputError, last_line_of

REPOSITORY = "~/unlearning"
"""Where the repository is on a cluster that is named by an address."""
CONNECT_SECONDS = 90.0
"""Until the job server has to answer."""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


@dataclass(frozen=True)
class Cluster:
    """What --cluster names: a file or an address as it was typed, and the repository as a shell there takes it."""

    place: str
    repository: str
    is_address: bool = False
    kubernetes: KubernetesJobs | None = None

    def spell_command(self, module: str, arguments: Sequence[str]) -> str:
        """Return the command of a module of ours as a job runs it."""
        words = f"python -m {module} {shlex.join(arguments)}"
        return words if self.kubernetes else f"cd {self.repository} && exec .venv/bin/{words}"

    def stop_command(self, job: str) -> str:
        """Return the command that stops a job."""
        if self.kubernetes:
            return shlex.join([*self.kubernetes.command, "delete", "rayjob", job])
        if self.is_address:
            return f"ray job stop {job} --address {self.place}"
        inner = f"cd {self.repository} && .venv/bin/ray job stop {job}"
        return shlex.join(["ray", "exec", self.place, inner])


def find_cluster(place: str) -> Cluster:
    """Return the cluster of a file or an address. Raises InputError where neither can be one."""
    if place.startswith(("http://", "https://")):
        return Cluster(place.rstrip("/"), REPOSITORY, is_address=True)
    try:
        file = load_cluster_file(place)
    except InputError as error:
        raise InputError(
            f"--cluster: {error}; or give the address of a cluster's dashboard (http://127.0.0.1:8265)"
        ) from error
    if file.is_kubernetes:
        if problems := kuberay_checks.find_problems(file):
            more = f"; and {len(problems) - 1} more: python -m platform.cluster check {shlex.quote(place)}"
            raise InputError(f"--cluster: '{place}': {problems[0]}{more if problems[1:] else ''}")
        if shutil.which("kubectl") is None:
            raise InputError("--cluster: no kubectl here; install it, and let it reach the cluster (kubectl get pods)")
        return Cluster(place, "", kubernetes=KubernetesJobs(file.content))
    for remote, local in as_mapping(file.content.get("file_mounts")).items():
        if (provenance.ROOT / typed_paths.expand(str(local))).resolve() == provenance.ROOT:
            return Cluster(place, _quote(str(remote)))
    raise InputError(f"--cluster: file_mounts of '{place}' has no line for this repository, such as {REPOSITORY}: .")


def _quote(path: str) -> str:
    """Quote a path for a shell, which still has to expand `~`."""
    path = path.rstrip("/")
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


@contextlib.contextmanager
def open_client(cluster: Cluster) -> Iterator[Any]:
    """Yield a JobSubmissionClient, or what stands for one. Raises InputError where nothing answers in time."""
    if cluster.kubernetes:
        yield cluster.kubernetes
        return
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)  # Ray would take them over the address that it is given
    if cluster.is_address:
        yield _wait_for_server(cluster.place, cluster)
        return
    if Path(TOKEN).expanduser().exists():  # it is the one that `ray up` has sent to the cluster
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*RAY, "dashboard", cluster.place, "--port", str(port)]
    with tempfile.NamedTemporaryFile() as output:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        # in a session of its own: an interrupt that is meant for us does not cut it off before us
        forward = subprocess.Popen(command, **streams, start_new_session=True)
        try:
            yield _wait_for_server(f"http://127.0.0.1:{port}", cluster, forward, Path(output.name))
        finally:
            _cancel_forward(forward, port)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()


def _cancel_forward(child: subprocess.Popen[Any], port: int) -> None:
    """End the forward itself: Ray's ssh hands it to one in the background, which others may use and keep alive."""
    with contextlib.suppress(psutil.Error, subprocess.TimeoutExpired):
        for process in psutil.Process(child.pid).children(recursive=True):
            words = process.cmdline()
            if Path(words[0] if words else "").name == "ssh" and any(word.startswith(f"{port}:") for word in words):
                # the last word is what it runs over there
                cancel = [words[0], "-O", "cancel", *words[1:-1]]
                subprocess.run(cancel, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)


def _wait_for_server(
    address: str, cluster: Cluster, forward: subprocess.Popen[Any] | None = None, output: Path | None = None
) -> Any:
    """Return the client as soon as the job server answers; without a forward it has to answer at once."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + (CONNECT_SECONDS if forward else 0.0)
    hint = "" if cluster.is_address else f"; is it up (ray up {cluster.place}), and is Ray running on its head?"
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
                why = last_line_of(output.read_text(errors="replace") if ended and output else str(error))
                raise InputError(f"--cluster: no job server answers at '{cluster.place}' ({why}){hint}") from None
        time.sleep(0.5)


def fetch_folder(cluster: Cluster, remote: str, local: Path) -> str | None:
    """Copy a folder of the cluster, named from its repository or its root, to here; return what went wrong."""
    local.mkdir(parents=True, exist_ok=True)
    source = _quote(remote) if remote.startswith("/") else f"{cluster.repository}/{remote.strip('/')}"
    command = [*RAY, "rsync-down", cluster.place, f"{source}/", f"{local}/"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return last_line_of(done.stderr or done.stdout) if done.returncode else None
