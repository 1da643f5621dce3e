"""What is fetched from the hub, once: whole, pinned, with messages that say what to accept or to bring and where to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hub_server
import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

import platform.downloads as downloads
import platform.hub as hubs
from trainables import pins, rows
from trainables.benchmarks import questions
from trainables.config import Benchmark, Model
from trainables.errors import InputError
from trainables.storage import Storage, read_json
from trainables.wanted import MODEL, Wanted

MODEL_ID, ROWS_ID, ASKED_ID = "somebody/tiny", "somebody/authors", "somebody/asked"
TARGET = Wanted("models", MODEL_ID, None, "", "target=DIR", MODEL)
TOKENIZER = Wanted("tokenizers", MODEL_ID, None, "", "tokenizer=DIR")
ROWS = Wanted("datasets", ROWS_ID)
ASKED = Wanted("datasets", ASKED_ID, None, "wmdp", "benchmark.sources=wmdp=DIR")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass
class Bench:
    """A hub, a storage and what was said."""

    hub: hub_server.Hub
    store: Storage
    said: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.store.root / "shared" / "hub"

    def fetch(self, *things: Wanted) -> None:
        plan: Any = SimpleNamespace(hub=things)
        hubs.fetch(plan, self.store, self.said.append)

    def folder(self, thing: Wanted) -> Path:
        found = pins.find(thing, self.store)
        assert found is not None
        return found

    def write(self, name: str, content: str | bytes, repository: str = f"models/{MODEL_ID}") -> None:
        path = self.hub.home / repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_model(folder: Path) -> None:
    """A model of two shards with what a repository has besides."""
    folder.mkdir(parents=True)
    tensors = {"a": torch.ones(64, 8), "b": torch.ones(32, 8)}
    for name, file in zip(tensors, SHARDS, strict=True):
        save_file({name: tensors[name]}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 96 * 8 * 4}, "weight_map": dict(zip(tensors, SHARDS, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text("{}")
    for name in ("pytorch_model.bin", "modeling_tiny.py", "README.md", "original/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("not read")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    from huggingface_hub import constants

    write_model(tmp_path / "models" / MODEL_ID)
    with hub_server.serving(tmp_path) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(downloads, "WAITS", (0.0, 0.0, 0.0))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield Bench(hub, Storage(tmp_path / "store"))


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
    pin = read_json(pins.file_of(TARGET, bench.store))
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
    assert pins.find(TARGET, bench.store) is None


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
    assert pins.find(TARGET, bench.store) is None
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
    old = Wanted("models", MODEL_ID, commit, "", "target=DIR")
    bench.fetch(TARGET, old)
    assert (bench.folder(TARGET) / "config.json").read_text() == '{"new": 1}'
    assert (bench.folder(old) / "config.json").read_text() == "{}"
    with pytest.raises(InputError, match=f"^target: {MODEL_ID} has no revision 'v9' on the hub"):
        bench.fetch(Wanted("models", MODEL_ID, "v9", "", "target=DIR"))


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
        f"hub: HF_HUB_OFFLINE is set, and the storage has not: model {MODEL_ID} from the hub (a network, or bring "
        "config.json, generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors (or "
        f"model.safetensors.index.json with all its shards) to DIR and --set target=DIR, or the repository to {place} "
        f"(hf download {MODEL_ID} --local-dir {place})); data set {ROWS_ID} from the hub (a network, or bring its "
        f"files to DIR and --set benchmark.data=DIR, or the repository to {data} (hf download {ROWS_ID} --repo-type "
        f"dataset --local-dir {data}))"
    )
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
    with pytest.raises(
        InputError, match=rf"does not answer \(gone\).*bring .*config\.json \(0\.0 MB\).*{SHARDS[0]} \("
    ):
        bench.fetch(TARGET)


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


def test_rows_are_read_from_the_storage_as_from_the_hub(bench: Bench) -> None:
    bench.write("forget01.json", '{"question": "Who?", "answer": "Nobody."}\n', f"datasets/{ROWS_ID}")
    bench.write(
        "README.md", "---\nconfigs:\n- config_name: forget01\n  data_files: forget01.json\n---\n", f"datasets/{ROWS_ID}"
    )
    bench.write("loader.py", "raise SystemExit", f"datasets/{ROWS_ID}")
    planned = Benchmark(data=ROWS_ID, split="forget01", fingerprint=rows.fingerprint(ROWS_ID, ("forget01",)))
    assert bench.store.here(planned) == planned
    bench.fetch(ROWS)
    there = bench.store.here(planned)
    assert Path(there.data) == bench.folder(ROWS)
    assert not (bench.folder(ROWS) / "loader.py").exists()
    assert rows.load(there.data, "forget01", ("question",)) == [{"question": "Who?", "answer": "Nobody."}]
    assert rows.fingerprint(there.data, ("forget01",)) == planned.fingerprint
    assert pins.commits(there) == {ROWS_ID: bench.hub.commit("datasets", ROWS_ID)}
    alone = planned.model_copy(update={"fingerprint": None})
    assert bench.store.here(alone) == alone


def write_questions(bench: Bench) -> None:
    """Two configurations in the hub's layout, of which one has two splits."""
    at = f"datasets/{ASKED_ID}"
    for name in ("wmdp-bio/test", "wmdp-bio/dev", "other/test"):
        file = bench.hub.home / at / f"{name}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"question": ["Which?"], "choices": [["a", "b", "c", "d"]], "answer": [2]}
        pyarrow.parquet.write_table(pyarrow.table(content), file)
    bench.write(
        "README.md",
        "---\nlicense: mit\nconfigs:\n"
        "- config_name: other\n  data_files:\n  - split: test\n    path: other/test-*\n"
        "- config_name: wmdp-bio\n  data_files:\n  - split: test\n    path: wmdp-bio/test-*\n"
        "  - split: dev\n    path: [wmdp-bio/dev-*]\n---\nA card.\n",
        at,
    )


