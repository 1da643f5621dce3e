"""One model on one benchmark: the same code for a live model, a saved one and the retain model."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, measures
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark
from trainables.data import conversations, templates
from trainables.storage import atomic_files

TEMPLATE_TEST_ROWS, TEMPLATE_TEST_TOKENS = 10, 512


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


def advise_template(network: Any, tokenizer: Any, benchmark: Benchmark, metrics: Metrics) -> str | None:
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


def evaluation_document(benchmark: Benchmark, metrics: Metrics, records: Records) -> dict[str, Any]:
    part = benchmarks.get_benchmark(benchmark.name).make_reference_document(benchmark, records)
    return {**metrics, "benchmark": benchmark.model_dump(mode="json"), **part}


def read_retain_reference(path: Path, benchmark: Benchmark, field: str = "--retain-evaluation") -> Any:
    """Return what metrics need of the retain model's kept evaluation. Raises InputError if it is of something else."""
    kept = atomic_files.read_json(path)
    return benchmarks.get_benchmark(benchmark.name).read_reference(kept, benchmark, f"{field}: {path}")
