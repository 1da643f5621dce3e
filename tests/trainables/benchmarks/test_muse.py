"""MUSE: its training rows, its records against a re-statement, its files, and its numbers from scores."""

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from tokenizers.processors import TemplateProcessing

from tests.support import families, tiny
from trainables import benchmarks
from trainables.benchmarks import evaluation, muse
from trainables.common.errors import InputError, TrialDiverged
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark, Dialect
from trainables.data import raw_rows, text_blocks

MUSE = muse.MuseBenchmark()

DIALECTS = get_args(Dialect)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.muse(tmp_path_factory.mktemp("muse"))


def on(data: Path, dialect: Any = "paper", **settings: Any) -> Benchmark:
    return Benchmark(name="muse", data=str(data), split="news", dialect=dialect, **settings)


def test_wrapped_rows_are_the_stream_and_its_beginning_again() -> None:
    tokenizer, texts = tiny.tokenizer(), [tiny.text(seed, 9) for seed in range(3)]
    found = text_blocks.pack_texts_into_blocks(tokenizer, texts, 40)
    assert {len(row.input_ids) for row in found} == {40}
    assert {row.input_ids[0] for row in found} == {tokenizer.bos_token_id}
    assert {row.answer_start for row in found} == {1}
    stream = tokenizer("\n\n".join(texts), add_special_tokens=False)["input_ids"]
    laid = [token for row in found for token in row.input_ids[1:]]
    assert laid[: len(stream)] == stream
    assert laid[len(stream) :] == stream[: len(laid) - len(stream)]
    assert 0 < len(laid) - len(stream) < 39
    (row,) = text_blocks.pack_texts_into_blocks(tokenizer, ["ab"], 8)
    assert tokenizer.decode(row.input_ids[1:]) == "abababa"


def test_decoded_rows_are_the_stream_with_a_shorter_last_one() -> None:
    tokenizer, texts = tiny.tokenizer(), [tiny.text(seed, 9) for seed in range(3)]
    found = text_blocks.make_retokenized_blocks(tokenizer, texts, 40)
    assert [len(row.input_ids) for row in found[:-1]] == [41] * (len(found) - 1)
    assert "".join(tokenizer.decode(row.input_ids[1:]) for row in found) == "\n\n".join(texts)


def test_one_row_a_text_is_cut_at_the_length() -> None:
    found = text_blocks.LazyTextRows(tiny.tokenizer(), ["a bridge", "ab"], 5)
    assert [tiny.tokenizer().decode(row.input_ids) for row in found] == ["<s>a br", "<s>ab"]
    with pytest.raises(InputError, match="text 1 has a single token: nothing"):
        text_blocks.LazyTextRows(tiny.tokenizer(), [""], 5)[0]


