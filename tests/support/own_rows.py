"""A person's own rows and a model that has learnt them: for tests of trainables.benchmarks.own."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from trainables.benchmarks import own
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.benchmarks.own import row_files, row_scores
from trainables.config.settings import Benchmark
from trainables.data.conversations import make_encoder

OWN = own.OwnBenchmark()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny.own(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model's folder."""
    return tiny.write_model(tmp_path_factory.mktemp("model") / "mine", layers=1)


def on(files: dict[str, Path], **settings: Any) -> Benchmark:
    sources = (*(f"{part}={file}" for part, file in files.items()), *settings.pop("places", ()))
    fields = {"name": "own", "data": "own", "split": "own", "template": "plain", "sources": sources}
    return Benchmark.model_validate(fields | settings)


def settings(target: Path | str, files: dict[str, Path]) -> list[str]:
    """Return the settings of the sweep own."""
    return [f"target={target}", *(f"{part}={file}" for part, file in files.items())]


@pytest.fixture(scope="module")
def taught(files: dict[str, Path]) -> Any:
    """A tiny model that has learnt the forget rows and the rows of utility, more or less."""
    network, tokenizer = tiny.network(), tiny.tokenizer()
    sets, encoder = row_files.read_evaluation_rows(on(files)), make_encoder("plain", tokenizer)
    items = [i for n in ("forget", "retain") for i in row_scores.cut_rows_into_items(encoder, n, sets[n], None)]
    return tiny.teach(network, [item.example for item in items])


@pytest.fixture(scope="module")
def measured(files: dict[str, Path], taught: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return OWN.measure(taught, tiny.tokenizer(), on(files), TARGET_IS_OWN_REFERENCE, token_budget=8192)
