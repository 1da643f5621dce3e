"""ROUGE as rouge-score counts it; the stem of a word is found once, not again in every text."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any


def scorer(*kinds: str, stemmer: bool = True) -> Any:
    """rouge-score's scorer of these kinds (`rouge1`, `rougeL`), over its own words."""
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(kinds), tokenizer=Words()) if stemmer else RougeScorer(list(kinds))


class Words:
    """rouge-score's words: runs of a-z and 0-9, those of more than three characters by their Porter stem."""

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        return tokenize(text, self)

    @staticmethod
    def stem(word: str) -> str:
        return stem(word)


@lru_cache(maxsize=2**16)
def stem(word: str) -> str:
    """Porter's stem, as nltk finds it."""
    return _porter().stem(word)


@cache
def _porter() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()
