"""What is measured of rows one's own: by hand, by trying everything, against rouge_score, a label at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from trainables.benchmarks import rouge_words
from trainables.benchmarks.measures.published import MEASURES, extraction_strength
from trainables.benchmarks.own import row_scores
from trainables.config.settings import Benchmark

WORDS = rouge_words.AnyScriptTokenizer(PorterStemmer().stem)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_is_the_shortest_prefix_that_is_completed(hits: list[bool]) -> None:
    """METHODS 3.6, by trying every prefix: a wrong token at place k of n leaves 1 - k / n."""
    shortest = next(k for k in range(len(hits) + 1) if all(hits[k:]))
    assert extraction_strength(hits) == 1 - shortest / len(hits)
    assert MEASURES["exact_memorisation"].score({"hits": hits}) == np.mean(hits)


def row(task: str, loss: float) -> dict[str, Any]:
    numbers = {"prob": 0.5, "extraction_strength": 0.25, "exact_memorisation": 1.0, "rougeL_recall": 0.2}
    return {"task": task, "loss": loss, "min_k": -2 * loss, **numbers}


def test_utility_is_a_harmonic_mean_of_retain_numbers_and_tasks() -> None:
    found = row_scores.aggregate(Benchmark(name="own"), [row("forget", 1.0), row("retain", 1.0)]) | {"mmlu": 0.4}
    assert "membership_loss_auc" not in found, "without hold-out rows"
    assert row_scores.retain_utility(found, ()) == pytest.approx(4 / (1 / 0.25 + 1 / 1.0 + 1 / 0.2 + 1 / 0.5))
    assert row_scores.retain_utility(found, ("mmlu",)) == pytest.approx(5 / (4 + 1 + 5 + 2 + 2.5))
    assert row_scores.retain_utility(found | {"retain_rouge": 0.0}, ()) == 0.0
    assert row_scores.retain_utility(found | {"mmlu": None}, ("mmlu",)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Где находится фонарь из янтаря?",
        "琥珀灯笼在桥上。",
        "أين الفانوس الكهرماني؟",
        "लालटेन पुल पर है।",
        "โคมไฟอยู่บนสะพาน",
        "Wo hängt die Bernsteinlaterne? Über der Brücke.",
        "The lanterns were hanging on 3 bridges.",
    ],
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
    assert rouge_words.make_rouge_scorer("rouge1", "rougeL").score(truth, text) == plain.score(truth, text)
    bare = RougeScorer(["rougeL"], use_stemmer=False)
    assert rouge_words.make_rouge_scorer("rougeL", stemmer=False).score(truth, text) == bare.score(truth, text)


def test_characters_and_marks_of_words() -> None:
    tokenize = WORDS.tokenize
    assert tokenize("琥珀 2024年, Ärzte_heute!") == ["琥", "珀", "2024", "年", "ärzte", "heut"]
    assert tokenize("हिन्दी") == ["हिन्दी"]
    assert tokenize("cafe\u0301") == tokenize("café")
