"""A real sweep of nine tiny trials that faults are done to: started, watched, hit at a random moment, resumed."""

import contextlib
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from tests.support import small_sweep
from tests.support.environment import ROOT, TrialInputs, clean_environment, type_settings
from trainables.storage.atomic_files import read_json
from trainables.storage.file_names import PROGRESS, RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile, read_sweep

SETTINGS = (
    *"benchmark.split=forget25 training.max_steps=8 training.batch_size=4 training.max_length=128".split(),
    *"training.lr=2e-3 rectifier.gamma=0.8 resources.checkpoint_every=2".split(),
)
TRIALS = 9  # GA, GD and NPO, each without GRU and with tau none and 1
ROWS = 4
PATIENCE = 600
"""Seconds that any wait may take on a machine that is busy with other work."""
START, PLANNED, BEGUN = -2, -1, 0
LATER = 2.5
"""Seconds that a fault comes at most after the milestone that it waits for."""


def write_inputs(trial_inputs: TrialInputs, place: Path) -> list[str]:
    """Write models and rows, cut so short that an evaluation takes a second; return the sweep's settings."""
    folders = small_sweep.write_inputs(trial_inputs, place)
    for path in [*(place / "data").glob("*_perturbed.json"), place / "data" / "forget25.json"]:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:ROWS]))
    return [*folders, *SETTINGS]


def type_words(settings: list[str], *more: str) -> list[str]:
    """Return the arguments of platform.sweep for tofu_tiny with these settings."""
    return ["tofu_tiny", *type_settings(settings), *more]


