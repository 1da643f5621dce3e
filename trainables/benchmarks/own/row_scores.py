"""What a model still knows of given rows, row by row: said, extraction, memorisation, ROUGE, probability, Min-K."""

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainables.benchmarks import measures, metrics
from trainables.benchmarks.base import Metrics, Records
from trainables.benchmarks.measures import HOLDOUT_SET
from trainables.benchmarks.own.facts import OwnRow, guess_fact_span, mentions_fact, split_into_words
from trainables.benchmarks.own.row_files import is_request_name, read_evaluation_rows
from trainables.common.errors import TrialDiverged
from trainables.common.fingerprints import hash_json
from trainables.common.tokenized_row import Example
from trainables.config.settings import KV_CACHE_FACTOR, Benchmark
from trainables.data import text_blocks
from trainables.data.conversations import Encoder, Question, list_turns

DEFAULT_ROW_LIMIT = 300
"""How many rows of each set are measured unless told otherwise: as many as the paper evaluates of a TOFU split."""
MAX_BLOCK_LABELS = 512
ONE_WORD_PROMPT, DEFAULT_ANSWER_BEGINNING = "Answer in one word: ", "The answer is"
MIN_GENERATED_TOKENS, MAX_GENERATED_TOKENS = 64, 200
"""Of what a model says: three times the answer's tokens, at least and at most these. 32 cut off half of the facts."""


@dataclass(frozen=True)
class EvaluationItem:
    """A question with its answer, or a block of a text, to be measured. All numbers count from 0.

    `index`: among the items of its set (`task`). `number`: of its row in the set. `block`: in a text.
    """

    task: str
    index: int
    number: int
    block: int
    row: OwnRow
    example: Example


ScoredItem = tuple[EvaluationItem, list[bool], dict[str, Any]]
"""An item, whether each of its labels was the likeliest token, and the row that measures read."""


def score_rows(
    network: Any, encoder: Encoder, benchmark: Benchmark, *, token_budget: int, most: int | None = None
) -> Records:
    """Return a record of each question or block of each set. Raises TrialDiverged if a loss is not finite.

    `most`: for a quick look, so many of each set that goals are made of, evenly spaced.
    """
    from trainables.inference import scoring

    items: list[EvaluationItem] = []
    for name, chosen in read_evaluation_rows(benchmark).items():
        cut = cut_rows_into_items(encoder, name, chosen, benchmark.limit)
        if most is None:
            items += cut
        elif name not in (HOLDOUT_SET, "paraphrase"):
            items += [cut[k] for k in pick_evenly_spaced_indices(len(cut), most)]
    examples = [item.example for item in items]
    scores = scoring.score_examples(network, encoder.tokenizer, examples, token_budget=token_budget)
    rows = [_make_record(item, one.losses, one.hits) for item, one in zip(items, scores, strict=True)]
    questions, texts = [], []
    for item, one, row in zip(items, scores, rows, strict=True):
        if item.task != HOLDOUT_SET and not item.row.neutral:
            (texts if item.row.is_text else questions).append((item, one.hits, row))
    _ask_questions(network, encoder, questions, token_budget)
    _continue_texts(network, encoder.tokenizer, texts, token_budget)
    records = measures.add_row_measures(benchmark, rows, ("answer", "generation"))  # no record keeps a person's texts
    for record in (one for one in records if one["is_text"] and one["task"] != HOLDOUT_SET):
        record["said"] = record["extraction_strength"]
        record["said_any"] = record["said"] if is_forget_set(record["task"]) else None
    return records


def cut_rows_into_items(encoder: Encoder, name: str, rows: Sequence[OwnRow], limit: int | None) -> list[EvaluationItem]:
    """Return at most `limit` items of a set: evenly spaced rows are cut into items, and evenly spaced items kept."""
    most = limit or DEFAULT_ROW_LIMIT
    cut = []
    for k in pick_evenly_spaced_indices(len(rows), most):
        blocks = encode_row(encoder, rows[k], f"{name}: row {k + 1} of this set", sys.maxsize, MAX_BLOCK_LABELS)
        cut += [EvaluationItem(name, 0, k, block, rows[k], example) for block, example in enumerate(blocks)]
    return [replace(cut[k], index=index) for index, k in enumerate(pick_evenly_spaced_indices(len(cut), most))]