def test_an_end_token_that_the_tokenizer_adds_is_no_part_of_a_text(data: Path) -> None:
    tokenizer, network, benchmark = tiny.tokenizer(), tiny.network(layers=1), on(data, limit=2, measures=("all",))
    expected = MUSE.measure(network, tokenizer, benchmark, None, token_budget=700)
    added = [("<s>", tokenizer.bos_token_id), ("</s>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=added)
    assert tokenizer("a")["input_ids"][-1] == tokenizer.eos_token_id
    assert MUSE.measure(network, tokenizer, benchmark, None, token_budget=700) == expected


def greedy(network: Any, tokenizer: Any, prompt: str, count: int) -> str:
    ids = families.generate_alone(network, tokenizer(prompt)["input_ids"], count)
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_record_equals_a_naive_one(data: Path, dialect: Any) -> None:
    """One prompt and one text at a time, with what METHODS says of the two implementations written out."""
    network, tokenizer, ours = tiny.network(layers=1), tiny.tokenizer(), dialect == "paper"
    benchmark = on(data, dialect, limit=2)
    found, records = MUSE.measure(network, tokenizer, benchmark, None, token_budget=700)
    assert [row["task"] for row in records] == [
        task for task in ("verbmem_f", *muse.KNOWMEM_CONFIGS, *muse.PRIVLEAK_SETS) for _ in range(2)
    ]
    scorer = RougeScorer(["rougeL"], use_stemmer=not ours)

    def rows(name: str, count: int | None = 2) -> list[dict[str, Any]]:
        return raw_rows.load_rows(str(data), name, ())[:count]

    for row, pair in zip(records[:2], rows("verbmem/forget"), strict=True):
        truth = pair["gt"][:127] if ours else pair["gt"]  # a token is a byte; BOS is the first of 128
        text = greedy(network, tokenizer, pair["prompt"], 128)
        assert row["answer"] == truth
        assert row["generation"] == (text if ours else text.strip())
        assert row["rougeL_f1"] == scorer.score(truth, text)["rougeL"].fmeasure
    shown = "".join(
        f"Question: {r['question']}\nAnswer: {r['answer']}\n\n" for r in rows("knowmem/retain_qa_icl", None)
    )
    for row, asked in zip(records[4:6], rows("knowmem/retain_qa"), strict=True):
        assert row["question"] == f"{shown}Question: {asked['question']}\nAnswer: "
        text = muse.cut_at_stop_word(greedy(network, tokenizer, row["question"], 32))
        assert row["generation"] == (text if ours else text.strip())
    for row, held in zip(records[-2:], rows("privleak/holdout"), strict=True):
        losses, _ = families.losses_and_hits(network, Example(tokenizer(held["text"])["input_ids"], 1))
        losses = losses if ours else losses[:-1]
        assert row["tokens"] == len(losses)
        assert row["min_k"] == pytest.approx(-np.sort(losses)[-int(0.4 * len(losses)) :].mean(), rel=1e-5)
    removed = -found["verbmem_f"], -found["knowmem_f"]  # type: ignore[operator]
    assert benchmarks.orient_goal_values("muse", found) == (*removed, found["knowmem_r"])
    kept = evaluation.make_evaluation_document(benchmark, found, records)
    assert MUSE.parse_reference(kept, benchmark, "here") == found["privleak_auc"]
    (other,) = {*DIALECTS} - {dialect}
    with pytest.raises(InputError, match=f"was made with dialect '{dialect}', this evaluation has '{other}'"):
        MUSE.parse_reference(kept, on(data, other, limit=2), "here")
    with pytest.raises(InputError, match="was made on other texts"):
        MUSE.parse_reference(kept, on(data, dialect), "here")


# Numbers from scores; no model and no rows


def test_an_answer_ends_at_the_first_stop_word() -> None:
    for left, rest in (
        ("in May", "\n\nQuestion: who"),
        ("in May", "\nQuestion: who\n\n"),
        ("May ", "Question:"),
        ("\n", ""),
    ):
        assert muse.cut_at_stop_word(left + rest) == left


def scored(member: list[float], stranger: list[float]) -> list[dict[str, Any]]:
    f1 = {"verbmem_f": [0.2, 0.4], "knowmem_f": [0.5, 1.0], "knowmem_r": [0.25, 0.25]}
    found = [{"task": task, "rougeL_f1": value} for task, values in f1.items() for value in values]
    found += [{"task": "privleak_forget", "min_k": value} for value in member]
    return found + [{"task": "privleak_holdout", "min_k": value} for value in stranger]


def test_numbers_of_both_dialects() -> None:
    """A model that remembers every forget text: AUC 0. MUSE's percent, open-unlearning's fractions."""
    records = scored([-0.1, -0.2], [-3.0, -4.0])
    paper, other = (muse.aggregate_metrics(records, on(Path("nowhere"), dialect)) for dialect in DIALECTS)
    alike = {"privleak": -100.0, "privleak_auc": 0.0}
    percents = {"verbmem_f": 30.0, "knowmem_f": 75.0, "knowmem_r": 25.0}
    assert paper == pytest.approx(percents | alike | {"privleak_reference": 0.4772})
    fractions = {"verbmem_f": 0.3, "knowmem_f": 0.75, "knowmem_r": 0.25}
    assert other == pytest.approx(fractions | alike | {"privleak_reference": 0.5})


@pytest.mark.parametrize(
    ("dialect", "split", "reference", "privleak"),
    [
        ("paper", "news", None, (0.75 / 0.4772 - 1) * 100),
        ("paper", "books", None, (0.75 / 0.5393 - 1) * 100),
        ("open-unlearning", "news", None, 50.0),
        ("open-unlearning", "books", None, 50.0),
        ("paper", "news", 0.75, 0.0),
        ("open-unlearning", "news", 0.6, 25.0),
        ("paper", "news", 0.0, None),
    ],
)
def test_privleak_is_the_area_against_the_retain_models(
    dialect: Any, split: str, reference: float | None, privleak: float | None
) -> None:
    """Three of four pairs have the hold-out text above the forget text. There is no ratio to an area of 0."""
    benchmark = Benchmark(name="muse", data="nowhere/here", split=split, dialect=dialect)
    found = muse.aggregate_metrics(scored([-1.0, -3.0], [-2.0, -0.5]), benchmark, reference)
    assert found["privleak_auc"] == 0.75
    assert found["privleak"] == pytest.approx(privleak, abs=1e-6)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_log_likelihood_that_is_not_finite_stops_the_trial(value: float) -> None:
    with pytest.raises(TrialDiverged, match="not finite"):
        muse.aggregate_metrics(scored([value, -3.0], [-2.0, -0.5]), on(Path("nowhere"), "paper"))
