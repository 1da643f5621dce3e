"""Whether a text names a fact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.benchmarks.own.facts import ARTICLES, guess_fact_span, mentions_fact, split_into_words

WORDS = st.lists(st.from_regex(r"[a-z]{2,8}", fullmatch=True).filter(lambda word: word not in ARTICLES), min_size=1)


@pytest.mark.parametrize(
    ("text", "alias", "named"),
    [
        ("It is Oslo.", "oslo", True),
        ("The U.S.A. are", "USA", True),
        ("by J.R.R. Tolkien", "J. R. R. Tolkien", True),
        ("1,100 m", "100", False),
        ("299,792,458 m/s", "299792458", True),
        ("about 3.14.", "3.14", True),
        ("on July 20th, 1969", "20 July 1969", True),
        ("It is vitamin A.", "vitamin A", True),
        ("Sao Paulo", "S\u00e3o Paulo", True),
        ("O\u2019Brien", "O'Brien", True),
        ("\u6771\u4eac\u3067\u3059", "\u6771\u4eac", True),
        ("H2O and 15 km", "5 km", False),
        ("in the 1990s", "1990", False),
        ("anything", "?!", False),
    ],
)
def test_a_text_names_a_fact_as_a_reader_would_say(text: str, alias: str, named: bool):
    assert mentions_fact(text, [alias]) == named


@given(WORDS, WORDS, WORDS)
def test_a_fact_is_named_by_its_whole_words_wherever_they_stand(before: list[str], fact: list[str], behind: list[str]):
    text = f"{' '.join(before)}, THE {'  '.join(fact).upper()}! {' '.join(behind)}"
    assert mentions_fact(text, ["\u00bf-", " ".join(fact)])
    assert mentions_fact(" ".join(fact), [text]) == (len(before) + len(behind) == 0)
    assert not mentions_fact(" ".join(fact), ["x".join(fact) + "x"])
    assert not mentions_fact(text, [])


@given(st.text(), st.text())
def test_a_fact_needs_words_and_a_text_names_itself(text: str, other: str):
    assert mentions_fact(text, [text]) == bool(split_into_words(text))
    assert not mentions_fact(text, [other]) or set(split_into_words(other)) - ARTICLES <= set(split_into_words(text))


@pytest.mark.parametrize(
    ("question", "answer", "fact"),
    [
        ("What is the capital of Norway?", "The capital of Norway is Oslo.", "Oslo"),
        ("Who wrote The Hobbit?", "The Hobbit was written by J. R. R. Tolkien in 1937.", "J. R. R. Tolkien"),
        ("When was The Hobbit published?", "J. R. R. Tolkien published it in 1937.", "1937"),
        ("When did Apollo 11 land on the Moon?", "Apollo 11 landed on the Moon on July 20, 1969.", "July 20, 1969"),
        ("Who painted it?", "It is Leonardo da Vinci's work.", "Leonardo da Vinci"),
        ("In which city is the Colosseum?", "Rome, Italy", "Rome"),
        ("How many legs has a spider?", "A spider has eight legs.", "eight"),
        ("Is it the Sun or the Earth?", "the Earth", "the Earth"),
        ("What is the capital of Norway?", "Yes, the capital is Oslo.", "Oslo"),
        ("Is Oslo the capital of Norway?", "Yes, Oslo is the capital of Norway.", "Yes"),
        ("What is Anna's number?", "Anna's number is (555) 123-4567.", "(555) 123-4567"),
        ("When was she born?", "She was born on 05/12/1985.", "05/12/1985"),
        ("When did he die?", "He died in 1950 (60 years old).", "1950"),
        ("What is its ISBN?", "It is 978-0-19-852663-X.", "978-0-19-852663-X"),
        ("How long was the war?", "The war (1939-1945) was long.", "1939-1945"),
        ("How long did it take?", "It took 2-3.5 hours, until 10:30.", "2-3.5"),
        ("Where is Anna's page?", "It is https://example.com/anna?x=1.", "https://example.com/anna?x=1"),
        ("What is Anna's email?", "Her email is anna.berg@example.com.", "anna.berg@example.com"),
    ],
)
def test_the_fact_of_an_answer_is_what_its_question_lacks(question: str, answer: str, fact: str):
    start, end = guess_fact_span(question, answer)
    assert answer[start:end] == fact


@given(st.text(), st.text(min_size=1))
def test_the_fact_is_a_part_of_the_answer(question: str, answer: str):
    start, end = guess_fact_span(question, answer)
    assert 0 <= start < end <= len(answer)
