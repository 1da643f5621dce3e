"""The fault matrix: a real sweep of nine tiny trials is hit at a random moment, resumed, and is as if undisturbed.

`make test-faults` runs 20 rounds for kills of the driver and of workers and 5 for each other fault, ROUNDS=N so many
for each. A round is its seed: `make test-faults ARGS="-k 'driver_killed and seed7'"` does the same again.
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults import means as fault_means
from tests.faults.checks import outcome
from tests.faults.sweep import (
    PATIENCE,
    TRIALS,
    Command,
    Round,
    Watch,
    begin,
    copy_shared,
    named,
    sweep_of,
    type_words,
    write_inputs,
)
from tests.support.environment import TrialInputs
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage

pytestmark = pytest.mark.faults
FIRST = int(os.environ.get("SEED") or 0)
WORKERS = ("Trainable", "OneRankTrialActor")
"""What Ray calls a process that runs trials: while it does, and in between."""
DAY = 24 * 3600
NODE = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
Play = Callable[..., AbstractContextManager[Round]]


def rounds(usual: int) -> pytest.MarkDecorator:
    """So many seeds, or as many as ROUNDS says."""
    seeds = range(FIRST, FIRST + int(os.environ.get("ROUNDS") or usual))
    return pytest.mark.parametrize("seed", seeds, ids=lambda seed: f"seed{seed}")


@pytest.fixture(scope="module")
def ground(
    trial_inputs: TrialInputs, joined: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Storage]:
    place = tmp_path_factory.mktemp("faults")
    arguments = type_words(write_inputs(trial_inputs, place), "--only", "method=ga,gd,npo")
    base = Storage(place / "undisturbed")
    begin(place / "log", "platform.sweep", *arguments, "--storage", base.root, **joined).end()
    assert len(set(sweep_of(base).trials)) == TRIALS
    return arguments, base


@pytest.fixture
def play(
    ground: tuple[list[str], Storage], joined: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Play:
    """`with play(seed) as round:` do the fault and resume; after it the round is judged."""
    arguments, base = ground
    fault = request.function.__name__.removeprefix("test_").replace("_", " ")

    @contextlib.contextmanager
    def playing(
        seed: int, own_ray: bool = False, results: bool = False, root: Path | None = None, uri: str | None = None
    ) -> Iterator[Round]:
        store = copy_shared(base, root or tmp_path / "runs", results)
        chance, environment = random.Random(f"{fault} {seed}"), {} if own_ray else joined
        one = Round(seed, tmp_path, arguments, environment, chance, Watch(store))
        with one.followed():
            yield one
            found = outcome(one, base, uri)
        assert not found, one.moment

    return playing


@rounds(20)
def test_driver_killed(play: Play, seed: int) -> None:
    """Resumed at once or after some seconds; odd seeds with a Ray of its own, whose workers outlive it by a while.

    Those of every other one are put to sleep first, and go on only when the resumed sweep has come to their trials.
    """
    with play(seed, own_ray=bool(seed % 2)) as one:
        driver = one.start()
        one.wait_for_moment(driver)
        asleep = named(one.processes, *WORKERS) if seed % 4 == 1 else []
        for worker in asleep:
            worker.suspend()
        driver.process.kill()
        driver.end(-9)
        time.sleep(one.random.choice((0.0, one.random.uniform(0, 5))))
        resumed = one.start("--resume")
        if asleep:
            one.moment += f", {len(asleep)} workers asleep"
            time.sleep(one.random.uniform(5, 30))
        for worker in asleep:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()
        resumed.end()


@rounds(20)
def test_worker_killed(play: Play, seed: int) -> None:
    """One to three times; a trial that was hit twice is recorded as lost and goes on when the sweep is resumed."""
    with play(seed) as one:
        driver = one.start()
        one.wait_for_moment(driver, last=TRIALS - 2)
        for kill in range(one.random.randint(1, 3)):
            assert kill_worker(one, driver) or kill, driver.said
            time.sleep(one.random.uniform(0, 4))
        driver.end(None)
        if driver.process.returncode:
            assert "--resume goes on with what they had" in driver.said
            one.start("--resume").end()


def kill_worker(one: Round, driver: Command) -> bool:
    """Any of those of the joined Ray, the first that come where there are none; whether any came before the end."""
    while not (found := named(psutil.Process().children(recursive=True), *WORKERS)):
        if not driver.running:
            return False
        time.sleep(0.02)
    one.random.choice(found).kill()
    return True


@pytest.mark.parametrize("name", ["raylet/raylet", "gcs/gcs_server"], ids=["raylet", "head"])
@rounds(5)
def test_raylet_killed(play: Play, seed: int, name: str) -> None:
    """Or the head, of a Ray of its own: the run ends, by itself or with Ray's error, and tells once how to go on."""
    with play(seed, own_ray=True) as one:
        driver = one.start()
        one.wait_for_moment(driver, last=TRIALS - 1)
        while not (found := named(one.processes, name)):
            assert driver.running, driver.said
            one.processes = psutil.Process(driver.process.pid).children(recursive=True)
        for process in found:
            process.kill()
        said = driver.end(None)
        if driver.process.returncode:
            assert "Ray failed" in said or "--resume goes on with what they had" in said, said
            assert said.count("go on with: ") <= 1, said
        one.start("--resume").end()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose head has no CPU of its own."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/tmp", ignore_cleanup_errors=True) as place:  # short names
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "temp_dir": place, **NODE})
        yield made
        made.shutdown()


