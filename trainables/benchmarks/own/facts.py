"""Facts as words: whether a text names one, which part of an answer it is, and the ways to ask for it. No torch.

Texts are compared as TriviaQA's scorer does (Joshi et al., 2017, arXiv 1705.03551): in lower case, without articles,
punctuation and white space. Here a number keeps its decimal point, letters lose accents, initials are one word
(`J. R. R.` is `JRR`) and so are thousands (`1,100` is `1100`); of scripts without spaces each character is a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from unicodedata import category, normalize

from trainables.benchmarks.rouge_words import UNSPACED

ARTICLES = frozenset(("a", "an", "the"))
ACCENTS = dict.fromkeys(range(0x300, 0x370))
INITIALS = re.compile(r"\b(?:[^\W\d_]\.\s?){2,}")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
BETWEEN_WORDS = re.compile(r"(?<!\d)\.|\.(?!\d)")
"""A point that is in no number."""


def list_words(text: str) -> list[str]:
    """Return the words that are compared, articles among them."""
    text = normalize("NFKD", text).translate(ACCENTS)
    text = INITIALS.sub(lambda found: "".join(filter(str.isalpha, found[0])) + " ", text).casefold()
    text = BETWEEN_WORDS.sub(" ", ORDINAL.sub(r"\1", THOUSANDS.sub("", text)))
    kept = (char if char.isalnum() or char == "." or category(char)[0] == "M" else " " for char in text)
    return UNSPACED.sub(r" \g<0> ", "".join(kept)).split()


def names_fact(text: str, aliases: Collection[str]) -> bool:
    """Return whether the words of an alias stand together in a text, in any order: `20 July 1969`, `July 20, 1969`."""
    words = list_words(text)
    without = [word for word in words if word not in ARTICLES]
    for alias in map(list_words, aliases):
        if alias and alias[-1] not in ARTICLES:  # as in `vitamin A`, where an article is none
            said, alias = without, [word for word in alias if word not in ARTICLES]
        else:
            said = words
        wanted, size = sorted(alias), len(alias)
        if size and any(sorted(said[k : k + size]) == wanted for k in range(len(said) - size + 1)):
            return True
    return False
