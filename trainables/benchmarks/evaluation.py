"""One model on one benchmark: the same code for a live model, a saved one and the retain model.

Whether a model's folder and the rows go together is asked before the model is loaded, without torch; of a model on the
hub, and of a folder without tokenizer.json, where it is loaded.
"""

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, Row, measures
from trainables.benchmarks.own.row_scores import MAX_BLOCK_LABELS
from trainables.common import typed_paths
from trainables.common.errors import InputError, first_error_line
from trainables.common.wording import format_row_numbers
from trainables.config.settings import GREEDY_SAFE_KEYS, Benchmark, Model
from trainables.data import conversations, templates, text_blocks
from trainables.data.conversations import Encoder, list_turns
from trainables.storage import atomic_files

TEMPLATE_TEST_ROWS, TEMPLATE_TEST_TOKENS = 10, 512
POSITION_LIMIT_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len")


def evaluate(
    network: Any, tokenizer: Any, benchmark: Benchmark, reference: Any, *, token_budget: int, most: int | None = None
) -> tuple[Metrics, Records]:
    """Return all metrics, those of added measures included, and their records.

    `most`: take a quick look at so many rows of each task.
    """
    chosen = benchmarks.get_benchmark(benchmark.name)
    measure = partial(chosen.measure_some_rows, most=most) if most else chosen.measure
    metrics, records = measure(network, tokenizer, benchmark, reference, token_budget=token_budget)
    records = measures.add_row_measures(benchmark, records)
    columns = dict.fromkeys(name for row in records for name in row)
    records = [columns | row for row in records]
    added = measures.aggregate_measures(benchmark, records, chosen.COMPARED_TASKS)
    return added | metrics, records


def suggest_better_template(network: Any, tokenizer: Any, benchmark: Benchmark, metrics: Metrics) -> str | None:
    """Return that another template is likely the model's, where its answers to the forget rows are poor; else None."""
    chosen = benchmarks.get_benchmark(benchmark.name)
    known = [metrics.get(f"forget_{name}") for name in ("rouge", "prob", "extraction_strength")]
    if not chosen.ASKS_BY_TEMPLATE or min((value for value in known if value is not None), default=1.0) >= 0.3:
        return None
    from trainables.inference import scoring

    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    rows, found = chosen.training_rows(benchmark)[0], {}
    pairs = [(row["question"], row["answer"]) for row in rows if "question" in row][:TEMPLATE_TEST_ROWS]
    for name in (*templates.TEMPLATES, templates.CHAT) if pairs else ():
        try:
            encoder = conversations.make_encoder(name, tokenizer)
            examples = encoder.encode(pairs, max_length=min(TEMPLATE_TEST_TOKENS, positions or TEMPLATE_TEST_TOKENS))
        except InputError:  # a template that the tokenizer cannot take
            continue
        scores = scoring.score_examples(network, tokenizer, examples, token_budget=4 * TEMPLATE_TEST_TOKENS)
        answers = zip(examples, scores, strict=True)
        losses = [one.losses[example.lead : len(one.losses) - example.ending] for example, one in answers]
        found[name] = float(np.mean([np.exp(-np.mean(part)) for part in losses if part]))
    best = max(found, key=found.__getitem__, default=benchmark.template)
    if best == benchmark.template or found[best] <= max(0.1, 1.5 * found.get(benchmark.template, 0.0)):
        return None
    shown = ", ".join(f"{name} {value:.2f}" for name, value in sorted(found.items(), key=lambda item: -item[1]))
    return (
        f"the answers to the rows to forget are likelier in another prompt template than '{benchmark.template}' "
        f"(exp(-mean loss) of the first ones: {shown}); '{best}' fits better: --set benchmark.template={best} "
        f"(--template {best} of trainables.evaluate)"
    )


def check_data_unchanged(benchmark: Benchmark) -> None:
    """Raise InputError if the files are not those that the fingerprint is of."""
    if benchmark.is_fictional:
        atomic_files.check_folder_unchanged(Path(benchmark.data), "benchmark.data")
    if not (benchmark.fingerprint or "").startswith("files:"):
        return
    if benchmarks.get_benchmark(benchmark.name).fingerprint(benchmark) != benchmark.fingerprint:
        places = ", ".join(benchmark.sources) or benchmark.data
        raise InputError(f"benchmark: what '{places}' holds has changed since this trial was planned")


def make_evaluation_document(benchmark: Benchmark, metrics: Metrics, records: Records) -> dict[str, Any]:
    part = benchmarks.get_benchmark(benchmark.name).make_reference_document(benchmark, records)
    return {**metrics, "benchmark": benchmark.model_dump(mode="json"), **part}


def read_reference_evaluation(path: Path, benchmark: Benchmark, field: str = "--retain-evaluation") -> Any:
    """Return what metrics need of the retain model's kept evaluation. Raises InputError if it is of something else."""
    kept = atomic_files.read_json(path)
    return benchmarks.get_benchmark(benchmark.name).parse_reference(kept, benchmark, f"{field}: {path}")