def test_lm_eval_asks_the_storages_questions(bench: Bench) -> None:
    write_questions(bench)
    bench.fetch(ASKED)
    asked = len(bench.hub.asked)
    task = questions.one("wmdp_bio", str(bench.folder(ASKED)), "wmdp-bio")
    assert [row["answer"] for row in task.test_docs()] == [2]
    assert bench.hub.asked[asked:] == []


def test_of_a_tasks_data_set_its_configuration_alone_is_fetched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    write_questions(bench)
    assert questions.source_of("arc_easy") == ("allenai/ai2_arc", "ARC-Easy")
    assert questions.source_of("mmlu") == ("cais/mmlu", None)
    monkeypatch.setattr(questions, "source_of", lambda task: (ASKED_ID, "wmdp-bio"))
    task = Wanted("tasks", "arc_easy", None, "hub:arc_easy", "benchmark.sources=arc_easy=DIR")
    bench.fetch(task)
    folder = bench.folder(task)
    assert folder.name.endswith("+wmdp-bio")
    assert {path.name for path in folder.iterdir()} == {"README.md", "wmdp-bio"}
    made = questions.one("wmdp_bio", str(folder), "wmdp-bio")
    assert set(made.dataset) == {"test", "dev"}


def test_a_model_keeps_its_identity_where_its_files_lie(bench: Bench) -> None:
    mark = f"hub:{MODEL_ID}@main+{MODEL_ID}"
    planned = Model(path=MODEL_ID, fingerprint=mark, tokenizer=MODEL_ID)
    bench.fetch(TARGET, TOKENIZER)
    there = bench.store.here(planned)
    assert (Path(there.path), there.fingerprint) == (bench.folder(TARGET), mark)
    assert Path(str(there.tokenizer)) == bench.folder(TOKENIZER)
    assert bench.store.here(there) == there
