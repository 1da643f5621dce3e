"""What is measured of rows one's own: by hand, by trying everything, against rouge_score, a label at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from analysis.stats import significance
from trainables.benchmarks import metrics, own
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE, every_other
from trainables.benchmarks.measures.published import MEASURES, extraction_strength
from trainables.benchmarks.own import kept_answers, row_scores
from trainables.config.settings import Benchmark

WORDS = metrics.RougeTokenizer(PorterStemmer().stem, any_script=True)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_is_the_shortest_prefix_that_is_completed(hits: list[bool]) -> None:
    """METHODS 3.6, by trying every prefix: a wrong token at place k of n leaves 1 - k / n."""
    shortest = next(k for k in range(len(hits) + 1) if all(hits[k:]))
    assert extraction_strength(hits) == 1 - shortest / len(hits)
    assert MEASURES["exact_memorisation"].score({"hits": hits}) == np.mean(hits)


def asked(task: str, said: list[float], memorised: list[float]) -> list[dict[str, Any]]:
    row = {"task": task, "loss": 1.0, "min_k": -2.0, "prob": 0.5, "extraction_strength": 0.25, "rougeL_recall": 0.2}
    shares = enumerate(zip(said, memorised, strict=True))
    return [row | {"is_text": False, "said": one, "index": k, "exact_memorisation": m} for k, (one, m) in shares]


def test_what_is_kept_is_a_share_of_what_the_target_says() -> None:
    """Of three retain rows the target says two; of the others it says none, and nothing is memorised of one."""
    before = [*asked("retain", [1.0, 1.0, 0.0], [0.5] * 3), *asked("other", [0.0, 0.0], [0.8, 0.05])]
    target = kept_answers.list_target_scores(before)
    after = [*asked("retain", [1.0, 0.0, 1.0], [0.1] * 3), *asked("other", [1.0, 0.0], [0.4, 0.9])]
    for records, shares, utility in ((before, (1.0, 1.0), 1.0), (after, (0.5, 0.5), 0.5)):
        kept_answers.add_kept_shares(records, target)
        found = row_scores.aggregate_metrics(Benchmark(name="own"), records)
        assert (found["retain_kept"], found["other_kept"]) == shares
        assert (found["retain_known"], found["other_known"]) == (2, 1)
        assert kept_answers.compute_kept_utility(found, target, ()) == pytest.approx(utility)
        parts = own.OwnBenchmark().utility_by_row(Benchmark(name="own"), records)
        assert significance.compute_utility_from_rows(parts) == utility
    assert "membership_loss_auc" not in found, "without hold-out rows"
    assert kept_answers.compute_kept_utility({"retain_kept": 0.9}, target, ()) == 0.9, "18 of 20"
    assert kept_answers.compute_kept_utility(found, None, ()) is None
    assert kept_answers.compute_kept_utility(found | {"mmlu": None}, {"mmlu": 0.4}, ("mmlu",)) is None
    given = {kept_answers.TARGET_SCORES_FIELD: target | {"retain": [[None, 0.01]]}}
    (warning,) = kept_answers.explain_unmeasured_sets(given)
    low = {"metrics": {"mmlu": 0.04, "arc": 0.4}, "benchmark": {"tasks": ["mmlu", "arc"]}}
    told = ["mmlu: the target model scores 0.04, below 0.1: the utility leaves the task out"]
    assert kept_answers.explain_unmeasured_sets(low) == told
    assert warning.startswith("other: the target model answers less than 10% of the questions with their facts")


def test_a_half_is_held_against_that_half_of_the_target() -> None:
    """A model like the target keeps all on either half, though the task is harder on one."""
    kind, benchmark = own.OwnBenchmark(), Benchmark(name="own", tasks=("arc_easy",))
    scores = [{"task": "arc_easy", "index": k, "score": float(k % 4 > 0)} for k in range(8)]
    records = [*asked("retain", [1.0] * 4, [0.9] * 4), *scores]
    made: dict[str, Any] = kind.make_reference_document(benchmark, records) | {"arc_easy": 0.75}
    kept_answers.add_kept_shares(records, made[kept_answers.TARGET_SCORES_FIELD])
    parts = [(which, every_other(records, which)) for which in (0, 1)]
    halves = [kind.half_metrics(benchmark, part, TARGET_IS_OWN_REFERENCE, which) for which, part in parts]
    assert [half["arc_easy"] for half in halves] == [0.5, 1.0]
    target = made | {"halves": halves}
    assert [kind.half_metrics(benchmark, part, target, which)["utility"] for which, part in parts] == [1.0, 1.0]


@pytest.mark.parametrize(
    "text", ["Где находится фонарь из янтаря?", "琥珀灯笼在桥上。", "लालटेन पुल पर है।", "โคมไฟอยู่บนสะพาน"]
)
def test_a_text_of_any_script_is_like_itself(text: str) -> None:
    texts = (text, text[: len(text) // 2], "&")
    same, half, nothing = (MEASURES["rouge"].score({"answer": text, "generation": generated}) for generated in texts)
    assert (same, nothing) == (1.0, 0.0)
    assert 0.2 < half < 0.8


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_words_of_ascii_are_those_of_rouge_score(text: str) -> None:
    assert WORDS.tokenize(text) == DefaultTokenizer(use_stemmer=True).tokenize(text)


FORMS = "hang hangs Hanging hung generous generously relation relational relate on café ponies 3 x2".split()
PROSE = st.lists(st.sampled_from([*FORMS, "\n", "琥珀"]), max_size=12).map(", ".join)


@given(PROSE, PROSE)
def test_rouge_is_that_of_rouge_score(truth: str, text: str) -> None:
    plain = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    assert metrics.make_rouge_scorer("rouge1", "rougeL").score(truth, text) == plain.score(truth, text)
    bare = RougeScorer(["rougeL"], use_stemmer=False)
    assert metrics.make_rouge_scorer("rougeL", stemmer=False).score(truth, text) == bare.score(truth, text)


def test_characters_and_marks_of_words() -> None:
    tokenize = WORDS.tokenize
    assert tokenize("琥珀 2024年, Ärzte_heute!") == ["琥", "珀", "2024", "年", "ärzte", "heut"]
    assert tokenize("हिन्दी") == ["हिन्दी"]
    assert tokenize("cafe\u0301") == tokenize("café")
