"""What is fetched from the hub: once, at one commit a storage, with messages that say what to accept or to bring."""

import shutil

import huggingface_hub
import pytest

from tests.support.hub_server import MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, TOKENIZER, HubBench
from trainables.common.errors import InputError
from trainables.data.hub_folders import HubRequirement, locate_commit_pin, read_pinned_commit


def test_what_is_read_is_fetched_once(bench: HubBench) -> None:
    bench.fetch(TARGET)
    commit = bench.hub.commit("models", MODEL_ID)
    assert bench.folder(TARGET).name == commit
    names = {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    names |= {*SHARDS, "model.safetensors.index.json"}
    assert {path.name for path in bench.folder(TARGET).iterdir()} == names
    assert bench.printed.getvalue() == f"fetching {MODEL_ID} at {commit[:12]}\n"
    assert read_pinned_commit(TARGET, bench.store) == commit
    bench.hub.requests.clear()
    bench.fetch(TARGET)
    assert bench.hub.requests == []
    bench.fetch(TOKENIZER)
    assert bench.hub.downloads() == []


def test_a_storage_keeps_to_the_commit_that_it_has(bench: HubBench) -> None:
    bench.fetch(TARGET)
    before = bench.folder(TARGET)
    bench.write("config.json", '{"new": 1}')
    shutil.rmtree(before.parents[1])
    bench.fetch(TARGET)
    assert bench.folder(TARGET) == before
    assert (before / "config.json").read_text() == "{}"
    now = bench.hub.commit("models", MODEL_ID)
    named = HubRequirement("models", MODEL_ID, now, "target=DIR")
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
    assert "nobody-knows-it" not in locate_commit_pin(TARGET, bench.store).read_text()


def test_what_the_hub_does_not_have_is_refused(bench: HubBench) -> None:
    with pytest.raises(InputError, match=r"^benchmark\.data: data set somebody/authors: Repository Not Found for "):
        bench.fetch(ROWS)
    with pytest.raises(InputError, match=f"^target: model {MODEL_ID}: Revision Not Found for url: .*/v9"):
        bench.fetch(HubRequirement("models", MODEL_ID, "v9", "target=DIR"))
    shutil.rmtree(bench.served(""))
    bench.write("pytorch_model.bin", "pickled")
    bench.write("config.json", "{}")
    with pytest.raises(InputError, match=r"^target: .* no model\.safetensors on the hub, .*: --set target=DIR"):
        bench.fetch(TARGET)


def test_offline_says_what_to_bring_and_takes_what_the_cache_has(
    bench: HubBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as offline:
        offline.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(InputError, match=r"^hub: the hub does not answer \(.*\), and this machine has not: model "):
            bench.fetch(TARGET, ROWS)
    assert [line for line in bench.printed.getvalue().splitlines() if "hf download" in line] == [
        f"  hf download {MODEL_ID} (where there is a network; then copy HF_HOME), or --set target=DIR",
        f"  hf download {ROWS_ID} --repo-type dataset (where there is a network; then copy HF_HOME), or --set "
        "benchmark.data=DIR",
    ]
    huggingface_hub.snapshot_download(MODEL_ID)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    bench.fetch(TARGET)
    assert bench.folder(TARGET).name == bench.hub.commit("models", MODEL_ID)
