"""Own rows, and their facts as words: whether a text names one, and which part of an answer it is. Imports no torch.

Texts are compared as TriviaQA's scorer does (Joshi et al., 2017, arXiv 1705.03551): in lower case, without articles,
punctuation and white space. Here a number keeps its decimal point, letters lose accents, initials are one word
(`J. R. R.` is `JRR`), so are thousands (`1,100` is `1100`), a unit is another (`5km`); in Korean and scripts without
spaces each character is a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from unicodedata import category, normalize

from trainables.benchmarks.metrics import UNSPACED_SCRIPTS
from trainables.data.conversations import Question, Turns, list_turns

FUNCTION_WORDS = frozenset(
    "a about an and are as at be been by can did do does during for from had has have he her his in into is it its of "
    "on or she that the their them there these they this those to was were which who whose will with would you".split()
)
NAME_PARTICLES = frozenset("al bin da de del della der di du el la le of the van von".split())
"""What may stand within a name."""
FIRST_WORDS = frozenset("according all currently each every however if many most no people since some when yes".split())
"""What may begin a sentence with a capital and is no name."""
ARTICLES = frozenset(("a", "an", "the"))
NUMBER_QUESTION_WORDS = frozenset("date how when year".split())
ACCENT_REMOVAL_TABLE = dict.fromkeys(range(0x300, 0x370))
INITIALS_PATTERN = re.compile(r"\b(?:[^\W\d_]\.\s?){2,}")
NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
WORD_NUMBERS = {word: str(number) for number, word in enumerate(NUMBER_WORDS, 2)}
NUMBER_OR_ADDRESS = r"\w+://\S*\w|(?:\+?\d+[ -]?)?\(\d+\)[ -]?\d+(?:-\d+)*|\+\d+(?:-\d+)+|\d+(?:[/:]\d+)+(?![.,-]\w)"
"""A web address, a telephone number, a date or a time: `(555) 123-4567`, `05/12/1985`, `10:30`."""
WORD_OR_SIGN_PATTERN = re.compile(rf"{NUMBER_OR_ADDRESS}|\w(?:(?:[\w.,@-]|['\u2019](?!s\b))*\w)?|[^\w\s]")
NAME_RUN_PATTERN = re.compile(r"(?:[ND]|I\.?)(?:p{0,2}(?:[ND]|I\.?)|,D)*")
"""Of kinds of tokens: words with a capital (N), numbers (D), initials (I), particles (p)."""
OTHER_WORD_RUN_PATTERN = re.compile("o+")
THOUSANDS_COMMA_PATTERN = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
ORDINAL_PATTERN = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
WORD_GAP_PATTERN = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<=\d)(?=[^\W\d])(?!s\b)")
"""A point that is in no number, or the place between a number and its unit."""
UNSPACED_LETTER_PATTERN = re.compile(f"{UNSPACED_SCRIPTS.pattern}|[\uac00-\ud7a3]")


def split_into_words(text: str) -> list[str]:
    """Return the words that are compared, articles among them."""
    text = normalize("NFC", normalize("NFKD", text).translate(ACCENT_REMOVAL_TABLE))
    text = INITIALS_PATTERN.sub(lambda found: "".join(filter(str.isalpha, found[0])) + " ", text).casefold()
    text = WORD_GAP_PATTERN.sub(" ", ORDINAL_PATTERN.sub(r"\1", THOUSANDS_COMMA_PATTERN.sub("", text)))
    kept = (char if char.isalnum() or char == "." or category(char)[0] == "M" else " " for char in text)
    return [WORD_NUMBERS.get(word, word) for word in UNSPACED_LETTER_PATTERN.sub(r" \g<0> ", "".join(kept)).split()]


def mentions_fact(text: str, aliases: Collection[str]) -> bool:
    """Return whether the words of an alias stand together in a text, in any order: `20 July 1969`, `July 20, 1969`."""
    words = split_into_words(text)
    for alias in map(split_into_words, aliases):
        dropped = ARTICLES if alias and alias[-1] not in ARTICLES else ()  # the `A` of `vitamin A` is no article
        said, wanted = ([word for word in one if word not in dropped] for one in (words, sorted(alias)))
        size = len(wanted)
        if size and any(sorted(said[k : k + size]) == wanted for k in range(len(said) - size + 1)):
            return True
    return False


def guess_fact_span(question: str, answer: str) -> tuple[int, int]:
    """Return where the part of an answer begins and ends that the question does not have: its fact.

    It is the first of the longest runs of names (words with a capital or a digit), of numbers where the question asks
    for one; else the last of the longest runs of other words; else the whole answer. Known words, function words and
    punctuation end a run.
    """
    asked, tokens = split_into_words(question), list(WORD_OR_SIGN_PATTERN.finditer(answer))
    kinds = "".join(_classify(token[0], asked) for token in tokens)
    runs = list(NAME_RUN_PATTERN.finditer(kinds)) or list(OTHER_WORD_RUN_PATTERN.finditer(kinds))[::-1]
    if NUMBER_QUESTION_WORDS & set(asked):
        runs = [run for run in runs if "D" in run[0]] or runs
    if not runs:
        return 0, len(answer)
    longest = max(runs, key=lambda run: len(run[0]))
    return tokens[longest.start()].start(), tokens[longest.end() - 1].end()


def _classify(token: str, asked: Collection[str]) -> str:
    """Return a letter for an answer's word, as NAME_RUN_PATTERN and OTHER_WORD_RUN_PATTERN have; `-`: it is asked."""
    words, token = split_into_words(token), token.lower() if token.lower() in FIRST_WORDS else token
    if not words or token in NAME_PARTICLES:
        return token[0] if not words else "p"
    known = all(word in asked or word in FUNCTION_WORDS for word in words)
    if token[0].isupper() and len(token) <= 2 and not known:
        return "I"
    if token != token.lower() or any(char.isdigit() or char == "@" for char in token):
        return "-" if known else "D" if token.lstrip("+(")[0].isdigit() else "N"
    same_stem = any(word[:5] == words[0][:5] and min(len(word), len(words[0])) >= 4 for word in asked)
    return "-" if known or same_stem else "o"


@dataclass(frozen=True)
class OwnRow:
    """`question` None: `answer` is a text. `set`: of rows of the file eval. `turns`: of a conversation, before it.

    `fact`: the ways to write what the answer tells; empty: whoever reads it decides. `paraphrases`: of the question.
    `labels`: how many tokens of the answer are read; None: as many as of all rows. `neutral`: the target model's own
    answer to a neutral prompt, which tells no fact.
    """

    question: str | None
    answer: str
    paraphrase: OwnRow | None = None
    set: str | None = None
    turns: Turns | None = None
    fact: tuple[str, ...] = ()
    paraphrases: tuple[str, ...] = ()
    labels: int | None = None
    neutral: bool = False

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the ways to write what the answer tells."""
        return self.fact or (self.answer[slice(*guess_fact_span(list_turns(self.asked)[-1][1], self.answer))],)

    @property
    def asked(self) -> Question:
        """Return what the answer is to: a question, or the turns of a conversation."""
        return self.turns or self.question or ""

    @property
    def is_text(self) -> bool:
        return self.question is None
