"""What was fetched from the hub stands for its hub id: in configurations, rows, questions, and on every machine."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants, snapshot_download

from tests.support import shrunk_sweeps, tiny
from tests.support.hub_server import MODEL_ID, QUESTIONS_ID, ROWS, ROWS_ID, TARGET, TOKENIZER, HubBench
from tests.support.small_sweep import plan_named
from trainables import benchmarks
from trainables.benchmarks import evaluation, lm_eval_adapter
from trainables.benchmarks.local_paths import localize_paths
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import hashed_settings
from trainables.data import hub_folders, raw_rows
from trainables.data.hub_folders import HubRequirement
from trainables.training import memory, model_files


def test_rows_are_read_from_the_storage_as_from_the_hub(bench: HubBench) -> None:
    bench.write("forget01.json", '{"question": "Who?", "answer": "Nobody."}\n', f"datasets/{ROWS_ID}")
    bench.write(
        "README.md", "---\nconfigs:\n- config_name: forget01\n  data_files: forget01.json\n---\n", f"datasets/{ROWS_ID}"
    )
    bench.write("loader.py", "raise SystemExit", f"datasets/{ROWS_ID}")
    planned = Benchmark(
        data=ROWS_ID, split="forget01", fingerprint=raw_rows.fingerprint_data_source(ROWS_ID, ("forget01",))
    )
    assert localize_paths(planned, bench.store) == planned
    bench.fetch(ROWS)
    there = localize_paths(planned, bench.store)
    assert Path(there.data) == bench.folder(ROWS)
    assert not (bench.folder(ROWS) / "loader.py").exists()
    assert raw_rows.load_rows(there.data, "forget01", ("question",)) == [{"question": "Who?", "answer": "Nobody."}]
    assert raw_rows.fingerprint_data_source(there.data, ("forget01",)) == planned.fingerprint
    assert there.data.endswith(f"/snapshots/{bench.hub.commit('datasets', ROWS_ID)}")
    alone = planned.model_copy(update={"fingerprint": None})
    assert localize_paths(alone, bench.store) == alone


def write_questions(bench: HubBench, name: str = QUESTIONS_ID) -> None:
    """Two configurations in the hub's layout, of which one has two splits."""
    at = f"datasets/{name}"
    for split in ("wmdp-bio/test", "wmdp-bio/dev", "other/test"):
        file = bench.hub.home / at / f"{split}-00000-of-00001.parquet"
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


def test_lm_eval_reads_the_storages_questions(bench: HubBench) -> None:
    write_questions(bench)
    task = HubRequirement("datasets", QUESTIONS_ID, None, "benchmark.sources=wmdp_bio=DIR")
    bench.fetch(task)
    bench.hub.requests.clear()
    (made,) = lm_eval_adapter.load_lm_eval_tasks(("wmdp_bio",), {"wmdp_bio": str(bench.folder(task))}, 0)
    assert [row["answer"] for row in made.test_docs()] == [2]
    assert set(made.dataset) == {"test", "dev"}
    assert bench.hub.requests == []


def test_a_model_keeps_its_identity_where_its_files_lie(bench: HubBench) -> None:
    mark = f"hub:{MODEL_ID}@main+{MODEL_ID}"
    planned = Model(path=MODEL_ID, fingerprint=mark, tokenizer=MODEL_ID)
    bench.fetch(TARGET, TOKENIZER)
    there = localize_paths(planned, bench.store)
    assert (Path(there.path), there.fingerprint) == (bench.folder(TARGET), mark)
    assert Path(str(there.tokenizer)) == bench.folder(TOKENIZER)
    assert localize_paths(there, bench.store) == there
    elsewhere = there.model_copy(update={"path": there.path.replace(str(bench.hub.home), "/of/another/machine")})
    assert localize_paths(elsewhere, bench.store) == there


def test_fingerprints_stay_where_parts_of_the_data_are_fetched(bench: HubBench, tmp_path: Path) -> None:
    for name in ("cais/wmdp", "cais/mmlu"):
        write_questions(bench, name)
    shrunk_sweeps.wmdp(tmp_path)
    data = tmp_path / "data"
    files = tuple(f"{part}={file}" for part, file in tiny.own(tmp_path / "own").items())
    for planned in (
        Benchmark(name="wmdp", data=str(data), split="bio"),
        Benchmark(
            name="own",
            data="own",
            split="own",
            template="plain",
            sources=(*files, "wmdp_bio=cais/wmdp", "mmlu=cais/mmlu"),
            tasks=("wmdp_bio", "mmlu"),
        ),
    ):
        kind = benchmarks.get_benchmark(planned.name)
        planned = planned.model_copy(update={"fingerprint": kind.fingerprint(planned)})
        bench.fetch(*kind.hub_requirements(planned))
        there = localize_paths(planned, bench.store)
        assert sum("/snapshots/" in place for place in there.places.values()) == 2
        kind.check_settings(there)
        evaluation.check_data_unchanged(there)
        assert hashed_settings(there) == hashed_settings(planned)
        assert localize_paths(there, bench.store) == there


def test_a_model_that_was_fetched_is_asked_as_its_tokenizer_says(bench: HubBench, tmp_path: Path) -> None:
    """Before, it is taken for a chat model."""
    typed = f"target={MODEL_ID}", f"forget={tiny.own(tmp_path / 'own')['forget']}"
    found = [plan_named("own", bench.store, *typed).sweep.benchmark.template]
    bench.fetch(TARGET)
    assert [*found, plan_named("own", bench.store, *typed).sweep.benchmark.template] == ["chat", "plain"]


def test_without_a_way_to_the_hub_a_model_is_what_was_fetched(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("config.json", json.dumps(sizes := tiny.network().config.to_dict()))
    snapshot_download(MODEL_ID)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub_folders, "can_ask_hub", hub_folders.can_ask_hub.__wrapped__)
    assert model_files.read_model_shape(Model(path=MODEL_ID)) == memory.parse_model_shape(sizes)
    with pytest.raises(InputError, match="no way leads to the hub, and this machine has not fetched it"):
        model_files.load_model_and_tokenizer(Model(path="somebody/else"))
