"""The published measures of a row: memorisation, probability and ROUGE of an answer, its paraphrase, and membership.

Of membership, rows that a model was trained on have the lower number. `[:-1]`: the end token is left out.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainables.benchmarks import metrics
from trainables.benchmarks.measures import Measure

TOFU_ONLY, MUSE_AND_TOFU = ("tofu",), ("muse", "tofu")


def extraction_strength(hits: Sequence[bool]) -> float:
    """ES = 1 - k / n of an answer of n tokens; k: the shortest prefix after which all are hits (Carlini et al., 2021).

    `hits`: whether each token is the likeliest one after the true tokens before it. No token: 0.
    """
    misses = [position for position, hit in enumerate(hits) if not hit]
    prefix = misses[-1] + 1 if misses else 0
    return 1.0 - prefix / len(hits) if hits else 0.0


def rouge_l_recall(truth: str, text: str, *, any_script: bool = False) -> float:
    """Return ROUGE-L recall (Lin, 2004) with stems; `any_script`: over words of any script."""
    scorer = metrics.make_rouge_scorer("rougeL", any_script=any_script)
    return scorer.score(truth, text)["rougeL"].recall


def paraphrase_share(row: Mapping[str, Any]) -> float:
    """Return the paraphrase's share among wrong answers, by likelihood: open-unlearning's truth ratio `prob_mean`."""
    right = paraphrase_prob(row)
    wrong = math.exp(-float(np.mean(np.array(row["perturbed_loss"]) / np.array(row["perturbed_tokens"]))))
    return right / (right + wrong + metrics.OPEN_UNLEARNING_EPSILON)


def paraphrase_prob(row: Mapping[str, Any]) -> float:
    """Return the probability of the paraphrased answer, normalised by its length: open-unlearning's PARA_Prob."""
    return math.exp(-row["paraphrase_loss"] / row["paraphrase_tokens"])


def mean_loss(row: Mapping[str, Any]) -> float:
    """Return the mean loss of a row's labels. Yeom et al., 2018."""
    return float(np.mean(row["losses"]))


def _memorisation(score: Any, short: str, title: str) -> Measure:
    return Measure(score, ("hits",), "lowest", short, title, benchmarks=("own",), on_request=MUSE_AND_TOFU)


def _paraphrase(score: Any, reads: tuple[str, ...], short: str, title: str) -> Measure:
    return Measure(score, reads, "lowest", f"{short}, paraphrase", title, on_request=TOFU_ONLY, tasks=("forget",))


def _membership(
    score: Any, reads: tuple[str, ...], short: str, title: str, on_request: tuple[str, ...] = TOFU_ONLY
) -> Measure:
    return Measure(score, reads, "lowest", short, f"membership by {title}", on_request=on_request, membership=True)


MEASURES = {
    "exact_memorisation": _memorisation(  # how many tokens are the likeliest ones: Tirumala et al., 2022
        lambda row: sum(row["hits"]) / max(1, len(row["hits"])), "EM", "exact memorisation"
    ),
    "extraction_strength": _memorisation(
        lambda row: max(extraction_strength(row["hits"]), row.get("least_strength", 0.0)), "ES", "extraction strength"
    ),
    "prob": Measure(
        lambda row: float(np.exp(-row["loss"])), ("loss",), "lowest", "prob", "probability", benchmarks=("own",)
    ),
    "rouge": Measure(
        lambda row: rouge_l_recall(row["answer"], row["generation"], any_script=True),
        ("answer", "generation"),
        "lowest",
        "ROUGE",
        "ROUGE-L recall of what is generated",
        column="rougeL_recall",
        benchmarks=("own",),
    ),
    "paraphrase_prob": _paraphrase(
        paraphrase_prob, ("paraphrase_loss", "paraphrase_tokens"), "prob", "probability of the paraphrased answer"
    ),
    "paraphrase_rouge": _paraphrase(
        lambda row: rouge_l_recall(row["paraphrase"], row["generation"]),
        ("paraphrase", "generation"),
        "ROUGE",
        "ROUGE-L recall of the paraphrased answer",
    ),
    "paraphrase_share": _paraphrase(
        paraphrase_share,
        ("paraphrase_loss", "paraphrase_tokens", "perturbed_loss", "perturbed_tokens"),
        "share",
        "share of the paraphrased answer among wrong ones",
    ),
    "membership_loss": _membership(mean_loss, ("losses",), "loss AUC", "loss", MUSE_AND_TOFU),
    "membership_min_k": _membership(  # Shi et al., 2023
        lambda row: -metrics.min_k_mean([-loss for loss in row["losses"][:-1]]), ("losses",), "Min-K AUC", "Min-40 %"
    ),
    "membership_min_k_plus_plus": _membership(  # Zhang et al., 2025
        lambda row: -metrics.min_k_mean(row["standardised"][:-1]),
        ("standardised",),
        "Min-K++ AUC",
        "Min-40 %++",
        MUSE_AND_TOFU,
    ),
    "membership_reference": _membership(  # Carlini et al., 2022, with that one reference
        lambda row: mean_loss(row) - row["reference_loss"],
        ("losses", "reference_loss"),
        "reference AUC",
        "loss above the retain model's",
    ),
    "membership_zlib": _membership(  # Carlini et al., 2021
        lambda row: mean_loss(row) / len(zlib.compress(row["answer_text"].encode())),
        ("losses", "answer_text"),
        "zlib AUC",
        "loss over compressed length",
        MUSE_AND_TOFU,
    ),
}