@dataclass
class Command:
    """A command that runs, and what it has said."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def end(self, status: int | None = 0) -> str:
        """Wait for its end with this exit status (None: any); returns what it said."""
        found = self.process.wait(PATIENCE)
        assert status in (None, found), f"exit {found}:\n{self.said}"
        return self.said


def begin(log: Path, module: str, *arguments: object, **env: str) -> Command:
    typed = [sys.executable, "-m", module, *map(str, arguments)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            typed, cwd=ROOT, env=clean_environment(COLUMNS="160", NO_COLOR="1", **env), stdout=stream, stderr=stream
        )
    return Command(process, log)


@dataclass
class Watch:
    """Every finished result that ever lay in a storage, by trial: `attempt` is another one in each run of a trial."""

    store: Storage
    seen: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note_results(self) -> None:
        for folder in self.store.root.glob("trials/*"):
            try:
                found = (folder / RESULT).stat()
            except FileNotFoundError:
                continue
            if self.files.get(folder.name) != (found.st_ino, found.st_mtime_ns):
                self.files[folder.name] = (found.st_ino, found.st_mtime_ns)
                result = self.store.result(folder.name)
                if result and result["status"] == "finished":
                    self.seen.setdefault(folder.name, set()).add(result["attempt"])

    def follow(self, over: threading.Event) -> None:
        while not over.wait(0.02):
            self.note_results()


@dataclass
class Round:
    """One storage, one seed, one fault."""

    seed: int
    place: Path
    arguments: list[str]
    ray: dict[str, str]
    """Environment of a start that joins the tests' Ray; empty: it starts its own."""
    random: random.Random
    watch: Watch
    moment: str = ""
    """Where in the run's life the fault came."""
    before: dict[str, bytes] = field(default_factory=dict)
    """The results that were there when the fault came."""
    saved: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Trials under way then that had a checkpoint: the attempt that was at each, and the checkpoint's step."""
    again: set[str] = field(default_factory=set)
    """Trials whose results the fault has destroyed: those may finish once more."""
    commands: list[Command] = field(default_factory=list)
    processes: list[psutil.Process] = field(default_factory=list)
    """All that the driver had started when the fault came."""

    @property
    def store(self) -> Storage:
        return self.watch.store

    def start(self, *more: object, module: str = "platform.sweep", **env: str) -> Command:
        log = self.place / f"{len(self.commands)}.log"
        typed = [*self.arguments, *more] if module == "platform.sweep" else more
        self.commands.append(begin(log, module, *typed, "--storage", self.store.root, **self.ray, **env))
        return self.commands[-1]

    def results(self) -> dict[str, bytes]:
        """Every result that can be read, byte for byte."""
        found = {path.parent.name: path.read_bytes() for path in self.store.root.glob("trials/*/result.json")}
        return {name: content for name, content in found.items() if self.store.result(name)}

    def wait_for_moment(self, driver: Command, last: int = TRIALS) -> None:
        """Wait for a random moment: a milestone up to the `last`th result and a little more, or a write after it."""
        milestone = self.random.randrange(START, last + 1)
        name = {START: "start", PLANNED: "planned", BEGUN: "begun"}.get(milestone, f"{milestone} results")
        self.wait_for(driver, milestone)
        if START < milestone < TRIALS and self.random.random() < 1 / 3:
            self.moment = f"{name}, in a write"
            known, deadline = find_writes(self.store.root), time.monotonic() + 10
            while find_writes(self.store.root) <= known and driver.running and time.monotonic() < deadline:
                pass
        else:
            delay = self.random.uniform(0, LATER)
            self.moment = f"{name} + {delay:.1f} s"
            time.sleep(delay)
        self.record_fault(driver)

    def wait_for(self, driver: Command, milestone: int) -> None:
        """Wait for START, PLANNED, BEGUN or a number of results. Raises AssertionError where the driver ends before."""
        deadline = time.monotonic() + PATIENCE
        while not self._past(milestone):
            assert driver.running, f"the driver ended before milestone {milestone}:\n{driver.said}"
            assert time.monotonic() < deadline, f"milestone {milestone} took more than {PATIENCE} s:\n{driver.said}"
            time.sleep(0.01)

    def record_fault(self, driver: Command) -> None:
        """Take note of what there is before the fault."""
        assert driver.running, f"the driver ended before {self.moment}:\n{driver.said}"
        self.saved = saved(self.store)
        self.before = self.results()
        self.processes = psutil.Process(driver.process.pid).children(recursive=True)

    def _past(self, milestone: int) -> bool:
        if milestone == START:
            return True
        if milestone == PLANNED:
            return any(self.store.root.glob("sweeps/*.json"))
        done = sum(1 for _ in self.store.root.glob("trials/*/result.json"))
        return done >= milestone if milestone else done > 0 or any(self.store.root.glob("trials/*/progress.json"))

    @contextlib.contextmanager
    def followed(self) -> Iterator[Self]:
        """Watch the storage meanwhile, and leave nothing running."""
        over = threading.Event()
        watching = threading.Thread(target=self.watch.follow, args=(over,), daemon=True)
        watching.start()
        try:
            yield self
        finally:
            over.set()
            watching.join()
            self.close()

    def close(self) -> None:
        """Leave nothing running: of a Ray whose raylet was killed some agents go on."""
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for command in self.commands:
            command.process.terminate()
            try:
                command.process.wait(30)
            except subprocess.TimeoutExpired:
                command.process.kill()
                command.process.wait()


def find_writes(root: Path) -> set[str]:
    """Return the files and checkpoints of trials that are being written."""
    patterns = ("trials/*/.[!p]*", "trials/*/checkpoint/step-*", "trials/*/checkpoint/step-*/*")
    return {str(path) for pattern in patterns for path in root.glob(pattern)}


def named(processes: Iterable[psutil.Process], *names: str) -> list[psutil.Process]:
    """Those whose command has one of these names in it, by pid."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(name in word for word in process.cmdline()[:1] for name in names):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def copy_shared(base: Storage, root: Path, results: bool = False) -> Storage:
    """A storage with what an undisturbed run's trials share, and its results where asked."""
    shutil.copytree(base.root / "shared", root / "shared")
    if results:
        shutil.copytree(base.root / "trials", root / "trials")
        shutil.copytree(base.root / "sweeps", root / "sweeps")
    return Storage(root)


def saved(store: Storage) -> dict[str, tuple[str, int]]:
    """Trials under way that have a checkpoint: who is at each, and the step that it would go on from."""
    found = {}
    for meta in store.root.glob("trials/*/checkpoint/meta.json"):
        folder = meta.parent.parent
        told, kept = read_json(folder / PROGRESS), read_json(meta)
        if told and kept and not (folder / RESULT).exists():
            found[folder.name] = (told["attempt"], kept["step"])
    return found


def sweep_of(store: Storage) -> SweepFile:
    (path,) = store.root.glob("sweeps/*.json")
    return read_sweep(path)
