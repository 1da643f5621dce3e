"""Whether a text names a fact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.benchmarks.own.facts import ARTICLES, list_words, names_fact

WORDS = st.lists(st.from_regex(r"[a-z]{2,8}", fullmatch=True).filter(lambda word: word not in ARTICLES), min_size=1)


@pytest.mark.parametrize(
    ("text", "alias", "named"),
    [
        ("It is Oslo.", "oslo", True),
        ("Osloer", "Oslo", False),
        ("The U.S.A. are", "USA", True),
        ("by J.R.R. Tolkien", "J. R. R. Tolkien", True),
        ("1,100 m", "100", False),
        ("299,792,458 m/s", "299792458", True),
        ("3.14", "3", False),
        ("about 3.14.", "3.14", True),
        ("on July 20th, 1969", "20 July 1969", True),
        ("vitamin C", "vitamin A", False),
        ("It is vitamin A.", "vitamin A", True),
        ("Beatles", "The Beatles", True),
        ("Sao Paulo", "S\u00e3o Paulo", True),
        ("O\u2019Brien", "O'Brien", True),
        ("\u6771\u4eac\u3067\u3059", "\u6771\u4eac", True),
        ("anything", "?!", False),
    ],
)
def test_a_text_names_a_fact_as_a_reader_would_say(text: str, alias: str, named: bool):
    assert names_fact(text, [alias]) == named


@given(WORDS, WORDS, WORDS)
def test_a_fact_is_named_by_its_whole_words_wherever_they_stand(before: list[str], fact: list[str], behind: list[str]):
    text = f"{' '.join(before)}, THE {'  '.join(fact).upper()}! {' '.join(behind)}"
    assert names_fact(text, ["\u00bf-", " ".join(fact)])
    assert names_fact(" ".join(fact), [text]) == (len(before) + len(behind) == 0)
    assert not names_fact(" ".join(fact), ["x".join(fact) + "x"])
    assert not names_fact(text, [])


@given(st.text(), st.text())
def test_a_fact_needs_words_and_a_text_names_itself(text: str, other: str):
    assert names_fact(text, [text]) == bool(list_words(text))
    assert not names_fact(text, [other]) or set(list_words(other)) - ARTICLES <= set(list_words(text))
