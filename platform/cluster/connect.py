"""The way from here to a cluster's job server: through the ssh forward that `ray dashboard FILE` makes, or directly."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from trainables.common import paths, provenance
from trainables.common.errors import InputError

REPOSITORY = "~/unlearning"
"""Where the repository is on a cluster that is named by an address."""
PATIENCE = 90.0
"""Seconds until the job server has to answer."""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


@dataclass(frozen=True)
class Cluster:
    """What --cluster names: `place` as it was typed, `repository` as a shell of the cluster takes it."""

    place: str
    repository: str

    @property
    def by_address(self) -> bool:
        return _is_address(self.place)

    def stop(self, job: str) -> str:
        """The command that stops a job."""
        if self.by_address:
            return f"ray job stop {job} --address {self.place}"
        inner = f"cd {self.repository} && .venv/bin/ray job stop {job}"
        return shlex.join(["ray", "exec", self.place, inner])


def find(place: str) -> Cluster:
    """The cluster of a file or an address. Raises InputError where neither can be one."""
    if _is_address(place):
        return Cluster(place.rstrip("/"), REPOSITORY)
    if not paths.is_file(place):
        raise InputError(
            f"--cluster: there is no file '{place}'; give the file of ray up, or the address of a cluster's dashboard "
            "(http://127.0.0.1:8265)"
        )
    import yaml

    try:
        document = yaml.safe_load(paths.expand(place).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--cluster: '{place}' is not YAML: {' '.join(str(error).split())}") from error
    mounts = document.get("file_mounts") if isinstance(document, dict) else None
    for remote, local in (mounts or {}).items():
        if (provenance.ROOT / paths.expand(str(local))).resolve() == provenance.ROOT:
            return Cluster(place, _spelled(str(remote)))
    raise InputError(f"--cluster: file_mounts of '{place}' has no line for this repository, such as {REPOSITORY}: .")


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _spelled(path: str) -> str:
    """A path for a shell, which still knows whose home `~` is."""
    path = path.rstrip("/")
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


@contextlib.contextmanager
def client(cluster: Cluster) -> Iterator[Any]:
    """A JobSubmissionClient while the block runs. Raises InputError where nothing answers in time."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)  # Ray would take them over the address that it is given
    if cluster.by_address:
        yield _answering(cluster.place, cluster, None, None)
        return
    port = _free_port()
    with tempfile.TemporaryFile("w+", errors="replace") as said, _forward(cluster, port, said) as forward:
        yield _answering(f"http://127.0.0.1:{port}", cluster, forward, said)


@contextlib.contextmanager
def _forward(cluster: Cluster, port: int, said: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own: an interrupt that is meant for us does not cut it off before we do."""
    command = [*RAY, "dashboard", cluster.place, "--port", str(port)]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, text=True
    )
    try:
        yield child
    finally:
        _take_back(child, port)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _take_back(child: subprocess.Popen[str], port: int) -> None:
    """End the forward itself: Ray's ssh hands it to one in the background, which others may use and keep alive."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(child.pid).children(recursive=True):
            words = process.cmdline()
            if Path(words[0] if words else "").name == "ssh" and any(word.startswith(f"{port}:") for word in words):
                # the last word is what it runs over there
                cancel = [words[0], "-O", "cancel", *words[1:-1]]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(cancel, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)


def _answering(address: str, cluster: Cluster, forward: subprocess.Popen[str] | None, said: IO[str] | None) -> Any:
    """The client, as soon as the job server answers."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    end = time.monotonic() + (PATIENCE if forward else 0.0)
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
            if ended or time.monotonic() > end:
                raise InputError(_silence(cluster, str(error), said, ended)) from None
        time.sleep(0.5)


def _silence(cluster: Cluster, error: str, said: IO[str] | None, ended: bool) -> str:
    """Why nothing answers, as far as it is known here."""
    if said is None:
        return f"--cluster: no job server answers at '{cluster.place}' ({_last(error)})"
    said.seek(0)
    told = said.read()
    if "not found" in told and "ead node" in told:
        return f"--cluster: the cluster of '{cluster.place}' is not up; start it with: ray up {cluster.place}"
    if ended:
        return f"--cluster: 'ray dashboard {cluster.place}' ended: {_last(told)}"
    return (
        f"--cluster: the head of '{cluster.place}' answers, its dashboard does not; is Ray running there? See "
        f"{shlex.join(['ray', 'exec', cluster.place, 'ray status'])}"
    )


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def fetch(cluster: Cluster, remote: str, local: Path) -> str | None:
    """Copy a folder of the cluster's repository to here; what went wrong, None where nothing did."""
    local.mkdir(parents=True, exist_ok=True)
    source = f"{cluster.repository}/{remote.strip('/')}/"
    done = subprocess.run(
        [*RAY, "rsync-down", cluster.place, source, f"{local}/"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return _last(done.stderr or done.stdout) if done.returncode else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
