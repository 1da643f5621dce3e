"""What faults are made with: a small disk, a clock that jumps, a tracking server that comes and goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sweep import PATIENCE
from tests.support.environment import clean_environment, free_port

DISK = "96m"
"""Room for what a start forecasts of a few trials."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A tmpfs; skips the test where none can be mounted (it takes root)."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip() if done else 'no mount here'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    return path


class Clock:
    """The wall clock of Python processes that were started in its environment."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "offset"
        self.library = folder / "clock.so"

    @property
    def environment(self) -> dict[str, str]:
        """Skips the test where there is no C compiler."""
        source = Path(__file__).with_name("clock.c")
        if not sys.platform.startswith("linux") or shutil.which("cc") is None:
            pytest.skip("needs Linux and a C compiler")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", self.library, source, "-ldl"], check=True)
        self.jump(0)
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET": str(self.file)}

    def jump(self, seconds: int) -> None:
        """Put it so far from the true time, for all at once."""
        with self.file.open("r+b" if self.file.exists() else "wb") as stream:
            stream.write(struct.pack("=q", seconds))


class Server:
    """`mlflow server` on the loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        places = ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        places += ["--artifacts-destination", str(self.folder / "artifacts")]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        typed = [sys.executable, "-m", "mlflow", "server", *places, *where]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                typed, cwd=self.folder, env=clean_environment(), stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, f"no tracking server within {PATIENCE} s"
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