def pick_evenly_spaced_indices(count: int, most: int) -> list[int]:
    """Return the numbers below `count`: all, or from 0 on at even distances `most` of them."""
    return list(range(count)) if count <= most else [k * count // most for k in range(most)]


def encode_row(encoder: Encoder, row: OwnRow, where: str, length: int, labels: int) -> list[Example]:
    """Return a question's first `length` tokens with at most `labels` labels, or the blocks of a text of `labels`."""
    if row.is_text:
        return text_blocks.split_text_into_blocks(encoder.tokenizer, row.answer, labels, where)
    (whole,) = encoder.encode([(row.asked, row.answer)], max_length=length, names=[where])
    return [whole.keep_first_labels(row.labels or labels)]


def locate_fact(row: OwnRow) -> tuple[int, int] | None:
    """Return where the fact of a question begins and ends in its answer, None if it is written otherwise there."""
    if not row.fact:
        return guess_fact_span(list_turns(row.asked)[-1][1], row.answer)
    words = ((one, rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])") for one in row.fact)
    case = re.IGNORECASE
    found = (re.search(each, row.answer, case if len(one) > 2 else 0) for one, each in words)  # As is no `as`
    return min((one.span() for one in found if one), key=lambda span: (span[0], -span[1]), default=None)


def encode_row_with_fact_labels(encoder: Encoder, said: OwnRow, row: OwnRow, where: str, length: int) -> list[Example]:
    """Return a question with its answer up to the fact's end, whose tokens are the labels; what has none as it is.

    `said`: the row in the model's words, which are taken if they write the fact, and it lies within `length` tokens.
    The fact's tokens are those behind what the answer has in common with the answer that ends before the fact.
    """
    for one in (said, row):
        span = None if one.is_text else locate_fact(one)
        if span is None:
            continue
        begun, ended = one.answer[: span[0]].rstrip(), one.answer[: span[1]]
        (whole,) = encoder.encode([(one.asked, ended)], max_length=length, names=[where])
        ids, start = whole.input_ids[: len(whole.input_ids) - whole.ending], whole.answer_start + whole.lead
        if begun:
            (before,) = encoder.encode([(one.asked, begun)], max_length=length, names=[where])
            pairs = zip(ids, before.input_ids, strict=False)
            start = max(start, sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if start < len(ids):
            return [Example(ids, start)]
    return encode_row(encoder, row, where, length, length)


def _make_record(item: EvaluationItem, losses: list[float], hits: list[bool]) -> dict[str, Any]:
    """Return the record of an item, with the losses and hits that measures read. Hits are of the answer itself."""
    if not np.isfinite(losses).all():
        raise TrialDiverged(f"evaluation: the loss of a row of set '{item.task}' is not finite")
    return {
        "task": item.task,
        "index": item.index,
        "row": item.number,
        "block": item.block,
        "is_text": item.row.is_text,
        "digest": hash_json([item.row.question, item.row.answer])[:16],
        "tokens": len(losses),
        "loss": float(np.mean(losses)),
        "min_k": metrics.min_k_mean([-value for value in losses]),
        "losses": losses,
        "hits": hits[item.example.lead : len(hits) - item.example.ending],
    }


def compute_generation_limit(answer_tokens: int) -> int:
    """Return the most tokens of what a model says: three times the answer's."""
    return min(max(MIN_GENERATED_TOKENS, 3 * answer_tokens), MAX_GENERATED_TOKENS)


def _ask_questions(network: Any, encoder: Encoder, questions: Sequence[ScoredItem], token_budget: int) -> None:
    """Write into each row what the model says to its question, and whether it names the fact, however it is asked.

    A row to forget is also asked for by its paraphrases, for one word, and to go on with an answer, which begins with
    what stands before the fact in its sentence, or with DEFAULT_ANSWER_BEGINNING where that is no two words.
    """
    from trainables.inference import generation

    asked: list[Any] = []
    for item, hits, row in questions:
        example = item.example
        limit = compute_generation_limit(example.answer_token_count - example.lead - example.ending)
        ways: list[tuple[Question, str]] = [(item.row.asked, "")]  # a prompt, and what its answer begins with
        if is_forget_set(item.task):
            *before, (role, text) = list_turns(item.row.asked)
            again = [*item.row.paraphrases, ONE_WORD_PROMPT + text]
            ways += [((*before, (role, words)) if before else words, "") for words in again]
            start, _ = locate_fact(item.row) or (0, 0)
            beginning = re.split(r"(?<=[.!?])\s", item.row.answer[:start])[-1].strip()  # of the fact's sentence
            several = len(split_into_words(beginning)) > 1
            ways.append((item.row.asked, beginning if several else DEFAULT_ANSWER_BEGINNING))
        for way, (question, beginning) in enumerate(ways):
            (prompt,) = replace(encoder, prefix=beginning).encode_prompts([question])
            asked.append((item, row, prompt, limit, (example, () if way else hits)))
    if not asked:
        return
    items, rows, prompts, limits, scored = zip(*asked, strict=True)
    settings: dict[str, Any] = {"token_budget": token_budget, "new_tokens": limits, "ends": encoder.end_tokens}
    texts = generation.generate_texts(network, encoder.tokenizer, prompts, scored=scored, cut_loops=True, **settings)
    for item, row, text in zip(items, rows, map(encoder.strip_answer_tag, texts), strict=True):
        said = float(mentions_fact(text, item.row.aliases))
        if "said" not in row:  # the question itself
            row |= {"answer": encoder.strip_end_tokens(item.row.answer), "generation": text, "said": said}
        if is_forget_set(item.task):
            row["said_any"] = max(said, row.get("said_any", 0.0))


def _continue_texts(network: Any, tokenizer: Any, asked: Sequence[ScoredItem], token_budget: int) -> None:
    """Generate the second halves of the blocks after their first halves."""
    from trainables.inference import generation
    from trainables.inference.padded_batch import choose_padding_token

    starts, truths, known = [], [], []
    for item, hits, _ in asked:
        ids = item.example.input_ids
        half, first = len(ids) // 2, len(ids) // 2 - item.example.answer_start
        starts.append(ids[:half])
        truths.append(ids[half:])
        known.append(ids[half:][: [*hits[first:], False].index(False) if first >= 0 else 0])
    found = generation.generate_token_ids(
        network,
        starts,
        [len(truth) for truth in truths],
        ends={tokenizer.eos_token_id} - {None},
        pad=choose_padding_token(tokenizer),
        token_budget=KV_CACHE_FACTOR * token_budget,
        known=known,
    )
    for (_, _, row), truth, ids in zip(asked, truths, found, strict=True):
        answer, text = (tokenizer.decode(list(part), skip_special_tokens=True) for part in (truth, ids))
        row |= {"answer": answer, "generation": text}


def is_forget_set(name: str) -> bool:
    """Return whether a set's rows are to be forgotten, now or by an earlier request."""
    return name == "forget" or is_request_name(name)


def aggregate_metrics(benchmark: Benchmark, records: Records) -> Metrics:
    """Return the numbers of each set, and of membership where there are hold-out rows."""
    sets = ("forget", "paraphrase", "retain", "other", *filter(is_request_name, benchmark.places))
    by_set = {name: [row for row in records if row["task"] == name] for name in (*sets, HOLDOUT_SET)}
    found = measures.aggregate_measures(benchmark, records)
    found |= {f"{name}_rows": len(rows) for name, rows in by_set.items() if rows}
    for name, number in itertools.product(sets, ("said", "said_any", "kept")):
        values = [row[number] for row in by_set[name] if row.get(number) is not None]
        if values:
            found[f"{name}_{number}"] = float(np.mean(values))
            found |= {f"{name}_known": len(values)} if number == "kept" else {}
    if by_set[HOLDOUT_SET]:
        forget, holdout = by_set["forget"], by_set[HOLDOUT_SET]
        found["membership_loss_auc"] = metrics.auc([r["loss"] for r in forget], [r["loss"] for r in holdout])
        found["membership_min_k_auc"] = metrics.auc([-r["min_k"] for r in forget], [-r["min_k"] for r in holdout])
    return found