def find_model_problems(benchmark: Benchmark, model: Model, name: str) -> tuple[list[str], list[str]]:
    """Return what is wrong with a model's tokenizer, template and positions for the rows, and what is odd: lines.

    `name`: of the model.
    """
    problems, warnings, chosen = list[str](), list[str](), benchmarks.get_benchmark(benchmark.name)
    folder = typed_paths.expand_home(model.tokenizer or model.path)
    if not typed_paths.is_file(folder / "tokenizer.json"):
        return problems, warnings
    try:
        place = typed_paths.expand_home(model.path)
        config = atomic_files.read_json(place / "config.json") or {}
        config |= config.get("text_config") or {}
        tokenizer = _load_tokenizer(folder, config)
        tokenizer.name_or_path = str(place)
        warnings += _describe_generation(place, name)
        fetched = benchmark.name != "own" and not typed_paths.is_folder(benchmark.data)
        forget, retain = ([], []) if fetched else chosen.training_rows(benchmark)
        if beyond := _find_token_beyond(tokenizer, config.get("vocab_size") or sys.maxsize, [*forget, *retain]):
            problems.append(f"{name}: {beyond}")
        if not chosen.ASKS_BY_TEMPLATE:
            return problems, warnings
        encoder = chosen.make_encoder(benchmark, tokenizer)
        positions = next((config[key] for key in POSITION_LIMIT_KEYS if isinstance(config.get(key), int)), 0)
        for part, rows in (("forget", forget), ("retain", retain)):
            warnings += _describe_special_tokens(tokenizer, part, rows)
            asked = {f"{part} row {number}": row for number, row in enumerate(rows[:200], 1) if "text" not in row}
            pairs = [(row["question"], row["answer"]) for row in asked.values()]
            encoder.encode(pairs, max_length=sys.maxsize, names=[*asked])  # a template may lose a part, or refuse
            if benchmark.name == "own" and positions and (long := _find_long_rows(encoder, rows, positions)):
                which = f"{format_row_numbers(long)}; shorten or leave them out"
                problems.append(f"{part}: more tokens than the {positions} positions of {name}: {which}")
    except InputError as error:
        problems.append(str(error))
    return problems, warnings


def _load_tokenizer(folder: Path, config: dict[str, Any]) -> Any:
    """Return a folder's tokenizer by the one class of transformers that needs no torch."""
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    except Exception as error:
        raise InputError(f"tokenizer: {folder / 'tokenizer.json'} cannot be read: {first_error_line(error)}") from error
    if tokenizer.eos_token is None and isinstance(config.get("eos_token_id"), int):
        # the model's own class of tokenizer knows it
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config["eos_token_id"])
    return tokenizer


def _describe_generation(folder: Path, name: str) -> list[str]:
    """Return in a line which settings of a model's own may change its greedy answers; 0 and 1.0 have no effect."""
    configured = atomic_files.read_json(folder / "generation_config.json") or {}
    odd = [key for key, value in configured.items() if key not in GREEDY_SAFE_KEYS and value and repr(value) != "1.0"]
    told = f"{name}: its generation_config.json sets {', '.join(sorted(odd))}: its answers are greedy under these"
    told += ", but for beams, max_time and stop_strings, which are set aside; take them out for plain greedy answers"
    return [told] if odd else []


def _find_token_beyond(tokenizer: Any, size: int, rows: Sequence[Row]) -> str | None:
    """Return which id the model has no embedding for, among those that come up; None if there is none."""
    named = {text: name for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)}
    beyond = sorted((number, token) for token, number in tokenizer.get_vocab().items() if number >= size)
    for number, token in beyond:
        added = number in tokenizer.added_tokens_decoder
        if not added or token in named or any(token in _text_of(row) for row in rows):
            why = f", and is its {named[token]}" if token in named else ""
            advice = "take the tokenizer that belongs to the model: --set tokenizer=DIR_OR_HUB_ID"
            told = f"the tokenizer's token '{token}' has id {number}, the model's embeddings end at {size - 1}{why}"
            return f"{told}; {advice}"
    return None


def _describe_special_tokens(tokenizer: Any, part: str, rows: Sequence[Row]) -> list[str]:
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    pattern = re.compile("|".join(map(re.escape, special)) or "(?!)")
    spelled = {number: tokens for number, row in enumerate(rows, 1) if (tokens := pattern.findall(_text_of(row)))}
    if not spelled:
        return []
    shown = ", ".join(sorted({token for tokens in spelled.values() for token in tokens}))
    return [
        f"{part}: {len(spelled)} of {len(rows)} rows spell special tokens ({shown}; {format_row_numbers([*spelled])}): "
        "a start token before and an end token behind a text is taken off, all others are read as what they are; give "
        "questions and answers, or `messages`, without what a template adds"
    ]


def _text_of(row: Row) -> str:
    if "text" in row:
        return row["text"]
    return "\n".join([*(text for _, text in list_turns(row["question"])), row["answer"]])


def _find_long_rows(encoder: Encoder, rows: Sequence[Row], positions: int) -> list[int]:
    """Return the numbers of rows with more tokens than positions; MAX_BLOCK_LABELS of an answer or text are read."""
    found, template = [], len(encoder.render_prompt(encoder.probe).encode())
    for number, row in enumerate(rows, 1):
        turns = 1 if "text" in row else len(list_turns(row["question"]))
        if len(_text_of(row).encode()) + template * turns <= positions:
            continue  # a token has a byte or more
        if "text" in row:
            tokens = min(MAX_BLOCK_LABELS, len(text_blocks.tokenize_text(encoder.tokenizer, row["text"])))
        else:
            (example,) = encoder.encode([(row["question"], row["answer"])], max_length=sys.maxsize)
            tokens = example.answer_start + min(example.answer_token_count, MAX_BLOCK_LABELS)
        if tokens > positions:
            found.append(number)
    return found
