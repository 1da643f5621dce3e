"""What a model still knows of given rows, measured row by row: extraction, memorisation, ROUGE, probability, Min-K."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainables.benchmarks import measures, metrics
from trainables.benchmarks.base import BenchmarkBase, Metrics, Records
from trainables.benchmarks.own.row_files import Row
from trainables.common.errors import TrialStopped
from trainables.common.tokens import Example
from trainables.config.ids import digest
from trainables.data import text_blocks
from trainables.data.prompts import Template, encode, prompt_text

ROW_LIMIT = 300
"""Of each set, as many as the paper evaluates of a TOFU split."""
TOKENS, GENERATED = 512, 200
"""Of a block or an answer; of a generated answer."""
SETS = ("forget", "paraphrase", "retain")
HOLDOUT = "holdout"
UTILITY = ("extraction_strength", "exact_memorisation", "rouge", "prob")
"""The measures of the retain rows that utility is made of."""


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


def score_sets(
    benchmark: BenchmarkBase,
    network: Any,
    tokenizer: Any,
    template: Template,
    sets: Mapping[str, Sequence[Row]],
    *,
    limit: int | None,
    token_budget: int,
) -> Records:
    """Return a record of each question or block of each set. Raises TrialStopped if a loss is not finite."""
    items = [item for name, rows in sets.items() for item in cut_rows(tokenizer, template, name, rows, limit)]
    scored = _score_labels(network, tokenizer, items, token_budget)
    asked = [one for one in scored if one.item.task != HOLDOUT]
    _answer(network, tokenizer, template, [one for one in asked if not one.item.row.is_text], token_budget)
    _continue(network, tokenizer, [one for one in asked if one.item.row.is_text], token_budget)
    records = [one.record for one in scored]
    measures.score_rows(benchmark, [one.columns for one in scored], records)
    return records


def cut_rows(tokenizer: Any, template: Template, name: str, rows: Sequence[Row], limit: int | None) -> list[Item]:
    """Return at most `limit` questions and blocks of a set, evenly spaced over its rows, then over what they become."""
    most = limit or ROW_LIMIT
    cut = [item for k in spaced(len(rows), most) for item in _cut(tokenizer, template, name, k, rows[k])]
    return [replace(cut[k], index=index) for index, k in enumerate(spaced(len(cut), most))]


def spaced(count: int, most: int) -> list[int]:
    """Return all numbers below `count`, or `most` of them at even distances, the first one among them."""
    return list(range(count)) if count <= most else [k * count // most for k in range(most)]


def _cut(tokenizer: Any, template: Template, name: str, number: int, row: Row) -> Iterator[Item]:
    if row.question is None:
        where = f"{name}: row {number + 1} of this set"
        for count, block in enumerate(text_blocks.blocks(tokenizer, row.answer, TOKENS, where)):
            yield Item(name, 0, number, count, row, block, ended=False)
        return
    whole = encode(tokenizer, template, row.question, row.answer, max_length=sys.maxsize, tag_is_answer=False)
    ids = whole.input_ids[: whole.answer_start + TOKENS]
    yield Item(name, 0, number, 0, row, Example(ids, whole.answer_start), ended=len(ids) == len(whole.input_ids))


@dataclass
class Scored:
    """An item with its record, and what measures read and no record keeps: texts, and losses and hits of its labels."""

    item: Item
    record: dict[str, Any]
    losses: list[float]
    hits: list[bool]
    answer: str | None = None
    generation: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Everything that a measure may read. The hits are without the end token's."""
        hits = self.hits[:-1] if self.item.ended else self.hits
        texts = {"answer": self.answer, "generation": self.generation}
        return self.record | texts | {"losses": self.losses, "hits": hits}


