"""What is fetched from the hub, once: whole, pinned, with messages that say what to accept or to bring and where to."""

from __future__ import annotations

import json
import re
import shutil
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from platform.driver import driver
from platform.plan.requirements import OFFLINE
from platform.preparation import downloads
from platform.preparation import hub as hubs
from platform.schedule import session
from tests.support.hub_bench import MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, TOKENIZER, Bench
from trainables.common.errors import InputError
from trainables.data.hub import HubRequirement, find_folder, lock, pin_file
from trainables.storage.files import read_json


def test_what_is_read_is_fetched_once_and_whole(bench: Bench) -> None:
    bench.fetch(TARGET)
    commit = bench.hub.commit("models", MODEL_ID)
    folder = bench.folder(TARGET)
    assert folder == bench.home / f"models--somebody--tiny@{commit}"
    names = {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", *SHARDS}
    assert {path.name for path in folder.iterdir()} == names | {"model.safetensors.index.json"}
    asked = len(bench.hub.asked)
    bench.fetch(TARGET)
    assert bench.hub.asked[asked:] == [f"GET /api/models/{MODEL_ID}/revision/main"]
    pin = read_json(pin_file(TARGET, bench.store))
    assert pin is not None
    assert (pin["id"], pin["revision"], pin["commit"], pin["source"]) == (MODEL_ID, "main", commit, "hub")
    assert pin["files"][SHARDS[0]]["size"] == (folder / SHARDS[0]).stat().st_size
    assert [path.name for path in bench.home.iterdir() if path.name.startswith(".")] == [".locks"]


def test_one_file_of_weights_is_taken_where_there_are_shards_too(bench: Bench) -> None:
    save_file({"a": torch.ones(4)}, bench.hub.home / "models" / MODEL_ID / "model.safetensors")
    bench.fetch(TARGET)
    assert [path.name for path in bench.folder(TARGET).glob("*.safetensors*")] == ["model.safetensors"]


def test_a_tokenizer_alone_brings_no_weights(bench: Bench) -> None:
    bench.fetch(TOKENIZER)
    found = {path.name for path in bench.folder(TOKENIZER).iterdir()}
    assert found == {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}


def test_a_busy_hub_is_asked_again(bench: Bench) -> None:
    bench.hub.fails = 3
    bench.fetch(TARGET)
    assert sum("503" in line and "again in" in line for line in bench.said) == 3
    assert bench.folder(TARGET).is_dir()


def test_a_download_is_told_every_few_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SECONDS", 0.01)
    bench.write("tokenizer.json", "x" * 2_000_000)
    bench.fetch(TARGET)
    told = re.compile(r"fetching somebody/tiny: \S+\.(json|safetensors), [\d.]+ MB of 2\.0 MB, [\d.]+ [MG]B/s")
    assert any(told.fullmatch(line) for line in bench.said)
    assert re.fullmatch(r"fetching somebody/tiny at [0-9a-f]{12}: 7 files, 2\.0 MB", bench.said[0])
    assert re.fullmatch(r"fetched somebody/tiny: 2\.0 MB in \d+ s, [\d.]+ MB/s", bench.said[-1])


def test_of_two_starts_one_waits(bench: Bench) -> None:
    holds, told = threading.Event(), threading.Event()

    def other() -> None:
        with lock(f"{TARGET.key}.lock", bench.store):
            holds.set()
            told.wait(30)

    threading.Thread(target=other, daemon=True).start()
    assert holds.wait(30)

    def say(line: str) -> None:
        bench.said.append(line)
        told.set()

    hub = hubs.Hub(bench.store, say)
    assert hub.ensure(TARGET)
    assert bench.said[0] == f"model {MODEL_ID}: another start is fetching it; waiting for that"
    assert bench.folder(TARGET).is_dir()


def test_a_shard_that_comes_short_or_damaged_is_named_and_fetched_again(bench: Bench) -> None:
    bench.hub.short[SHARDS[0]] = 1
    bench.hub.damaged[SHARDS[1]] = 1
    bench.fetch(TARGET)
    (short,) = [line for line in bench.said if "should be of size" in line]
    assert short.startswith(f"{MODEL_ID}: {SHARDS[0]}: Consistency check failed")
    assert f"{MODEL_ID}: {SHARDS[1]} is damaged (its SHA-256 is not the hub's); fetching it again" in bench.said
    for name in SHARDS:
        assert (bench.folder(TARGET) / name).read_bytes() == (bench.hub.home / "models" / MODEL_ID / name).read_bytes()
    assert bench.hub.count(f"GET /{MODEL_ID}/resolve/") == 7 + 2


def test_a_hub_that_tells_no_hashes_is_held_against_the_headers(bench: Bench) -> None:
    bench.hub.told = False
    bench.hub.damaged["config.json"] = 0
    path = bench.hub.home / "models" / MODEL_ID / SHARDS[1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        InputError, match=rf"^target: {SHARDS[1]} of {MODEL_ID} came damaged 3 times \(it has 1\d{{3}} "
    ):
        bench.fetch(TARGET)
    assert sum(line.endswith("fetching it again") for line in bench.said) == 3
    assert find_folder(TARGET, bench.store) is None


def test_weights_without_a_tensor_of_the_index_are_refused(bench: Bench) -> None:
    name = "model.safetensors.index.json"
    index = json.loads((bench.hub.home / "models" / MODEL_ID / name).read_text())
    index["weight_map"]["c"] = SHARDS[1]
    bench.write(name, json.dumps(index))
    with pytest.raises(InputError, match=f"{SHARDS[1]} of {MODEL_ID} at .* it has no tensor 'c'"):
        bench.fetch(TARGET)


def test_a_wrong_total_is_told_where_the_shards_are_the_hubs(bench: Bench) -> None:
    name = "model.safetensors.index.json"
    bench.write(name, (bench.hub.home / "models" / MODEL_ID / name).read_text().replace("3072", "3073"))
    bench.fetch(TARGET)
    assert any("it tells 3073 bytes of tensors, the files hold 3072; the shards are as" in line for line in bench.said)


def test_a_start_goes_on_after_an_interrupt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = downloads._file

    def interrupted(*arguments: Any, **options: Any) -> None:
        if arguments[1].name == SHARDS[1]:
            raise KeyboardInterrupt
        whole(*arguments, **options)

    monkeypatch.setattr(downloads, "_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.fetch(TARGET)
    assert find_folder(TARGET, bench.store) is None
    monkeypatch.setattr(downloads, "_file", whole)
    bench.hub.asked.clear()
    bench.fetch(TARGET)
    assert bench.hub.count(f"GET /{MODEL_ID}/resolve/") == 5  # all but the two before it
    assert bench.hub.count(SHARDS[0]) == 0


def test_a_moved_main_is_told_and_the_first_ones_kept(bench: Bench) -> None:
    bench.fetch(TARGET)
    before = bench.folder(TARGET)
    bench.write("config.json", '{"new": 1}')
    bench.fetch(TARGET)
    assert "'main' is now" in bench.said[-1]
    assert f"this storage keeps to {before.name.partition('@')[2][:12]}" in bench.said[-1]
    assert bench.folder(TARGET) == before
    shutil.rmtree(before)  # lost, not moved
    bench.fetch(TARGET)
    assert bench.folder(TARGET) == before
    assert (before / "config.json").read_text() == "{}"


def test_a_revision_of_ones_own_is_another_thing(bench: Bench) -> None:
    commit = bench.hub.commit("models", MODEL_ID)
    bench.write("config.json", '{"new": 1}')
    old = HubRequirement("models", MODEL_ID, commit, "", "target=DIR")
    bench.fetch(TARGET, old)
    assert (bench.folder(TARGET) / "config.json").read_text() == '{"new": 1}'
    assert (bench.folder(old) / "config.json").read_text() == "{}"
    with pytest.raises(InputError, match=f"^target: {MODEL_ID} has no revision 'v9' on the hub"):
        bench.fetch(HubRequirement("models", MODEL_ID, "v9", "", "target=DIR"))


def test_a_gated_model_says_what_to_accept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.hub.gated.add(MODEL_ID)
    with pytest.raises(InputError) as refused:
        bench.fetch(TARGET)
    assert str(refused.value) == (
        f"target: model {MODEL_ID} is gated: accept its licence at https://huggingface.co/{MODEL_ID}, then set "
        "HF_TOKEN (or log in with 'hf auth login'); or --set target=DIR (no token is set)"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_nobody-knows-it")
    bench.fetch(TARGET)
    assert "nobody-knows-it" not in "".join(path.read_text() for path in bench.home.rglob("*.json"))


def test_what_the_hub_has_not_is_told(bench: Bench) -> None:
    with pytest.raises(InputError, match=r"^benchmark\.data: the hub has no data set somebody/authors, or shows it"):
        bench.fetch(ROWS)
    shutil.rmtree(bench.hub.home / "models" / MODEL_ID)
    bench.write("pytorch_model.bin", "pickled")
    with pytest.raises(InputError, match=r"^target: .* no model\.safetensors on the hub, .* has pytorch_model\.bin;"):
        bench.fetch(TARGET)


def test_offline_says_what_to_bring_and_takes_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as refused:
        bench.fetch(TARGET, ROWS)
    place, data = (bench.home / f"{name}@main" for name in ("models--somebody--tiny", "datasets--somebody--authors"))
    assert str(refused.value) == (
        f"hub: HF_HUB_OFFLINE is set, and the storage has not: model {MODEL_ID}, data set {ROWS_ID}; what to bring is "
        "said above, and by --dry-run"
    )
    assert [told.splitlines() for told in bench.said] == [
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
    assert bench.hub.asked == []
    shutil.copytree(bench.hub.home / "models" / MODEL_ID, place)
    (place / SHARDS[0]).write_bytes((place / SHARDS[0]).read_bytes()[:-8])
    with pytest.raises(InputError, match=f"^target: {place / SHARDS[0]}: it has .* bytes, its header asks for"):
        bench.fetch(TARGET)
    shutil.copyfile(bench.hub.home / "models" / MODEL_ID / SHARDS[0], place / SHARDS[0])
    bench.fetch(TARGET)
    assert bench.folder(TARGET) == place
    assert bench.hub.asked == []


def test_a_hub_that_falls_silent_has_told_names_and_sizes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*arguments: Any, **options: Any) -> None:
        raise downloads.Silent("the hub does not answer (gone)")

    monkeypatch.setattr(downloads, "_file", silent)
    with pytest.raises(InputError, match=r"does not answer \(gone\), and the storage has not: model somebody/tiny;"):
        bench.fetch(TARGET)
    assert re.search(rf"or: bring .*config\.json \(0\.0 MB\).*{SHARDS[0]} \(", bench.said[-1])


def test_a_silent_hub_is_told_before_ray_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    def start(address: str | None) -> None:
        raise AssertionError("Ray starts")

    monkeypatch.setattr(session, "start", start)
    plan: Any = SimpleNamespace(hub=(TARGET,))
    more: Any = ("sweep", None, None, None, "none")
    with pytest.raises(AssertionError, match="Ray starts"):
        driver._with_ray(plan, bench.store, *more)
    assert bench.hub.count("/resolve/") == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=f"HF_HUB_OFFLINE is set, and the storage has not: model {MODEL_ID};"):
        driver._with_ray(plan, bench.store, *more)
    bench.hub.asked.clear()
    shutil.copytree(bench.hub.home / "models" / MODEL_ID, bench.home / TARGET.key)
    with pytest.raises(AssertionError, match="Ray starts"):
        driver._with_ray(plan, bench.store, *more)


def test_offline_takes_what_huggingfaces_cache_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, hf_hub_download

    for path in (bench.hub.home / "models" / MODEL_ID).iterdir():
        if path.is_file():
            hf_hub_download(MODEL_ID, path.name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    bench.fetch(TARGET)
    commit = bench.hub.commit("models", MODEL_ID)
    assert bench.folder(TARGET).name == f"models--somebody--tiny@{commit}"
    assert not (bench.folder(TARGET) / "pytorch_model.bin").exists()
    assert not any(path.is_symlink() for path in bench.folder(TARGET).iterdir())
    assert "taken from this machine's cache" in bench.said[-1]
