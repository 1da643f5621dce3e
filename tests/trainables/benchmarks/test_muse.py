"""MUSE: its training rows, its records against a re-statement, its files, and the way through a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args
from unittest.mock import ANY

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from tests.support import families, tiny
from trainables import benchmarks
from trainables.benchmarks import muse
from trainables.common.errors import InputError
from trainables.common.tokens import Example
from trainables.config.settings import Benchmark, Dialect, Model, Resources, RetainEvaluation, Training
from trainables.config.trial import Trial, evaluation_id
from trainables.data import row_loader, text_blocks
from trainables.storage.base import RESULT, ROWS
from trainables.storage.files import read_rows
from trainables.storage.location import open_storage
from trainables.trial.runner import TrialRun
from trainables.workers import shared_artifacts

MUSE = muse.MuseBenchmark()

DIALECTS = get_args(Dialect)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.muse(tmp_path_factory.mktemp("muse"))


def on(data: Path, dialect: Any = "paper", **settings: Any) -> Benchmark:
    return Benchmark(name="muse", data=str(data), split="news", dialect=dialect, **settings)


def test_wrapped_rows_are_the_stream_and_its_beginning_again() -> None:
    tokenizer, texts = tiny.tokenizer(), [tiny.text(seed, 9) for seed in range(3)]
    found = text_blocks.wrap_texts(tokenizer, texts, 40)
    assert {len(row.input_ids) for row in found} == {40}
    assert {row.input_ids[0] for row in found} == {tokenizer.bos_token_id}
    assert {row.answer_start for row in found} == {1}
    stream = tokenizer("\n\n".join(texts), add_special_tokens=False)["input_ids"]
    laid = [token for row in found for token in row.input_ids[1:]]
    assert laid[: len(stream)] == stream
    assert laid[len(stream) :] == stream[: len(laid) - len(stream)]
    assert 0 < len(laid) - len(stream) < 39
    (row,) = text_blocks.wrap_texts(tokenizer, ["ab"], 8)
    assert tokenizer.decode(row.input_ids[1:]) == "abababa"


def test_decoded_rows_are_the_stream_with_a_shorter_last_one() -> None:
    tokenizer, texts = tiny.tokenizer(), [tiny.text(seed, 9) for seed in range(3)]
    found = text_blocks.retokenize_blocks(tokenizer, texts, 40)
    assert [len(row.input_ids) for row in found[:-1]] == [41] * (len(found) - 1)
    assert "".join(tokenizer.decode(row.input_ids[1:]) for row in found) == "\n\n".join(texts)


def test_one_row_a_text_is_cut_at_the_length() -> None:
    found = text_blocks.Texts(tiny.tokenizer(), ["a bridge", "ab"], 5)
    assert [tiny.tokenizer().decode(row.input_ids) for row in found] == ["<s>a br", "<s>ab"]
    assert found[0:1] == [found[0]]
    with pytest.raises(InputError, match="text 1 has a single token: ''"):
        text_blocks.Texts(tiny.tokenizer(), [""], 5)[0]


def test_training_rows_of_both_dialects(data: Path) -> None:
    tokenizer = tiny.tokenizer()
    for dialect, cut in zip(DIALECTS, (text_blocks.wrap_texts, text_blocks.retokenize_blocks), strict=True):
        sides = MUSE.training_examples(on(data, dialect), tokenizer, 50)
        for side, config in zip(sides, ("raw/forget", "raw/retain1"), strict=True):
            assert side == cut(tokenizer, [row["text"] for row in row_loader.load_rows(str(data), config, ())], 50)


def greedy(network: Any, tokenizer: Any, prompt: str, count: int) -> str:
    ids = families.generate_alone(network, tokenizer(prompt)["input_ids"], count)
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_record_equals_a_naive_one(data: Path, dialect: Any) -> None:
    """One prompt and one text at a time, with what METHODS says of the two implementations written out."""
    network, tokenizer, ours = tiny.network(), tiny.tokenizer(), dialect == "paper"
    _, records = MUSE.measure(network, tokenizer, on(data, dialect, limit=2), None, token_budget=700)
    assert [row["task"] for row in records] == [
        task for task in ("verbmem_f", *muse.KNOWMEM, *muse.PRIVLEAK) for _ in range(2)
    ]
    scorer = RougeScorer(["rougeL"], use_stemmer=not ours)
    pairs = row_loader.load_rows(str(data), "verbmem/forget", ())[:2]
    for row, pair in zip(records[:2], pairs, strict=True):
        truth = pair["gt"][:127] if ours else pair["gt"]  # a token is a byte; BOS is the first of 128
        text = greedy(network, tokenizer, pair["prompt"], 128)
        assert row["answer"] == truth
        assert row["generation"] == (text if ours else text.strip())
        assert row["rougeL_f1"] == scorer.score(truth, text)["rougeL"].fmeasure
    for row, text in zip(records[-2:], row_loader.load_rows(str(data), "privleak/holdout", ())[:2], strict=True):
        losses, _ = families.losses_and_hits(network, Example(tokenizer(text["text"])["input_ids"], 1))
        losses = losses if ours else losses[:-1]
        assert row["tokens"] == len(losses)
        assert row["min_k"] == pytest.approx(-np.sort(losses)[-int(0.4 * len(losses)) :].mean(), rel=1e-5)


def test_questions_come_after_worked_examples(data: Path) -> None:
    network, tokenizer = tiny.network(), tiny.tokenizer()
    _, records = MUSE.measure(network, tokenizer, on(data, limit=2), None, token_budget=4096)
    chosen = [row for row in records if row["task"] == "knowmem_r"]
    asked = row_loader.load_rows(str(data), "knowmem/retain_qa", ())[:2]
    shown = row_loader.load_rows(str(data), "knowmem/retain_qa_icl", ())
    for row, question in zip(chosen, asked, strict=True):
        prompt = "".join(f"Question: {one['question']}\nAnswer: {one['answer']}\n\n" for one in shown)
        prompt += f"Question: {question['question']}\nAnswer: "
        assert row["question"] == prompt
        assert row["generation"] == muse.until_stop(greedy(network, tokenizer, prompt, 32))


def test_a_folder_that_is_not_muses_is_refused(data: Path, tmp_path: Path) -> None:
    MUSE.check_rows(on(data))
    tiny.write_rows(tmp_path / "raw/forget.json", [{"text": "a"}])
    with pytest.raises(InputError, match=r"has no raw/retain1\.json, \.jsonl or \.parquet; it has raw/forget$"):
        MUSE.check_rows(on(tmp_path))


def test_a_trial_from_rows_to_result(data: Path, tmp_path: Path) -> None:
    """Gradient ascent on blocks; PrivLeak against the AUC of a retain model's evaluation."""
    store = open_storage(str(tmp_path / "runs"))
    benchmark = on(data, limit=3)
    benchmark = benchmark.model_copy(update={"fingerprint": MUSE.fingerprint(benchmark)})
    retain = Model(path=str(tiny.write_model(tmp_path / "retain", seed=1)))
    key = evaluation_id(retain, benchmark)
    kept = shared_artifacts.make_evaluation(
        retain.model_dump(), benchmark.model_dump(), None, str(store.root), Resources()
    )
    assert kept["privleak"] == pytest.approx((kept["privleak_auc"] / 0.4772 - 1) * 100)
    chosen = Trial(
        method="ga",
        benchmark=benchmark,
        target=Model(path=str(tiny.write_model(tmp_path / "target"))),
        retain_evaluation=RetainEvaluation(path=str(store.evaluation(key) / RESULT), fingerprint=key),
        training=Training(lr=1e-3, batch_size=2, max_steps=2, max_length=64),
    )
    *_, told = TrialRun(chosen, store).events()
    result = told["result"]
    assert result["status"] == "finished", result["error"]
    found = result["metrics"]
    assert found["privleak_reference"] == kept["privleak_auc"]
    assert found["privleak"] == pytest.approx((found["privleak_auc"] / kept["privleak_auc"] - 1) * 100)
    assert benchmarks.goal_gains("muse", found) == (-found["verbmem_f"], -found["knowmem_f"], found["knowmem_r"])
    records = read_rows(store.trial(chosen.id()) / ROWS)
    assert {**muse.aggregate(records, benchmark, kept["privleak_auc"]), "relative_change": ANY} == found
    with pytest.raises(InputError, match="was made with dialect 'paper', this evaluation has 'open-unlearning'"):
        MUSE.read_reference(kept, on(data, "open-unlearning", limit=3), "here")
    with pytest.raises(InputError, match="was made on other texts"):
        MUSE.read_reference(kept, on(data), "here")


@pytest.mark.data
@pytest.mark.slow
def test_the_real_rows_in_the_hubs_layout(shared: Path) -> None:
    """All of them: each measure has the rows of its file, and its mean is over them all."""
    folder = shared / "data" / "muse_news"
    benchmark = on(folder)
    MUSE.check_rows(benchmark)
    found, records = MUSE.measure(tiny.network(layers=1), tiny.tokenizer(), benchmark, None, token_budget=16384)
    files = {"verbmem_f": muse.VERBMEM, **muse.KNOWMEM, **muse.PRIVLEAK}
    for task, file in files.items():
        lines = (folder / f"{file}.json").read_text(encoding="utf-8").split("\n")
        assert [row["index"] for row in records if row["task"] == task] == list(range(sum(map(bool, lines))))
    for task in ("verbmem_f", *muse.KNOWMEM):
        each = [row["rougeL_f1"] for row in records if row["task"] == task]
        assert found[task] == pytest.approx(100 * np.mean(each))
