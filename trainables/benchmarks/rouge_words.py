"""ROUGE as rouge-score counts it, with the stem of a word found once, also over words of any script."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from unicodedata import category, normalize

UNSPACED_SCRIPTS = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese, Japanese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Burmese, Khmer
)
"""Characters of scripts that put no spaces between words."""


@cache
def make_rouge_scorer(*kinds: str, stemmer: bool = True, any_script: bool = False) -> Any:
    """Return rouge-score's scorer of these kinds (`rouge1`, `rougeL`), over its own words or those of any script."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer

    words = AnyScriptTokenizer if any_script else AsciiTokenizer
    return RougeScorer(list(kinds), tokenizer=words(lru_cache(2**16)(PorterStemmer().stem)) if stemmer else None)


@dataclass(frozen=True)
class AsciiTokenizer:
    """rouge-score's words: runs of a-z and 0-9, those of more than three characters by their stem."""

    stem: Callable[[str], str]

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        return tokenize(text, self)


class AnyScriptTokenizer(AsciiTokenizer):
    """Words of any script, letters, digits and their marks; scripts without spaces count by the character."""

    def tokenize(self, text: str) -> list[str]:
        marked = "".join(
            f" {char} " if UNSPACED_SCRIPTS.match(char) else char if char.isalnum() or category(char)[0] == "M" else " "
            for char in normalize("NFC", text.lower())
        )
        return [self.stem(word) if len(word) > 3 else word for word in marked.split()]