@rounds(5)
def test_node_lost(play: Play, seed: int, cluster: Any, joined: dict[str, str]) -> None:
    """Three times, as a machine that is switched off: its trial goes on elsewhere each time that it comes further."""
    with play(seed, own_ray=True) as one:
        one.ray = joined | {"RAY_ADDRESS": cluster.address}
        node = cluster.add_node(num_cpus=1, **NODE)
        driver = one.start()
        for number in range(3):
            one.wait_for(driver, number)
            one.record_fault(driver)
            time.sleep(one.random.uniform(0, 4))
            cluster.remove_node(node, allow_graceful=False)
            node = cluster.add_node(num_cpus=1, **NODE)
        said = driver.end()
        assert "its process or node went away; it goes on from its last checkpoint" in said


@rounds(5)
def test_two_drivers(play: Play, seed: int) -> None:
    """The second one is refused while the first one runs; of two that start at the same moment one wins."""
    with play(seed) as one:
        first = one.start()
        if seed % 2:
            one.wait_for_moment(first, last=TRIALS - 2)
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
    """One to three results of finished trials lose their ends: those trials alone run again."""
    with play(seed, results=True) as one:
        files = sorted(one.store.root.glob(f"trials/*/{RESULT}"))
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
            assert f"damaged: {path}; its trial runs again" in said
        assert f"{TRIALS} trials, {TRIALS - len(one.again)} done, {len(one.again)} to run" in said


@rounds(5)
def test_disk_full(play: Play, seed: int, tmp_path: Path) -> None:
    """Until the run ends, or for some seconds of it."""
    with fault_means.small_disk(tmp_path / "disk") as disk, play(seed, root=disk / "runs") as one:
        driver = one.start()
        one.wait_for_moment(driver, last=TRIALS - 1)
        filler = fault_means.fill(disk)
        if seed % 2:
            time.sleep(one.random.uniform(1, 10))
            filler.unlink()
        said = driver.end(None)
        filler.unlink(missing_ok=True)
        assert "Traceback" not in said
        assert "Aborted" not in said, said
        if driver.process.returncode:
            assert any(words in said for words in ("make room", "--resume goes on with what they had", "are free"))
        one.start("--resume").end()


@rounds(5)
def test_clock_jumped(play: Play, seed: int, tmp_path: Path) -> None:
    """By up to 400 days in either direction; after that the run ends by itself, or is killed and goes on."""
    clock = fault_means.Clock(tmp_path)
    with play(seed, own_ray=True) as one:
        one.ray = clock.environment
        driver = one.start()
        one.wait_for_moment(driver, last=TRIALS - 2)
        clock.jump(one.random.choice((-1, 1)) * one.random.randint(DAY // 24, 400 * DAY))
        if seed % 2:
            driver.end()
        else:
            time.sleep(one.random.uniform(0, 5))
            driver.process.kill()
            driver.end(-9)
            clock.jump(one.random.choice((-1, 1)) * one.random.randint(0, 400 * DAY))
            one.start("--resume").end()


@rounds(5)
def test_tracking_server_stopped(play: Play, seed: int, tmp_path: Path) -> None:
    """And started again while the sweep runs, or after its end."""
    server = fault_means.Server(tmp_path / "server")
    with server, play(seed, uri=server.uri) as one:
        one.ray = one.ray | {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
        driver = one.start()
        one.wait_for_moment(driver, last=TRIALS - 1)
        server.kill()
        if seed % 2:
            driver.end()
            assert "MLflow is behind" in driver.said
            server.start()
        else:
            time.sleep(one.random.uniform(0, 15))
            server.start()
            driver.end()
        if "MLflow is behind" in driver.said:
            one.start("sync", "tofu_tiny", module="platform.tracking").end()
