"""What a model still knows of given rows, measured row by row: extraction, memorisation, ROUGE, probability, Min-K."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainables.benchmarks import Metrics, Records, metrics, rouge
from trainables.benchmarks.own_rows import Row
from trainables.common.errors import TrialStopped
from trainables.common.tokens import Example
from trainables.config.ids import digest
from trainables.data import prompts as data_prompts
from trainables.data import text_blocks
from trainables.data.prompts import Template
from trainables.inference import scoring as inference_scoring

ROW_LIMIT = 300
"""Of each set, as many as the paper evaluates of a TOFU split."""
TOKENS, GENERATED = 512, 200
"""Of a block or an answer; of a generated answer."""
SETS = ("forget", "paraphrase", "retain")
HOLDOUT = "holdout"
NUMBERS = {
    "extraction_strength": "extraction_strength",
    "exact_memorisation": "exact_memorisation",
    "rouge": "rougeL_recall",
    "prob": "prob",
}
"""Metric of a set: the column of its rows that it is the mean of."""

UNSPACED = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese, Japanese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Burmese, Khmer
)
"""Characters of scripts that put no spaces between words."""


@dataclass(frozen=True)
class Item:
    """A question with its answer, or a block of a text. `ended`: the last label is the end token.

    `index` counts what is measured of a set, `number` the set's rows, `block` the blocks of one text.
    """

    task: str
    index: int
    number: int
    block: int
    row: Row
    example: Example
    ended: bool

    @property
    def half(self) -> int:
        """Tokens of a block that are given where the others are to be generated."""
        return len(self.example.input_ids) // 2

    def said(self, hits: Sequence[bool]) -> int:
        """With how many tokens of the second half the model itself would go on; `hits`: of every label."""
        first = self.half - self.example.answer_start
        return inference_scoring.leading(hits[first:]) if first >= 0 else 0


def of_rows(
    network: Any,
    tokenizer: Any,
    template: Template,
    sets: Mapping[str, Sequence[Row]],
    *,
    limit: int | None,
    token_budget: int,
) -> Records:
    """One record a question or block of each set. Raises TrialStopped where a loss is not finite."""
    chosen = [item for name, rows in sets.items() for item in items(tokenizer, template, name, rows, limit)]
    records, hits = _scored(network, tokenizer, chosen, token_budget)
    asked = [one for one in zip(chosen, records, hits, strict=True) if one[0].task != HOLDOUT]
    _answer(network, tokenizer, template, [one for one in asked if not one[0].row.is_text], token_budget)
    _continue(network, tokenizer, [one for one in asked if one[0].row.is_text], token_budget)
    return records


def items(tokenizer: Any, template: Template, name: str, rows: Sequence[Row], limit: int | None) -> list[Item]:
    """At most `limit` questions and blocks of a set, evenly spaced over its rows, then over what these are cut into."""
    most = limit or ROW_LIMIT
    cut = [item for k in spaced(len(rows), most) for item in _cut(tokenizer, template, name, k, rows[k])]
    return [replace(cut[k], index=index) for index, k in enumerate(spaced(len(cut), most))]


def spaced(count: int, most: int) -> list[int]:
    """All numbers below `count`, or `most` of them at even distances, the first one among them."""
    return list(range(count)) if count <= most else [k * count // most for k in range(most)]


def _cut(tokenizer: Any, template: Template, name: str, number: int, row: Row) -> Iterator[Item]:
    if row.question is None:
        where = f"{name}: row {number + 1} of this set"
        for count, block in enumerate(text_blocks.blocks(tokenizer, row.answer, TOKENS, where)):
            yield Item(name, 0, number, count, row, block, ended=False)
        return
    whole = data_prompts.encode(
        tokenizer, template, row.question, row.answer, max_length=sys.maxsize, tag_is_answer=False
    )
    ids = whole.input_ids[: whole.answer_start + TOKENS]
    yield Item(name, 0, number, 0, row, Example(ids, whole.answer_start), ended=len(ids) == len(whole.input_ids))


def _scored(
    network: Any, tokenizer: Any, chosen: Sequence[Item], token_budget: int
) -> tuple[Records, list[list[bool]]]:
    """A record an item, from one teacher-forced pass, and which of its labels are the likeliest tokens."""
    from trainables.inference import scoring

    examples = [item.example for item in chosen]
    pad = scoring.pad_of(tokenizer)
    found = scoring.label_scores(network, examples, pad=pad, token_budget=token_budget)
    records = []
    for item, (losses, hits) in zip(chosen, found, strict=True):
        if not np.isfinite(losses).all():
            raise TrialStopped("diverged", f"evaluation: the loss of a row of set '{item.task}' is not finite")
        counted = hits[:-1] if item.ended else hits
        loss = float(np.mean(losses))
        records.append(
            {
                "task": item.task,
                "index": item.index,
                "row": item.number,
                "block": item.block,
                "digest": digest([item.row.question, item.row.answer])[:16],
                "tokens": len(losses),
                "loss": loss,
                "prob": float(np.exp(-loss)),
                "min_k": metrics.lowest_mean([-value for value in losses]),
                "extraction_strength": metrics.extraction_strength(counted),
                "exact_memorisation": metrics.exact_memorisation(counted),
                "rougeL_recall": None,
            }
        )
    return records, [scores.hits for scores in found]


Asked = list[tuple[Item, dict[str, Any], list[bool]]]


def _answer(network: Any, tokenizer: Any, template: Template, asked: Asked, token_budget: int) -> None:
    """Write into the records what the model answers to their questions."""
    from trainables.inference import scoring

    prompts = [data_prompts.prompt_text(template, item.row.question or "", tag_is_answer=False) for item, _, _ in asked]
    begun = [(item.example, inference_scoring.leading(hits)) for item, _, hits in asked]
    told = scoring.generate(
        network, tokenizer, prompts, token_budget=token_budget, new_tokens=GENERATED, total=False, begun=begun
    )
    _compare([record for _, record, _ in asked], [item.row.answer for item, _, _ in asked], told)


def _continue(network: Any, tokenizer: Any, asked: Asked, token_budget: int) -> None:
    """Write into the records how the model goes on after the first half of their blocks."""
    from trainables.inference import scoring

    starts = [item.example.input_ids[: item.half] for item, _, _ in asked]
    truths = [list(item.example.input_ids[item.half :]) for item, _, _ in asked]
    limits = [len(truth) for truth in truths]
    known = [truth[: item.said(hits)] for (item, _, hits), truth in zip(asked, truths, strict=True)]
    told = scoring.continuations(network, tokenizer, starts, token_budget=token_budget, limits=limits, known=known)
    right, texts = ([tokenizer.decode(ids, skip_special_tokens=True) for ids in part] for part in (truths, told))
    _compare([record for _, record, _ in asked], right, texts)


def _compare(records: Records, right: Sequence[str], texts: Sequence[str]) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], tokenizer=Words())
    for record, truth, text in zip(records, right, texts, strict=True):
        record["rougeL_recall"] = scorer.score(truth, text)["rougeL"].recall


class Words:
    """Words of any script for rouge-score, whose own are of a-z and 0-9 alone; of ASCII text the same as its own.

    A word is letters, digits and their marks; scripts that are written without spaces count by the character.
    """

    def tokenize(self, text: str) -> list[str]:
        told = unicodedata.normalize("NFC", text.lower())
        words = "".join(f" {char} " if UNSPACED.match(char) else _in_word(char) for char in told).split()
        return [rouge.stem(word) if len(word) > 3 else word for word in words]


def _in_word(char: str) -> str:
    return char if char.isalnum() or unicodedata.category(char).startswith("M") else " "


def aggregate(records: Records) -> Metrics:
    """The numbers of each set, and of membership where there are hold-out rows, from the records."""
    by_set = {name: [row for row in records if row["task"] == name] for name in (*SETS, HOLDOUT)}
    found: Metrics = {}
    for name in SETS:
        if by_set[name]:
            for number, column in NUMBERS.items():
                found[f"{name}_{number}"] = float(np.mean([row[column] for row in by_set[name]]))
            found[f"{name}_rows"] = len(by_set[name])
    if by_set[HOLDOUT]:
        forget, holdout = by_set["forget"], by_set[HOLDOUT]
        found["membership_loss_auc"] = metrics.area([r["loss"] for r in forget], [r["loss"] for r in holdout])
        found["membership_min_k_auc"] = metrics.area([-r["min_k"] for r in forget], [-r["min_k"] for r in holdout])
        found["holdout_rows"] = len(holdout)
    return found


def utility(found: Metrics, tasks: Sequence[str]) -> float | None:
    """The harmonic mean of the retain set's four numbers and the tasks'; 0 where one is 0, none where one is none."""
    names = [*(f"retain_{number}" for number in NUMBERS), *tasks]
    parts = [float(value) for name in names if (value := found[name]) is not None]
    return metrics.harmonic_mean(parts) if len(parts) == len(names) else None
