"""What is fetched from the hub, once: whole, pinned, with messages that say what to accept or to bring and where to."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from platform.plan.hub_requirements import OFFLINE
from platform.sweep.hub_download import INDEX, SINGLE, Hub, choose_files, find_damage
from tests.support.hub_bench import MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, TOKENIZER, HubBench, write_model
from trainables.common.errors import InputError
from trainables.data.hub_folders import HubRequirement, find_folder, lock, pin_file
from trainables.storage.atomic_files import read_json


def test_what_is_read_is_fetched_once_and_whole(bench: HubBench) -> None:
    bench.fetch(TARGET)
    commit = bench.hub.commit("models", MODEL_ID)
    folder = bench.folder(TARGET)
    assert folder == bench.root / f"models--somebody--tiny@{commit}"
    names = {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", *SHARDS, INDEX}
    assert {path.name for path in folder.iterdir()} == names
    assert bench.lines == [f"fetching {MODEL_ID} at {commit[:12]}: 7 files, 0.0 MB"]
    bench.hub.requests.clear()
    bench.fetch(TARGET)
    assert bench.hub.requests == []
    pin = read_json(pin_file(TARGET, bench.store)) or {}
    assert (pin["id"], pin["revision"], pin["commit"], pin["source"]) == (MODEL_ID, "main", commit, "hub")
    assert [path.name for path in bench.root.iterdir() if path.name.startswith(".")] == [".locks"]
    bench.fetch(TOKENIZER)
    assert {path.name for path in bench.folder(TOKENIZER).iterdir()} == names - {*SHARDS, INDEX}


def test_what_is_read_of_a_repository(bench: HubBench) -> None:
    """One file of weights where there are shards, too; no code and no file that leads out of the folder."""
    save_file({"a": torch.ones(4)}, bench.served(SINGLE))
    bench.fetch(TARGET)
    assert [path.name for path in bench.folder(TARGET).glob("*.safetensors*")] == [SINGLE]
    names = ["a.json", "b/c.parquet", "../d.json", "b/../../e.json", "/f.json", "load.py", "g.pkl", "README.md"]
    assert choose_files(ROWS, names) == ["README.md", "a.json", "b/c.parquet"]


def test_of_two_starts_one_waits(bench: HubBench) -> None:
    taken, waits = threading.Event(), threading.Event()

    def fetch_elsewhere() -> None:
        with lock(f"{TARGET.key}.lock", bench.store):
            taken.set()
            waits.wait(30)

    threading.Thread(target=fetch_elsewhere, daemon=True).start()
    assert taken.wait(30)

    def say(line: str) -> None:
        bench.lines.append(line)
        waits.set()

    Hub(bench.store, say).fetch([TARGET])
    assert bench.lines[0] == f"model {MODEL_ID}: another start is fetching it; waiting for that"
    assert bench.folder(TARGET).is_dir()


def test_a_damaged_shard_is_named_and_the_next_start_fetches_it_alone(bench: HubBench) -> None:
    bench.hub.damaged.add(SHARDS[1])
    with pytest.raises(InputError, match=rf"^target: {SHARDS[1]} of {MODEL_ID} at \w+ came damaged; start again"):
        bench.fetch(TARGET)
    assert find_folder(TARGET, bench.store) is None
    bench.hub.requests.clear()
    bench.fetch(TARGET)
    assert len(bench.hub.downloads()) == len(bench.hub.downloads(SHARDS[1])) == 1
    for name in SHARDS:
        assert (bench.folder(TARGET) / name).read_bytes() == bench.served(name).read_bytes()


def test_a_hub_that_falls_silent_ends_in_what_to_bring(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_from_xet(**options: Any) -> None:
        raise RuntimeError("CAS Client Error: error sending request\nmore")  # what hf_xet raises

    bench.hub.xet = True
    monkeypatch.setattr("huggingface_hub.file_download.xet_get", get_from_xet)
    with pytest.raises(InputError, match=r"does not answer \(CAS Client Error: error sending request\), and the stor"):
        bench.fetch(TARGET, ROWS)
    assert [line.split(" from the hub; ")[0] for line in bench.lines[-2:]] == [
        f"needs: model {MODEL_ID}",
        f"needs: data set {ROWS_ID}",
    ]
    assert find_folder(TARGET, bench.store) is None
    bench.hub.xet, bench.hub.busy = False, True
    with pytest.raises(InputError, match=r"^hub: the hub does not answer \(.*503"):
        bench.fetch(TOKENIZER)


def test_files_left_out_without_a_word_are_fetched_by_the_next_start(
    bench: HubBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """snapshot_download logs a hub that is away for a moment, and returns the part that an earlier start left."""

    def leave_out(*arguments: Any, local_dir: Path | None = None, **given: Any) -> str:
        if local_dir is None:
            raise OSError("it is not cached")
        local_dir.mkdir(parents=True)
        return str(local_dir)

    with monkeypatch.context() as patched:
        patched.setattr(huggingface_hub, "snapshot_download", leave_out)
        with pytest.raises(InputError, match=r"^hub: .* \(it has not sent config\.json, .*\), and the storage has"):
            bench.fetch(TARGET)
    assert find_folder(TARGET, bench.store) is None
    bench.fetch(TARGET)
    assert find_damage("models", bench.folder(TARGET)) is None


def test_a_storage_keeps_to_the_commit_that_it_has(bench: HubBench) -> None:
    bench.fetch(TARGET)
    before = bench.folder(TARGET)
    bench.write("config.json", '{"new": 1}')
    shutil.rmtree(before)
    bench.fetch(TARGET)
    assert bench.folder(TARGET) == before
    assert (before / "config.json").read_text() == "{}"
    now = bench.hub.commit("models", MODEL_ID)
    named = HubRequirement("models", MODEL_ID, now, "", "target=DIR")
    bench.fetch(named)
    assert (bench.folder(named) / "config.json").read_text() == '{"new": 1}'


def test_a_gated_model_says_what_to_accept(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.hub.gated.add(MODEL_ID)
    with pytest.raises(InputError) as refused:
        bench.fetch(TARGET)
    said = str(refused.value)
    assert said.startswith(f"target: model {MODEL_ID}: Cannot access gated repo for url {bench.hub.url}/{MODEL_ID}/")
    licence = "accept its licence if it is gated, and set HF_TOKEN (or log in with 'hf auth login')"
    assert said.endswith(f" Access is restricted; check the name; {licence}; or --set target=DIR")
    assert "\n" not in said
    monkeypatch.setenv("HF_TOKEN", "hf_nobody-knows-it")
    bench.fetch(TARGET)
    assert "nobody-knows-it" not in "".join(path.read_text() for path in bench.root.rglob("*.json"))


def test_what_the_hub_does_not_have_is_refused(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^benchmark\.data: data set somebody/authors: Repository Not Found for "):
        bench.fetch(ROWS)
    with pytest.raises(InputError, match=f"^target: model {MODEL_ID}: Revision Not Found for url: .*/v9"):
        bench.fetch(HubRequirement("models", MODEL_ID, "v9", "", "target=DIR"))
    monkeypatch.setattr(type(bench.store), "free", lambda store: 100)
    with pytest.raises(InputError, match=r"^--storage: model somebody/tiny takes 0\.0 MB, 0\.0 MB are free at"):
        bench.fetch(TARGET)
    part = bench.root / f".models--somebody--tiny@{bench.hub.commit('models', MODEL_ID)}.part" / ".cache" / "incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(100_000))
    bench.fetch(TARGET)  # goes on with what it has
    shutil.rmtree(bench.folder(TARGET))
    pin_file(TARGET, bench.store).unlink()
    shutil.rmtree(bench.served(""))
    bench.write("pytorch_model.bin", "pickled")
    with pytest.raises(InputError, match=r"^target: .* no model\.safetensors on the hub, .* has pytorch_model\.bin;"):
        bench.fetch(TARGET)


def test_offline_says_what_to_bring_and_takes_it(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as refused:
        bench.fetch(TARGET, ROWS)
    place, data = (bench.root / f"{name}@main" for name in ("models--somebody--tiny", "datasets--somebody--authors"))
    assert re.fullmatch(
        r"hub: the hub does not answer \(.*offline mode is enabled.*HF_HUB_OFFLINE.*\), and the storage has not: "
        f"model {MODEL_ID}, data set {ROWS_ID}; what to bring is said above, and by --dry-run",
        str(refused.value),
    )
    assert [line.splitlines() for line in bench.lines] == [
        [
            f"needs: model {MODEL_ID} from the hub; {OFFLINE}:",
            f"  either: hf download {MODEL_ID} --local-dir {place} (typed where there is a network, then copied there)",
            "  or: bring config.json, generation_config.json, tokenizer.json, tokenizer_config.json, model.safetensors "
            "(or model.safetensors.index.json with all its shards) to DIR and --set target=DIR",
        ],
        [
            f"needs: data set {ROWS_ID} from the hub; {OFFLINE}:",
            f"  either: hf download {ROWS_ID} --repo-type dataset --local-dir {data} "
            "(typed where there is a network, then copied there)",
            "  or: bring its files to DIR and --set benchmark.data=DIR",
        ],
    ]
    shutil.copytree(bench.served(""), place)
    whole = (place / SHARDS[0]).read_bytes()
    (place / SHARDS[0]).write_bytes(whole[:-8])
    with pytest.raises(InputError, match=rf"^target: {place / SHARDS[0]}: it cannot be read \(.*; bring it again"):
        bench.fetch(TARGET)
    (place / SHARDS[0]).write_bytes(whole)
    bench.fetch(TARGET)
    assert bench.folder(TARGET) == place
    assert bench.hub.requests == []


@pytest.mark.parametrize(
    ("name", "content", "damage"),
    [
        (SHARDS[1], None, f"{SHARDS[1]}: No such file or directory"),
        (SHARDS[1], (2).to_bytes(8, "little") + b"{}more", f"{SHARDS[1]}: it cannot be read ("),
        (INDEX, b"[]", f"{INDEX}: it cannot be read ("),
        (INDEX, json.dumps({"weight_map": {"a": "other.safetensors"}}).encode(), "other.safetensors: No such file"),
    ],
)
def test_damage_of_a_model_is_named(tmp_path: Path, name: str, content: bytes | None, damage: str) -> None:
    folder = tmp_path / "model"
    write_model(folder)
    assert find_damage("models", folder) is None
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    assert (find_damage("models", folder) or "").startswith(f"{folder}/{damage}")


def test_offline_takes_what_the_cache_of_hugging_face_has(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in bench.served("").iterdir():
        if path.is_file():
            huggingface_hub.hf_hub_download(MODEL_ID, path.name)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    bench.fetch(TARGET)
    commit = bench.hub.commit("models", MODEL_ID)
    assert bench.folder(TARGET).name == f"models--somebody--tiny@{commit}"
    assert not (bench.folder(TARGET) / "pytorch_model.bin").exists()
    assert not any(path.is_symlink() for path in bench.folder(TARGET).iterdir())
    assert "taken from this machine's cache" in bench.lines[-1]
