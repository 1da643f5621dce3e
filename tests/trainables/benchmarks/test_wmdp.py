"""WMDP and MMLU through lm-eval: made-up questions, the real MMLU rows, the corpora, and what RMU trains."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.families import losses_and_hits
from trainables.benchmarks import lm_eval_adapter, wmdp
from trainables.common.errors import InputError, TrialDiverged
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data import raw_rows, text_blocks
from trainables.trial import setup

WMDP = wmdp.WmdpBenchmark()

CORPORA = ("bio-forget-corpus", "bio-retain-corpus", "cyber-forget-corpus", "cyber-retain-corpus")
SUBJECTS = {"virology": 5, "global_facts": 3}
QUESTION = "The following are multiple choice questions (with answers) about {}.\n\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up corpora and questions; of each corpus one text is too short."""
    folder = tmp_path_factory.mktemp("wmdp")
    for number, name in enumerate(CORPORA):
        found = [{"text": tiny.text(10 * number + k, 15)} for k in range(5)]
        tiny.write_rows(folder / f"{name}.jsonl", [*found, {"text": "a" * 50}])
    for number, name in enumerate(wmdp.CONFIG_BY_QUESTION_TASK.values()):
        tiny.write_rows(folder / f"questions/{name}/test.json", tiny.choices(6, number))
    for subject, count in SUBJECTS.items():
        tiny.write_rows(folder / f"mmlu/{subject}/test.json", tiny.choices(count, count))
        tiny.write_rows(folder / f"mmlu/{subject}/dev.json", tiny.choices(5, 9))
    return folder


def on(data: Path, **settings: Any) -> Benchmark:
    sources = (f"wmdp={data / 'questions'}", f"mmlu={data / 'mmlu'}")
    fields = {"name": "wmdp", "data": str(data), "split": "bio_cyber", "sources": sources}
    return Benchmark.model_validate(fields | settings)


def listed(row: dict[str, Any]) -> str:
    """The question with its lettered choices."""
    choices = "".join(f"{letter}. {choice}\n" for letter, choice in zip("ABCD", row["choices"], strict=True))
    return f"{row['question']}\n{choices}Answer:"


def choose(network: Any, row: dict[str, Any], before: str) -> list[float]:
    """Log-likelihoods of the four letters after the question, as METHODS section 5 writes it."""
    tokenizer = tiny.tokenizer()
    ids = tokenizer(before + listed(row))["input_ids"]
    letters = [tokenizer(f" {letter}", add_special_tokens=False)["input_ids"] for letter in "ABCD"]
    return [-sum(losses_and_hits(network, Example((*ids, *more), len(ids)))[0]) for more in letters]


def test_every_answer_equals_a_naive_one(data: Path) -> None:
    network = tiny.network(layers=1)
    found, records = WMDP.measure(network, tiny.tokenizer(), on(data), None, token_budget=1024)
    counts = {"mmlu_global_facts": 3, "mmlu_virology": 5, "wmdp_bio": 6, "wmdp_cyber": 6}
    assert {task: sum(row["task"] == task for row in records) for task in counts} == counts
    files = {"wmdp_bio": ("questions/wmdp-bio", "biology"), "wmdp_cyber": ("questions/wmdp-cyber", "cybersecurity")}
    files |= {f"mmlu_{name}": (f"mmlu/{name}", name.replace("_", " ")) for name in SUBJECTS}
    right: dict[str, list[bool]] = {}
    for row in records:
        path, subject = files[row["task"]]
        asked = raw_rows.load_rows(str(data), f"{path}/test", ())[row["index"]]
        naive = choose(network, asked, QUESTION.format(subject))
        assert row["log_likelihoods"] == pytest.approx(naive, rel=1e-4)
        assert row["correct"] == (max(range(4), key=naive.__getitem__) == asked["answer"] == row["target"])
        assert not set(row) & {"question", "choices"}
        right.setdefault(row["task"].split("_")[0] if "mmlu" in row["task"] else row["task"], []).append(row["correct"])
    assert {name: found[name] for name in right} == pytest.approx({k: sum(v) / len(v) for k, v in right.items()})
    assert {name: found[f"{name}_questions"] for name in right} == {"wmdp_bio": 6, "wmdp_cyber": 6, "mmlu": 8}
    network.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(TrialDiverged, match="not finite"):
        WMDP.measure(network, tiny.tokenizer(), on(data, limit=1), None, token_budget=1024)