def _score_labels(network: Any, tokenizer: Any, items: Sequence[Item], token_budget: int) -> list[Scored]:
    """Score every label in one teacher-forced pass."""
    from trainables.inference import scoring

    groups, pad = [[item.example] for item in items], scoring.pad_of(tokenizer)
    scores = scoring.score_labels(network, groups, pad=pad, token_budget=token_budget)
    found = []
    for item, ((losses, hits),) in zip(items, scores, strict=True):
        if not np.isfinite(losses).all():
            raise TrialStopped("diverged", f"evaluation: the loss of a row of set '{item.task}' is not finite")
        record = {
            "task": item.task,
            "index": item.index,
            "row": item.number,
            "block": item.block,
            "digest": digest([item.row.question, item.row.answer])[:16],
            "tokens": len(losses),
            "loss": float(np.mean(losses)),
            "prob": None,
            "min_k": metrics.lowest_mean([-value for value in losses]),
            "extraction_strength": None,
            "exact_memorisation": None,
            "rougeL_recall": None,
        }
        found.append(Scored(item, record, losses, hits))
    return found


def _answer(network: Any, tokenizer: Any, template: Template, asked: Sequence[Scored], token_budget: int) -> None:
    """Generate the answers to the questions."""
    from trainables.inference import scoring

    prompts = [prompt_text(template, one.item.row.question or "", tag_is_answer=False) for one in asked]
    scored = [(one.item.example, one.hits) for one in asked]
    texts = scoring.generate(
        network, tokenizer, prompts, token_budget=token_budget, new_tokens=GENERATED, scored=scored
    )
    for one, text in zip(asked, texts, strict=True):
        one.answer, one.generation = one.item.row.answer, text


def _continue(network: Any, tokenizer: Any, asked: Sequence[Scored], token_budget: int) -> None:
    """Generate the second halves of the blocks after their first halves."""
    from trainables.inference import generation, scoring

    starts = [one.item.example.input_ids[: one.item.half] for one in asked]
    truths = [list(one.item.example.input_ids[one.item.half :]) for one in asked]
    limits = [len(truth) for truth in truths]
    known = [truth[: _known_tokens(one)] for one, truth in zip(asked, truths, strict=True)]
    found = generation.continue_prompts(
        network,
        starts,
        limits,
        end=tokenizer.eos_token_id,
        pad=scoring.pad_of(tokenizer),
        token_budget=scoring.CACHED_PER_PASS * token_budget,
        known=known,
    )
    for one, truth, ids in zip(asked, truths, found, strict=True):
        one.answer, one.generation = (tokenizer.decode(part, skip_special_tokens=True) for part in (truth, ids))


def _known_tokens(one: Scored) -> int:
    """Return with how many tokens of a block's second half the model is known to go on, from its hits."""
    from trainables.inference import scoring

    first = one.item.half - one.item.example.answer_start
    return scoring.count_leading_hits(one.hits[first:]) if first >= 0 else 0


def aggregate(benchmark: BenchmarkBase, records: Records) -> Metrics:
    """Return the numbers of each set, and of membership where there are hold-out rows."""
    by_set = {name: [row for row in records if row["task"] == name] for name in (*SETS, HOLDOUT)}
    found = measures.means(benchmark, records)
    found |= {f"{name}_rows": len(by_set[name]) for name in SETS if by_set[name]}
    if by_set[HOLDOUT]:
        forget, holdout = by_set["forget"], by_set[HOLDOUT]
        found["membership_loss_auc"] = metrics.area([r["loss"] for r in forget], [r["loss"] for r in holdout])
        found["membership_min_k_auc"] = metrics.area([-r["min_k"] for r in forget], [-r["min_k"] for r in holdout])
        found["holdout_rows"] = len(holdout)
    return found


def utility(found: Metrics, tasks: Sequence[str]) -> float | None:
    """Return the harmonic mean of the retain set's four numbers and the tasks'; 0 if one is 0, None if one is None."""
    names = [*(f"retain_{name}" for name in UTILITY), *tasks]
    parts = [float(value) for name in names if (value := found[name]) is not None]
    return metrics.harmonic_mean(parts) if len(parts) == len(names) else None
