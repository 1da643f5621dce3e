"""The fault matrix: a real sweep of nine tiny trials is hit at a random moment, resumed, and is as if undisturbed.

`make test-faults` runs 20 rounds for kills of the driver and of workers and 5 for each other fault, ROUNDS=N so many
for each. A round is its seed: `make test-faults ARGS="-k 'driver_killed and seed7'"` does the same again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fault_report
import psutil
import pytest
from conftest import House
from fault_checks import outcome
from fault_sweep import PATIENCE, TRIALS, Command, Round, Watch, begin, begun, furnish, sweep_of

from trainables import storage
from trainables.storage import Storage

pytestmark = pytest.mark.faults
FIRST = int(os.environ.get("SEED", "0"))
Play = Callable[..., AbstractContextManager[Round]]


def rounds(usual: int) -> pytest.MarkDecorator:
    """So many seeds, or as many as ROUNDS says."""
    seeds = range(FIRST, FIRST + int(os.environ.get("ROUNDS") or usual))
    return pytest.mark.parametrize("seed", seeds, ids=lambda seed: f"seed{seed}")


@pytest.fixture(scope="module")
def joined(ray_session: None) -> dict[str, str]:
    """Environment of a start that joins the running Ray, which spares it one of its own."""
    import ray

    known = {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}
    return known | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.fixture(scope="module")
def ground(house: House, joined: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Storage]:
    """The sweep's arguments, and the storage of its undisturbed run."""
    place = tmp_path_factory.mktemp("faults")
    arguments = furnish(house, place)
    base = Storage(place / "undisturbed")
    begin(place / "log", "platform.sweep", *arguments, "--storage", base.root, **joined).end()
    assert len(set(sweep_of(base)["trials"])) == TRIALS
    return arguments, base


@pytest.fixture
def play(
    ground: tuple[list[str], Storage], joined: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Play:
    """`with play(seed) as round:` do the fault and resume; after it the round is judged and written to the log."""
    arguments, base = ground
    fault = request.function.__name__.removeprefix("test_").replace("_", " ")

    @contextlib.contextmanager
    def playing(
        seed: int, own_ray: bool = False, results: bool = False, root: Path | None = None, uri: str | None = None
    ) -> Iterator[Round]:
        store = begun(base, root or tmp_path / "runs", results)
        one = Round(
            seed, tmp_path, arguments, {} if own_ray else joined, random.Random(f"{fault} {seed}"), Watch(store)
        )
        began, over = time.monotonic(), threading.Event()
        watching = threading.Thread(target=one.watch.follow, args=(over,), daemon=True)
        watching.start()
        line: dict[str, Any] = {"fault": fault, "seed": seed}
        try:
            yield one
            found = outcome(one, base, uri)
            line |= {name: len(items) for name, items in asdict(found).items()}
            assert not any(asdict(found).values()), (one.moment, found)
        except BaseException as problem:
            line["problem"] = str(problem)[:2000]
            raise
        finally:
            over.set()
            watching.join()
            one.close()
            fault_report.note(line | {"moment": one.moment, "seconds": round(time.monotonic() - began, 1)})

    return playing


@rounds(20)
def test_driver_killed(play: Play, seed: int) -> None:
    """Resumed at once or after some seconds, in which what it left behind may still be running."""
    with play(seed) as one:
        driver = one.start()
        one.reach(driver)
        driver.process.kill()
        driver.end(-9)
        time.sleep(one.random.choice((0.0, one.random.uniform(0, 5))))
        one.start("--resume").end()


@rounds(20)
def test_worker_killed(play: Play, seed: int) -> None:
    """One to three times; a trial that was hit twice is recorded as failed and run again when asked."""
    with play(seed) as one:
        driver = one.start()
        one.reach(driver, last=TRIALS - 2)
        for _ in range(one.random.randint(1, 3)):
            one.random.choice(processes(os.getpid(), "TrialActor", driver)).kill()
            time.sleep(one.random.uniform(0, 4))
        driver.end(None)
        if driver.process.returncode:
            assert "its process died" in driver.said or "died" in driver.said
            one.start("--retry-failed").end()


def processes(parent: int, name: str, driver: Command) -> list[psutil.Process]:
    """Descendants of a process whose command line has `name`, the first that are there."""
    while driver.running:
        found = []
        for process in psutil.Process(parent).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if any(name in word for word in process.cmdline()[:1]):
                    found.append(process)
        if found:
            return sorted(found, key=lambda process: process.pid)
        time.sleep(0.02)
    raise AssertionError(f"the driver ended before there was a {name}:\n{driver.said}")


@rounds(5)
def test_raylet_killed(play: Play, seed: int) -> None:
    with play(seed, own_ray=True) as one:
        driver = one.start()
        one.reach(driver, last=TRIALS - 1)
        for raylet in processes(driver.process.pid, "raylet/raylet", driver):
            raylet.kill()
        said = driver.end(None)
        if driver.process.returncode:
            assert "Ray" in said
        one.start("--resume", "--retry-failed").end()


@rounds(5)
def test_two_drivers(play: Play, seed: int) -> None:
    """The second one is refused while the first one runs; of two that start at the same moment one wins."""
    with play(seed) as one:
        first = one.start()
        if seed % 2:
            one.reach(first, last=TRIALS - 2)
            second = one.start(one.random.choice(("--resume", "--new")))
            second.end(2)
            assert f"is being run by process {first.process.pid} on " in second.said
            first.end()
        else:
            second = one.start()
            one.moment = "both at once"
            statuses = sorted((first.process.wait(PATIENCE), second.process.wait(PATIENCE)))
            assert statuses == [0, 2], first.said + second.said
            refused = first if first.process.returncode else second
            assert "is being run by process" in refused.said


@rounds(5)
def test_result_cut_short(play: Play, seed: int) -> None:
    """One to three files of finished trials lose their ends: those trials alone run again."""
    with play(seed, results=True) as one:
        files = sorted(path for name in FILES for path in one.store.root.glob(f"trials/*/{name}"))
        cut = one.random.sample(files, one.random.randint(1, 3))
        for path in cut:
            content = path.read_bytes()
            path.write_bytes(content[: one.random.randrange(len(content))])
        one.again = {path.parent.name for path in cut}
        one.moment = ", ".join(f"{path.name} to {path.stat().st_size} bytes" for path in cut)
        one.before = one.results()
        refused = one.start().end(2)
        said = one.start("--resume").end()
        for path in cut:
            assert str(path) in refused
            assert f"damaged: {path}; set aside in " in said
        assert f"{TRIALS} trials, {TRIALS - len(one.again)} done, {len(one.again)} to run" in said


FILES = (storage.RESULT, storage.STEPS, storage.ROWS)
