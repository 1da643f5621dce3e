"""Weights that the hub keeps in Xet, which hf_xet brings in the place of HTTP: tried again, told, asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from platform.preparation import downloads
from platform.preparation.repo_files import Listing
from tests.support.hub_bench import MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, Bench
from trainables.common.errors import InputError
from trainables.data.hub import find_folder


def in_xet(bench: Bench, monkeypatch: pytest.MonkeyPatch, failures: int) -> list[str]:
    """Weights come by Xet, which fails so often with each file first; what was asked of it is in the list."""
    tries: list[str] = []

    def get(*, incomplete_path: Path, displayed_filename: str, **options: Any) -> None:
        tries.append(displayed_filename)
        if tries.count(displayed_filename) <= failures:
            incomplete_path.write_bytes(b"a part of it")
            raise RuntimeError("Task error: File reconstruction error: CAS Client Error: error sending request\nmore")
        incomplete_path.write_bytes((bench.hub.home / "models" / MODEL_ID / displayed_filename).read_bytes())

    bench.hub.xet = True
    monkeypatch.setattr("huggingface_hub.file_download.xet_get", get)
    return tries


def test_weights_that_xet_does_not_bring_are_asked_for_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = in_xet(bench, monkeypatch, 3)
    bench.fetch(TARGET)
    assert tries == [name for name in SHARDS for _ in range(4)]
    told = f"{MODEL_ID}: {SHARDS[1]}: Task error: File reconstruction error: CAS Client Error: error sending request; "
    assert bench.said.count(told + "again in 0 s") == 3
    assert bench.said[-1].startswith(f"fetched {MODEL_ID}: ")
    for name in SHARDS:
        assert (bench.folder(TARGET) / name).read_bytes() == (bench.hub.home / "models" / MODEL_ID / name).read_bytes()


def test_a_xet_that_stays_silent_ends_in_what_to_bring(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = in_xet(bench, monkeypatch, 99)
    with pytest.raises(InputError) as refused:
        bench.fetch(TARGET, ROWS)
    assert tries == [SHARDS[0]] * 4
    assert str(refused.value).startswith(
        "hub: the hub does not answer (Task error: File reconstruction error: CAS Client Error: error sending request),"
        f" and the storage has not: model {MODEL_ID}, data set {ROWS_ID}; what to bring is said above"
    )
    model, data = (told.splitlines() for told in bench.said[-2:])
    assert model[0].startswith(f"needs: model {MODEL_ID} from the hub, ")
    place = bench.home / "models--somebody--tiny@main"
    assert model[1].startswith(f"  either: hf download {MODEL_ID} --local-dir {place} (typed where")
    assert model[2].startswith("  or: bring config.json (0.0 MB), ")
    assert f"{SHARDS[0]} (0.0 MB), {SHARDS[1]} (0.0 MB), " in model[2]
    assert data[2].startswith("  or: bring its files to DIR")
    assert not any(line.startswith("fetched ") for line in bench.said)
    assert find_folder(TARGET, bench.store) is None


def test_a_speed_is_never_below_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([1_000_000, 0, *[0] * 10_000])
    monkeypatch.setattr(downloads, "SECONDS", 0.001)
    monkeypatch.setattr(downloads, "held", lambda folder: next(sizes))
    with downloads._progress(Listing(MODEL_ID, "models", "c", ()), bench.home, bench.said.append):
        while len(bench.said) < 3:
            time.sleep(0.001)
    assert bench.said[1] == f"fetching {MODEL_ID}: , 0.0 MB, 0.0 MB/s"
