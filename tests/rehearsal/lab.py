"""The pretend hosts and the laptop of a rehearsal: what runs on the one, and what a person types on the other."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support import pages
from tests.support.environment import ROOT, free_port

HOSTS = Path(__file__).with_name("hosts.sh")
FILE = "clusters/rehearsal.yaml"
FOLDER, NET = "/tmp/unlearning-hosts", "10.77.0"
"""What the file says; HOSTS_DIR and HOSTS_NET change both (hosts.sh)."""
SSH = "sshd:openssh-server ssh:openssh-client rsync:rsync"
COUNT = 3
SETTINGS_OF_CALLER = ("PYTHON", "RAY_", "MLFLOW_", "UNLEARN_", "AWS_")
"""Settings of the caller that would change what a command does."""


class Broken(Exception):
    """The rehearsal found something that does not hold."""


def require(holds: object, message: str) -> None:
    if not holds:
        raise Broken(message)


def missing(tools: str) -> str:
    """Why no pretend host can be made here; empty where they can."""
    env = os.environ | {"HOSTS_TOOLS": tools}
    found = subprocess.run(["bash", HOSTS, "check"], env=env, capture_output=True, text=True, check=False)
    return (found.stdout + found.stderr).strip() if found.returncode else ""


@dataclass
class Lab:
    """`shared`: data and models at hand, beside the checkout."""

    shared: Path
    first: str = ""
    """What hosts run, instead of sshd."""
    tools: str = SSH
    """Commands that this needs, each with its package."""
    seen: tuple[Path, ...] = ()
    """Folders that all hosts see, beside data, models and the .venv."""
    folder: Path = field(default_factory=lambda: Path(os.environ.get("HOSTS_DIR", FOLDER)))
    net: str = field(default_factory=lambda: os.environ.get("HOSTS_NET", NET))
    name: str = field(default_factory=lambda: os.environ.get("HOSTS_NAME", "unlearn"))
    commands: list[Command] = field(default_factory=list)

    @property
    def needs(self) -> str:
        return ", ".join(tool.partition(":")[0] for tool in self.tools.split())

    @property
    def common(self) -> Path:
        """The folder that all hosts see, as /srv/shared."""
        return self.folder / "shared"

    @property
    def file(self) -> str:
        """The cluster file: the project's own, or a copy with other addresses."""
        if (str(self.folder), self.net) == (FOLDER, NET):
            return FILE
        copy = self.folder / "cluster.yaml"
        copy.write_text((ROOT / FILE).read_text().replace(FOLDER, str(self.folder)).replace(NET, self.net))
        return str(copy)

    def hosts(self, *words: object) -> None:
        """hosts.sh with these words."""
        seen = {str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix, self.shared, *self.seen)}
        env = os.environ | {"HOSTS_SEEN": ":".join(place for place in sorted(seen) if place.startswith("/tmp/"))}
        env |= {"HOSTS_FIRST": self.first}
        done = subprocess.run(["bash", HOSTS, *map(str, words)], env=env, capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"hosts.sh {shlex.join(map(str, words))}: {done.stdout}{done.stderr}")

    def share_folders(self) -> None:
        """What the hosts share: the .venv of this process, data and models; and a place for the laptop's files."""
        for name, place in {"venv": sys.prefix, "data": self.shared / "data", "models": self.shared / "models"}.items():
            (self.common / name).symlink_to(Path(place).resolve())
        (self.folder / "laptop").mkdir()

    def running(self, host: int) -> list[str]:
        """Return the command lines of everything that runs on a host."""
        found = subprocess.run(["ip", "netns", "pids", f"{self.name}-{host}"], capture_output=True, text=True)
        lines = []
        for pid in found.stdout.split():
            with contextlib.suppress(psutil.NoSuchProcess):
                lines.append(" ".join(psutil.Process(int(pid)).cmdline()))
        return lines

    def words_of(self, text: str, sweep: Sequence[str] = ()) -> list[str]:
        """The words of a line of the pages, with our file for its own and `sweep` for tofu_llama."""
        require(text in pages.cluster_commands(), f"neither README.md, On a cluster, nor docs/cluster.md says: {text}")
        words = ((self.file,) if word == "cluster.yaml" else (word,) for word in shlex.split(text))
        return [word for some in words for word in (sweep if some == ("tofu_llama",) else some)]

    def begin(self, *words: str, keys: str = "") -> Command:
        """Start a command on the laptop, as a person with .venv activated types it; `keys`: what follows as input."""
        log = self.folder / "laptop" / f"{len(self.commands):02}-{Path(words[0]).name}.log"
        place = str(self.folder / "laptop")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_OF_CALLER)}
        env = clean | {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "TMPDIR": place, "RAY_TMPDIR": place}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1", "COLUMNS": "160"}
        hand = log.with_suffix(".keys")
        hand.write_text(keys)
        with log.open("wb") as stream, hand.open("rb") as stdin:
            child = subprocess.Popen(words, cwd=ROOT, env=env, stdin=stdin, stdout=stream, stderr=stream)
        self.commands.append(Command(shlex.join(words), psutil.Process(child.pid), log))
        return self.commands[-1]

    def run(self, *words: str, seconds: float = 240, keys: str = "") -> str:
        """A command on the laptop to its end, which must be good; returns what it said."""
        return self.begin(*words, keys=keys).end(seconds)

    def on_head(self, command: str, seconds: float = 240) -> str:
        """A command that a person types on the head, in the repository."""
        return self.run("ray", "exec", self.file, f"cd ~/unlearning && {command}", seconds=seconds)

    @contextlib.contextmanager
    def clean_up(self) -> Iterator[None]:
        """Leave nothing after the block; what breaks is told with the last words of the last command."""
        try:
            yield
        except Broken as found:
            last = self.commands[-1]
            raise Broken(f"{found}\nlast: {last.typed}\n{last.tail()}") from found
        finally:
            for command in self.commands:
                command.kill()
            self.hosts("down")
            for place in Path("/tmp").glob("ray_ssh_*/*"):
                with contextlib.suppress(OSError):  # others' are in use, and not empty
                    place.rmdir()

    @contextlib.contextmanager
    def forward(self, text: str, port: int) -> Iterator[str]:
        """The address here that an `ssh` or `ray dashboard` line of the pages forwards: of a free port, not `port`."""
        free, words = free_port(), self.words_of(text)
        if words[0] == "ssh":
            trust = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]  # keys are new each time
            login = ["-i", str(self.folder / "id"), *trust, f"root@{self.net}.10"]
            words = [*(word.replace(f"{port}:/home/ubuntu", f"{free}:/srv/home") for word in words[:-3]), *login]
        else:
            words += ["--port", str(free)]
        tunnel = self.begin(*words)
        try:
            wait_until(60, f"ssh forwards port {free}", lambda: socket.socket().connect_ex(("127.0.0.1", free)) == 0)
            yield f"http://127.0.0.1:{free}"
        finally:
            tunnel.kill()


@dataclass(frozen=True)
class Command:
    """A command that runs on the laptop, and what it has said."""

    typed: str
    process: psutil.Process
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_running(self) -> bool:
        return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE

    def end(self, seconds: float) -> str:
        """Wait for its end. Raises Broken where it ends badly or not at all."""
        try:
            status = self.process.wait(seconds)
        except psutil.TimeoutExpired:
            self.kill()
            raise Broken(f"a command ran for more than {seconds:.0f} s") from None
        require(status == 0, f"a command ended with {status}")
        return self.output

    def tail(self) -> str:
        return "it said last:\n" + "\n".join(self.output.splitlines()[-30:])

    def kill(self) -> None:
        """End it and all that it started, at once: the lid is shut."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [self.process, *self.process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait(10)


def wait_until(seconds: float, condition: str, holds: Callable[[], object]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < end, f"waited {seconds:.0f} s in vain: {condition}")
        time.sleep(0.2)
