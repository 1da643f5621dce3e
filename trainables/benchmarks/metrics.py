"""ROUGE, and statistics from per-row and per-token numbers, without torch.

Shapes: n questions, k wrong answers each. Losses are mean negative log-likelihoods of a token, in nats.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MU_TASKS = ("retain", "real_authors", "world_facts")
MAX_EXPONENT = 700.0
"""exp of it is still finite in float64: ratios of collapsed models end there instead of at infinity."""
OPEN_UNLEARNING_EPSILON = 1e-10
"""open-unlearning adds this to the denominators of its ratios; a collapsed model's values depend on it."""
UNSPACED_SCRIPTS = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese, Japanese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Burmese, Khmer
)
"""Characters of scripts that put no spaces between words."""


def truth_ratio(correct: Array, wrong: Array, guard: float = 0.0) -> Array:
    """Return wrong over correct, length-normalised probabilities, the wrong ones' geometric mean: (n,), (n, k) -> (n,).

    TOFU, eq. 1: R = exp(-mean_j wrong_j) / exp(-correct); by the losses' difference, which a collapsed model has, too.
    """
    if guard:
        return np.exp(-wrong.mean(axis=1)) / (np.exp(-correct) + guard)
    return np.exp(np.clip(correct - wrong.mean(axis=1), -MAX_EXPONENT, MAX_EXPONENT))


def compute_right_answer_shares(correct: Array, wrong: Array, guard: float = 0.0) -> Array:
    """Return the right answer's share among all options, P / (P + sum_j P_j): (n,), (n, k) -> (n,)."""
    if guard:
        right = np.exp(-correct)
        return right / (right + np.exp(-wrong).sum(axis=1) + guard)
    logs = -np.column_stack((correct, wrong))
    return np.exp(logs[:, 0] - np.logaddexp.reduce(logs, axis=1))


def forget_quality(unlearned: Array, retained: Array) -> dict[str, float]:
    """Return FQ, ln of the exact two-sided p-value of the Kolmogorov-Smirnov test between two models' truth ratios.

    With it p and the distance. Where rounding brings p = 1 above 1, scipy warns and takes an approximation.
    """
    if len(unlearned) != len(retained):
        raise ValueError(f"{len(unlearned)} against {len(retained)} rows: not the same split and dialect")
    from scipy import stats

    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        result: Any = stats.ks_2samp(unlearned, retained)
    above_one = any("ks_2samp" in str(warning.message) for warning in caught)
    pvalue = 1.0 if above_one else float(result.pvalue)
    log_pvalue = float(np.log(max(pvalue, np.finfo(np.float64).tiny)))
    return {
        "forget_quality": min(log_pvalue, 0.0),
        "forget_quality_pvalue": pvalue,
        "forget_quality_ks": float(result.statistic),
    }


def harmonic_mean(values: Sequence[float]) -> float:
    """Return the harmonic mean of numbers of at least 0; a zero among them makes it 0."""
    return float(1.0 / np.mean(1.0 / np.array(values))) if min(values) > 0 else 0.0


def min_k_mean(log_likelihoods: Sequence[float]) -> float:
    """Return Min-40 % (Shi et al., 2023): the mean of the lowest 40 % log-likelihoods of a text's tokens; 0 of none."""
    if not log_likelihoods:
        return 0.0
    count = max(1, int(0.4 * len(log_likelihoods)))
    return float(np.sort(log_likelihoods)[:count].mean())


def privacy_leakage(auc: float, reference: float, guard: float = 0.0) -> float | None:
    """Return PrivLeak in percent (Shi et al., 2025): how far an AUC is from the retain model's; None if that is 0.

    -100: all remembered; 0: as the retain model; above: less likely than rows that no model saw.
    """
    divisor = reference + guard
    return 100.0 * (auc - reference) / divisor if divisor else None


def auc(lower: Sequence[float], higher: Sequence[float]) -> float:
    """Return the AUC of a score that is to tell `higher` (positive) from `lower`: P(higher > lower), ties one half."""
    from scipy import stats

    statistic: Any = stats.mannwhitneyu(higher, lower).statistic
    return float(statistic) / (len(lower) * len(higher))


@cache
def make_rouge_scorer(*kinds: str, stemmer: bool = True, any_script: bool = False) -> Any:
    """Return rouge-score's scorer of these kinds (`rouge1`, `rougeL`), over its own words or those of any script."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer

    words = RougeTokenizer(lru_cache(2**16)(PorterStemmer().stem), any_script)
    return RougeScorer(list(kinds), tokenizer=words if stemmer else None)


@dataclass(frozen=True)
class RougeTokenizer:
    """rouge-score's words: runs of a-z and 0-9, those of more than three characters by their stem.

    `any_script`: letters, digits and their marks of any script; scripts without spaces count by the character.
    """

    stem: Callable[[str], str]
    any_script: bool

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        if not self.any_script:
            return tokenize(text, self)
        marked = "".join(
            f" {char} " if UNSPACED_SCRIPTS.match(char) else char if char.isalnum() or category(char)[0] == "M" else " "
            for char in normalize("NFC", text.lower())
        )
        return [self.stem(word) if len(word) > 3 else word for word in marked.split()]
