"""What all tests share: the package named platform, the shared data and models, and commands in a fresh process."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

import platform
from tests.support.environment import RAY_PRIORITY, ROOT, RunModule, TrialInputs, clean_environment

if TYPE_CHECKING:
    from tests.support.cases import Cases
    from tests.support.hub_server import HubBench
    from tests.support.small_sweep import Small
    from trainables.storage.folder_storage import Storage

# Under the script `pytest` the standard library's module is imported first: with a __path__ it finds our submodules
# (docs/decisions/0001).
platform.__path__ = [str(ROOT / "platform")]

# Also where there is a GPU, tests run on the CPU: those marked gpu start processes of their own.
os.environ["DS_ACCELERATOR"] = "cpu"

# Before torch is loaded, and for every process that tests start: threads of a tiny model mostly wait for one another.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.update(RAY_PRIORITY)

# The same examples each time; the first one imports what it needs, and a busy machine takes as long as it likes.
calm = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=calm)
hypothesis.settings.load_profile("tests")


# Libraries make a million objects that stay. A collection takes half a second for them, and each trial makes four.
gc.disable()
MODULES = pytest.StashKey[int]()
"""How many modules were loaded when collections were last told to pass over all objects that there were."""


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores, which often wait for processes, and no more than memory holds at 2 GB each."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores + 1, int(psutil.virtual_memory().available / 2e9)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put whole sweeps first, so that no worker ends with a long file alone."""
    first = ("end_to_end", "faults", "trial", "training")
    items.sort(
        key=lambda item: next((place for place, name in enumerate(first) if name in item.path.parts), len(first))
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    session.stash[MODULES] = 0
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let collections pass over what libraries have made; skip tests marked gpu where there is no CUDA device."""
    if len(sys.modules) > item.session.stash[MODULES] + 100:
        item.session.stash[MODULES] = len(sys.modules)
        gc.collect()
        gc.freeze()
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout, where every command is run."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of the data and models at hand: UNLEARN_SHARED, else `shared` beside the checkout."""
    folder = Path(os.environ.get("UNLEARN_SHARED", ROOT.parent / "shared")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set UNLEARN_SHARED to the folder that holds data/ and models/")
    return folder


@pytest.fixture(scope="session")
def tofu_data(shared: Path) -> Path:
    """Return TOFU in the layout of the hub's locuslab/TOFU."""
    return _existing(shared / "data" / "tofu")


@pytest.fixture(scope="session")
def tofu_models(shared: Path) -> Path:
    """Return the folder of the four small models that were fine-tuned on TOFU."""
    return _existing(shared / "models" / "tofu_tiny")


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"the shared data has no {folder.parent.name}/{folder.name}")
    return folder


@pytest.fixture(scope="session")
def cases(shared: Path) -> Cases:
    """Return model folders and rows as people have them; a test that takes it is marked `data`."""
    from tests.support.cases import make_cases

    return make_cases(shared)


@pytest.fixture(scope="session")
def run_module(root: Path) -> RunModule:
    """Return `run(module, *args, timeout=600, **env)`: `python -m module args` from the root, its environment clean."""

    def run(module: str, *args: object, timeout: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, args)],
            cwd=root,
            env=clean_environment(COLUMNS="160", NO_COLOR="1") | env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def ray_session(root: Path) -> Iterator[None]:
    """One local Ray of two CPUs for all tests that need it."""
    import ray

    environment = {"PYTHONPATH": str(root)}
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment}
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def joined(ray_session: None) -> dict[str, str]:
    """Return the environment of a start that joins the running Ray, which spares it one of its own."""
    import ray

    known = {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}
    return known | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.fixture(scope="session")
def join(joined: dict[str, str], run_module: RunModule) -> RunModule:
    """`join(*arguments)`: a start of platform.sweep that joins the running Ray."""

    def start(*arguments: object, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return run_module("platform.sweep", *arguments, "--address", joined["RAY_ADDRESS"], timeout=timeout, **joined)

    return start


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the environment of a local server that speaks S3 and has the bucket `bucket`.

    In a process of its own: moto's other services (tests/platform/cluster) empty all that is in theirs.
    """
    import boto3

    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as said:
        server = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+(?=\s)", log.read_text())):  # it imports for seconds
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        keys = {"aws_access_key_id": "nobody-knows-it", "aws_secret_access_key": "nor-this-one"}
        boto3.client("s3", region_name="us-east-1", endpoint_url=found[0], **keys).create_bucket(Bucket="bucket")
        yield {name.upper(): value for name, value in keys.items()} | {
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": found[0],
        }
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A storage where nothing is written yet."""
    from trainables.storage.folder_storage import Storage

    return Storage(tmp_path / "store")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubBench]:
    """A hub on the loopback that this process asks, and a storage."""
    from tests.support.hub_server import open_hub_bench

    with open_hub_bench(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Return tofu_tiny's rows and models as far as a plan looks at them."""
    from tests.support import small_sweep

    return small_sweep.write(tmp_path_factory.mktemp("small"))


TINY = (32, 6, 3e-3)
"""Hidden size, epochs, lr of models that are quick to make, and far from any optimum: gradients are large."""
TRAINED = (48, 30, 5e-3)
"""Of models that know the authors, so that utility is there to be lost."""


def _make_trial_inputs(
    factory: pytest.TempPathFactory, name: str, size: tuple[int, int, float], roles: tuple[str, ...]
) -> TrialInputs:
    """Return the inputs in a folder that all workers share; the first one makes them."""
    from filelock import FileLock

    from trainables.config.settings import Training
    from trainables.config.shared_artifacts import ModelRecipe
    from trainables.data import fictional
    from trainables.workers import shared_artifacts

    shared = factory.getbasetemp().parent if os.environ.get("PYTEST_XDIST_WORKER") else factory.getbasetemp()
    folder, data = shared / name, shared / name / "authors"
    hidden, epochs, lr = size
    shape = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": 2, "num_hidden_layers": 2}
    recipes = [
        ModelRecipe(
            architecture=tuple(shape.items()),
            vocabulary=400,
            data=str(data),
            data_fingerprint="authors-of-the-tests",
            configs=(role, "real_authors", "world_facts"),
            template="llama2",
            training=Training(lr=lr, epochs=epochs, batch_size=16, max_length=192),
        )
        for role in roles
    ]
    with FileLock(shared / f"{name}.lock"):
        if not data.is_dir():
            fictional.write_fictional_authors(data, authors=12, questions=5, forget_percent=(25,), seed=3)
        made = [Path(shared_artifacts.ensure_recipe_model(recipe, str(folder / "store"))) for recipe in recipes]
    return TrialInputs(data=data, target=made[0], retain=made[-1], split="forget25")


@pytest.fixture(scope="session")
def trial_inputs(tmp_path_factory: pytest.TempPathFactory) -> TrialInputs:
    """Return a small store: fictional authors, a tiny Llama trained on all of them, and one trained without some."""
    return _make_trial_inputs(tmp_path_factory, "trial_inputs", TINY, ("full", "retain75"))


@pytest.fixture(scope="session")
def trained_inputs(tmp_path_factory: pytest.TempPathFactory) -> TrialInputs:
    """Return inputs whose target model knows its authors (and stands for the retain model, too)."""
    return _make_trial_inputs(tmp_path_factory, "trained_inputs", TRAINED, ("full",))
