"""A model's answers to TOFU's rows, scored and generated: the records of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from trainables.benchmarks import measures, rouge_words
from trainables.benchmarks.base import Records, Row
from trainables.benchmarks.measures import HOLDOUT
from trainables.benchmarks.tofu.aggregates import Reference
from trainables.benchmarks.tofu.rows import RULES, DialectRules, make_dialect_encoder, read_evaluation_rows
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data.conversations import Encoder

MAX_GENERATED_TOKENS = 200
OPTIONAL_RECORD_COLUMNS = ("paraphrase_loss", "paraphrase_tokens", "perturbed_loss", "perturbed_tokens")
OPTIONAL_RECORD_COLUMNS += ("rouge1_recall", "rougeL_recall")
Encoded = tuple[list[tuple[str, int, Row]], list[list[Example]], list[tuple[int, ...]]]
"""Rows with their task and place there, the encoded answers of each, and the prompts of the first of them."""
_KEPT: dict[Any, Encoded] = {}
"""What the last four evaluations in this process asked, by the content of rows and tokenizer."""


def score_answers(
    network: Any,
    tokenizer: Any,
    benchmark: Benchmark,
    reference: Reference | None = None,
    *,
    encoder: Encoder | None = None,
    token_budget: int,
    asked_rows: Mapping[str, Sequence[Row]] | None = None,
    generate: bool = True,
) -> Records:
    """Return a record a question: summed losses and token counts of every answer, the generation and its ROUGE.

    Of hold-out rows only the answer is scored. `asked_rows`, `encoder`: others than the benchmark's. Rows of a known
    content are kept as tokens for the process's next evaluations.
    """
    from trainables.inference import generation, scoring

    rules, known = RULES[benchmark.dialect], benchmark.fingerprint and not (encoder or asked_rows)
    encoder = encoder or make_dialect_encoder(benchmark, tokenizer)
    if known:
        every, groups, prompts = _encode_once(benchmark, encoder)
    else:
        every, groups, prompts = _encode_rows(benchmark, encoder, asked_rows or read_evaluation_rows(benchmark))
    prompts = prompts if generate else []
    first, requested = [group[0] for group in groups], measures.requested_measures(benchmark)
    standardise = set()
    if "membership_min_k_plus_plus" in requested and every[-1][0] == HOLDOUT:
        standardise = {one for one, (task, _, _) in zip(first, every, strict=True) if task in ("forget", HOLDOUT)}
    every_answer, settings = list(chain(*groups)), {"token_budget": token_budget, "standardise": standardise}
    scored = iter(scoring.score_examples(network, tokenizer, every_answer, **settings))
    scores = [[next(scored) for _ in group] for group in groups]
    texts = generation.generate(
        network,
        tokenizer,
        prompts,
        ends=encoder.end_tokens,
        token_budget=token_budget,
        new_tokens=MAX_GENERATED_TOKENS,
        total=rules.generated_includes_prompt,
        scored=[(example, answers[0].hits) for example, answers, _ in zip(first, scores, prompts, strict=False)],
    )
    counts = [[example.answer_tokens for example in group] for group in groups]
    losses = [[one.total_loss for one in answers] for answers in scores]
    asked = ("question", "answer")
    records = [{"task": task, "index": at, **{name: row[name] for name in asked}} for task, at, row in every]
    records = _with_results(records, losses, counts, [encoder.strip_lead(text) for text in texts], rules, encoder)
    if not requested:
        return records
    rows = []  # what measures read: the records, and what of each answer no record keeps
    for record, answers, example, (task, _, row) in zip(records, scores, first, every, strict=True):
        paraphrase = row.get("paraphrased_answer")
        if "paraphrase_rouge" in requested and task == "forget":
            record["paraphrase"] = paraphrase
        text = tokenizer.decode(example.input_ids[example.answer_start :], skip_special_tokens=True)
        more = {"answer_text": text, "paraphrase": paraphrase}
        more["reference_loss"] = reference.loss(record) if reference else None
        rows.append(record | measures.columns_of_label_scores(answers[0], benchmark.dialect, example) | more)
    measures.add_row_measures(benchmark, rows, records)
    return records


def _encode_once(benchmark: Benchmark, encoder: Encoder) -> Encoded:
    """Return all rows as tokens, those of an earlier evaluation if its rows and its tokenizer had the same content."""
    tokenizer = encoder.tokenizer
    texts = (tokenizer.special_tokens_map, tokenizer.chat_template)
    key = (benchmark, tokenizer.backend_tokenizer.to_str(), str(texts), encoder.end_tokens)
    if key not in _KEPT:
        if len(_KEPT) == 4:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = _encode_rows(benchmark, encoder, read_evaluation_rows(benchmark))
    return _KEPT[key]


def _encode_rows(benchmark: Benchmark, encoder: Encoder, chosen: Mapping[str, Sequence[Row]]) -> Encoded:
    every = [(task, at, row) for task, found in chosen.items() for at, row in enumerate(found)]
    asked = [[(row["question"], answer) for answer in _list_answers(task, row)] for task, _, row in every]
    names = [f"{task} row {at + 1}" for (task, at, _), pairs in zip(every, asked, strict=True) for _ in pairs]
    prompts = encoder.encode_prompts([row["question"] for task, _, row in every if task != HOLDOUT])
    pairs, length = [pair for pairs in asked for pair in pairs], RULES[benchmark.dialect].max_length
    encoded = iter(encoder.encode(pairs, max_length=length, names=names))
    return every, [[next(encoded) for _ in pairs] for pairs in asked], prompts


def _list_answers(task: str, row: Row) -> list[str]:
    """Return the answers of a row that are scored: its own, the paraphrased and the wrong ones, as far as asked for."""
    if task == HOLDOUT or "perturbed_answer" not in row:
        return [row["answer"]]
    return [row["answer"], row.get("paraphrased_answer", row["answer"]), *row["perturbed_answer"]]


def _with_results(
    records: Records,
    losses: list[list[float]],
    counts: list[list[int]],
    texts: list[str],
    rules: DialectRules,
    encoder: Encoder,
) -> Records:
    """Return the records with losses and counts, and texts of the first rows: none of hold-out rows, which are last."""
    scorer = rouge_words.make_rouge_scorer("rouge1", "rougeL")
    for record, lost, tokens in zip(records, losses, counts, strict=True):
        record |= {"generation": None, "answer_loss": lost[0], "answer_tokens": tokens[0]}
        record |= dict.fromkeys(OPTIONAL_RECORD_COLUMNS)
        if len(lost) > 1:
            record |= {"paraphrase_loss": lost[1], "paraphrase_tokens": tokens[1]}
            record |= {"perturbed_loss": lost[2:], "perturbed_tokens": tokens[2:]}
    for record, text in zip(records, texts, strict=False):
        text = text.strip() if rules.strip else text
        overlap = scorer.score(encoder.strip_end_tokens(record["answer"]), text)
        record |= {"generation": text} | {f"{name}_recall": score.recall for name, score in overlap.items()}
    return records