def test_worked_examples_come_first(data: Path) -> None:
    """Five-shot: the dev rows with their answers, before each question of MMLU alone."""
    network, shown = tiny.network(layers=1), raw_rows.load_rows(str(data), "mmlu/virology/dev", ())
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = None
    _, records = WMDP.measure(network, tokenizer, on(data, shots=5, limit=1), None, token_budget=1024)
    assert tokenizer.pad_token is None, "the process's next trial has it, too"
    before = QUESTION.format("virology")
    before += "".join(f"{listed(row)} {'ABCD'[row['answer']]}\n\n" for row in shown)
    told = {row["task"]: row["log_likelihoods"] for row in records}
    assert len(records) == 4
    asked = raw_rows.load_rows(str(data), "mmlu/virology/test", ())[0]
    assert told["mmlu_virology"] == pytest.approx(choose(network, asked, before), rel=1e-4)
    bio = raw_rows.load_rows(str(data), "questions/wmdp-bio/test", ())[0]
    assert told["wmdp_bio"] == pytest.approx(choose(network, bio, QUESTION.format("biology")), rel=1e-4)


def test_training_rows_are_texts_or_blocks_of_the_splits_topics(data: Path) -> None:
    tokenizer = tiny.tokenizer()
    texts = {name: [row["text"] for row in raw_rows.load_rows(str(data), name, ())][:5] for name in CORPORA}
    for split, topics in wmdp.TOPICS_BY_SPLIT.items():
        forget, retain = (
            [text for topic in topics for text in texts[f"{topic}-{side}-corpus"]] for side in ("forget", "retain")
        )
        sides = WMDP.training_examples(on(data, split=split), tokenizer, 60)
        assert [list(side) for side in sides] == [
            list(text_blocks.LazyTextRows(tokenizer, side, 60)) for side in (forget, retain)
        ]
        blocks = WMDP.training_examples(on(data, split=split, dialect="open-unlearning"), tokenizer, 60)
        assert list(blocks) == [text_blocks.make_retokenized_blocks(tokenizer, side, 60) for side in (forget, retain)]


def test_the_gated_corpus_of_the_hub_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its one configuration is called `default`."""
    text = "a" * 99
    monkeypatch.setattr(raw_rows, "load_rows", lambda place, config, *_, **__: [{"text": f"{config} {text}"}])
    hub = Benchmark(name="wmdp", data="cais/wmdp-corpora", split="bio_cyber")
    sides = [[row["text"].split()[0] for row in side] for side in WMDP.training_rows(hub)]
    assert sides == [["default", "cyber-forget-corpus"], ["bio-retain-corpus", "cyber-retain-corpus"]]


def test_what_is_missing_from_folders_is_told_with_the_setting(data: Path, tmp_path: Path) -> None:
    WMDP.check_rows(on(data))
    shutil.copytree(data / "mmlu", tmp_path / "mmlu")
    (tmp_path / "mmlu" / "virology" / "dev.json").unlink()
    for sources, words in (
        (("mmlu=./nowhere",), "mmlu: no folder './nowhere'"),
        ((f"bio_forget={tmp_path}", f"mmlu={data / 'mmlu'}"), "bio_forget: .* has no bio-forget-corpus.json"),
        ((f"mmlu={tmp_path / 'mmlu'}",), "mmlu: .* has no virology/dev.json"),
    ):
        with pytest.raises(InputError, match=f"^benchmark.sources {words}"):
            WMDP.fingerprint(on(data, sources=sources))
    (tmp_path / "mmlu" / "virology").rename(tmp_path / "mmlu" / "virolog")
    with pytest.raises(InputError, match="'virolog' is no subject of MMLU; did you mean 'virology'"):
        lm_eval_adapter.load_lm_eval_tasks(("mmlu",), {"mmlu": str(tmp_path / "mmlu")}, 0)


def test_the_gated_corpus_is_told_with_what_to_do() -> None:
    hub = Benchmark(name="wmdp", data="cais/wmdp-corpora", split="bio_cyber")
    found = WMDP.hub_requirements(hub)
    assert [thing.id for thing in found] == [
        *("cais/wmdp", "cais/mmlu", "cais/wmdp-bio-forget-corpus", "cais/wmdp-corpora")
    ]
    assert "HF_TOKEN" in found[2].gated + found[2].setting
    assert not any(thing.gated for thing in WMDP.hub_requirements(hub.model_copy(update={"split": "cyber"})))
    assert WMDP.fingerprint(hub) == (
        "hub:cais/wmdp-bio-forget-corpus@main+cais/wmdp-corpora@main+cais/wmdp@main+cais/mmlu@main"
    )


def test_rmu_trains_three_matrices_of_the_model_that_it_steers() -> None:
    """A whole trial of it: the sweeps wmdp_zephyr and wmdp_rmu in test_named_sweeps_run."""
    network = tiny.network(layers=4)
    setup.freeze_all_but_rmu_weights(network, 2)
    trained = {name for name, weight in network.named_parameters() if weight.requires_grad}
    assert trained == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1, 2)}
