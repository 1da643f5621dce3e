"""Names stay inside the storage, and nothing that is read is unpickled or run. Secrets: test_secrets.py."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.load import opening
from tests.support import small_sweep
from tests.support.sweep_store import write_sweep
from trainables import run
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Training
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage

# Names and paths


@pytest.mark.parametrize("name", ["../../outside", "/etc", "..", ".", "", "a/b", "a\0b"])
def test_storage_gives_no_place_outside_itself(store: Storage, name: str) -> None:
    places = [store.trial, store.model, store.data, store.evaluation]
    if "/" in name or "\0" in name:
        places += [lambda name: store.sweep(name, "01234567"), lambda name: store.lock(name, "01234567")]
    for place in places:
        with pytest.raises(InputError, match="it is a path, not a name"):
            place(name)


def test_report_of_a_file_that_calls_itself_otherwise_is_refused(tmp_path: Path) -> None:
    """Its name would be the report's folder."""
    store = tmp_path / "runs"
    write_sweep(store, [])
    (file,) = (store / "sweeps").glob("*.json")
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "name": "../../../outside"}))
    with pytest.raises(InputError, match="outside-0a1b2c3d inside; give the file that name again"):
        opening.find_sweep(file.stem, tmp_path / "runs")


def test_trial_with_paths_everywhere_writes_into_the_storage_alone(trial_inputs: Any, tmp_path: Path) -> None:
    """Relative places, and fingerprints that would lead out if they named files."""
    small_sweep.cut_short(trial_inputs.data, tmp_path / "data")
    shutil.copytree(trial_inputs.target, tmp_path / "model")
    odd = "../../../outside"
    config = Trial(
        method="ga",
        benchmark=Benchmark(
            data=f"{tmp_path}/model/../data", split=trial_inputs.split, limit=2, fingerprint=f"fictional:{odd}"
        ),
        target=Model(path=f"{tmp_path}/data/../model", fingerprint=f"recipe:{odd}"),
        retain_evaluation=None,
        training=Training(max_steps=1, batch_size=2, max_length=64),
    )
    (tmp_path / "config.json").write_text(config.model_dump_json())
    before = set(tmp_path.rglob("*"))
    assert run.run(tmp_path / "config.json", str(tmp_path / "a" / "b" / "runs")) == 0
    written = set(tmp_path.rglob("*")) - before
    place = tmp_path / "a" / "b" / "runs" / "trials" / config.id()
    assert place / "result.json" in written
    assert {path for path in written if path.is_file() and place not in path.parents} == set()


# What is read


HARMFUL = re.compile(
    r"^ *(import|from) (pickle|cloudpickle|dill|joblib|marshal|shelve)\b|read_pickle"
    r"|unsafe_load|full_load|Tuner\.restore|allow_pickle=(?!False)|trust_remote_code=(?!False)|torch\.load\((?![^\n]*weights_only=True)",
    re.MULTILINE,
)


def test_nothing_in_the_code_unpickles_or_runs_what_it_reads(root: Path) -> None:
    """Pickles and their like are not imported; torch.load reads weights only; code from the hub is not trusted."""
    packages = ("platform", "search_spaces", "trainables", "analysis", "bench")
    code = {path: path.read_text(encoding="utf-8") for name in packages for path in (root / name).rglob("*.py")}
    assert [path for path, text in code.items() if HARMFUL.search(text)] == []
    assert any("torch.load(" in text for text in code.values())
