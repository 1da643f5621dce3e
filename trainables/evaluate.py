"""`python -m trainables.evaluate`: one saved model on one benchmark, no Ray, no storage."""

import math
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from trainables import benchmarks
from trainables.benchmarks import evaluation, own
from trainables.benchmarks.tofu import aggregates
from trainables.common import cli, provenance
from trainables.common.errors import InputError
from trainables.config.settings import Attention, Benchmark, Model, Precision, Resources
from trainables.data import templates
from trainables.inference.progress import ProgressCallback, report_progress_to
from trainables.storage import atomic_files
from trainables.training import model_files

PROGRESS_PRINT_SECONDS = 3.0
"""Between two lines of how far an evaluation is."""
question_option = partial(typer.Option, rich_help_panel="What the model is asked")


def main(
    model: Annotated[str, typer.Option(help="Model folder or hub id.")],
    output: Annotated[Path, typer.Option(help="Where the metrics go (JSON).")],
    split: Annotated[str | None, question_option(help="Forget split; own has one.")] = None,
    benchmark: Annotated[str, question_option(help="Benchmark.")] = "tofu",
    data: Annotated[str | None, question_option(help="Folder or hub id; none: published rows.")] = None,
    dialect: Annotated[str, question_option(help="paper or open-unlearning.")] = "paper",
    template: Annotated[str | None, question_option(help="Prompt template; none: llama2, own: chat.")] = None,
    source: Annotated[
        list[str] | None,
        question_option(metavar="PART=PLACE", help="WMDP: mmlu, wmdp; own: forget, retain, eval, TASK."),
    ] = None,
    task: Annotated[list[str] | None, question_option(help="Of own: lm-eval's, for the utility.")] = None,
    shots: Annotated[int, question_option(metavar="N", help="Worked examples in a question (MMLU).", min=0)] = 0,
    limit: Annotated[int | None, question_option(metavar="N", help="So many rows of each task.", min=1)] = None,
    measures: Annotated[str, question_option(help="More: all or NAME,... (docs/measuring.md).")] = "",
    holdout: Annotated[str | None, question_option(help="Data configuration of rows that no model saw.")] = None,
    retain_evaluation: Annotated[Path | None, typer.Option(help="Output for the retain model (own: target).")] = None,
    rows_file: Annotated[Path | None, typer.Option("--rows", help="Where results by row go (Parquet).")] = None,
    precision: Annotated[Precision | None, typer.Option(metavar="NAME", help="fp32 or bf16, which is a GPU's.")] = None,
    attention: Annotated[Attention, typer.Option(metavar="NAME", help="sdpa, eager, flash_attention_2.")] = "sdpa",
    token_budget: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a pass; none: what fits.", min=256)
    ] = None,
) -> int:
    """Evaluate a model and write its metrics.

    Example:
    python -m trainables.evaluate --model DIR --split forget05 --output F.json
    """
    provenance.collect_provenance()
    fields: dict[str, Any] = {"name": benchmark, "dialect": dialect, "shots": shots, "limit": limit, "holdout": holdout}
    fields |= {"sources": tuple(source or ()), "tasks": tuple(task or ())}
    fields["measures"] = tuple(filter(None, measures.split(",")))
    fields |= {name: value for name, value in (("data", data), ("split", split), ("template", template)) if value}
    if benchmark == "own":
        fields = {"split": own.OWN_SPLIT, "template": templates.choose_template(model)} | fields
    elif not split:
        raise InputError(f"--split: name the forget split of {benchmark} (of tofu: forget01, forget05, forget10)")
    asked = Benchmark.model_validate(fields)
    chosen = benchmarks.get_benchmark(asked.name)
    if template and not chosen.ASKS_BY_TEMPLATE:
        raise InputError(f"--template: {asked.name} asks without one; leave it out")
    if not data:
        asked = asked.model_copy(update={"data": chosen.published_data_id(asked.split)})
    templates.check_template_name(asked.template)
    chosen.check_settings(asked)
    if warning := chosen.describe_odd_rows(asked):
        cli.print_line(f"warning: {warning}", error=True)
    asked = asked.model_copy(update={"fingerprint": chosen.fingerprint(asked, training=False)})
    subject = Model(path=model, attention=attention)
    subject = subject.model_copy(update={"fingerprint": model_files.fingerprint_model(subject, "--model")})
    problems, warnings = evaluation.find_model_problems(asked, subject, "--model")
    for line in warnings:
        cli.print_line(f"warning: {line}", error=True)
    if problems:
        raise InputError("; ".join(problems))
    reference = evaluation.read_reference_evaluation(retain_evaluation, asked) if retain_evaluation else None
    files = [file.resolve() for file in (output, rows_file, retain_evaluation) if file]
    if len(set(files)) < len(files):
        raise InputError("--output, --rows and --retain-evaluation: give each its own file")
    for field, file in (("--output", output), ("--rows", rows_file)):
        if file:
            atomic_files.check_file_writable(file, field)
    cli.silence_libraries()
    import torch

    from trainables.training.runtime import choose_process_token_budget

    on_gpu = torch.cuda.is_available()
    precision = precision or ("bf16" if on_gpu else "fp32")
    other = (atomic_files.read_json(retain_evaluation) or {}).get("precision") if retain_evaluation else None
    if other not in (None, precision):
        problem = f"--retain-evaluation is of {other}, this is of {precision}"
        cli.print_line(f"warning: {problem}; give --precision", error=True)
    network, tokenizer = model_files.load_model_and_tokenizer(subject, precision, field="--model")
    resources = Resources(gpus=float(on_gpu), evaluation_tokens=token_budget)
    budget = choose_process_token_budget(resources, network.to("cuda" if on_gpu else "cpu"))
    with report_progress_to(_tell_progress()):
        found, records = evaluation.evaluate(network, tokenizer, asked, reference, token_budget=budget)
    if advice := evaluation.suggest_better_template(network, tokenizer, asked, found):
        cli.print_line(f"warning: {advice}", error=True)
    if rows_file:
        atomic_files.write_parquet_rows(rows_file, records)
    made = {"model": subject.model_dump(mode="json"), "precision": precision, **provenance.collect_provenance()}
    atomic_files.write_json(output, {**evaluation.make_evaluation_document(asked, found, records), **made})
    goals = {goal.metric: goal for goal in chosen.GOALS}
    more = [goal.metric for goal in benchmarks.list_searchable_goals(asked).values() if goal.metric not in goals]
    for name in (*more, *(name for name in aggregates.COMBINED_METRICS if more and name in found)):
        cli.print_line(f"{name} {_format(found.get(name))}")
    shown = [f"{goal.title} {_format(found[name], ' (no --retain-evaluation)')}" for name, goal in goals.items()]
    cli.print_line(f"{', '.join(shown)}: {output}")
    return 0


def _format(value: float | None, why: str = "") -> str:
    return f"null{why}" if value is None else f"{value:.4f}"


def _tell_progress() -> ProgressCallback:
    told = -math.inf

    def tell(what: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PROGRESS_PRINT_SECONDS:
            told = time.monotonic()
            cli.print_line(f"evaluation, {done} of {total} {what}")

    return tell


if __name__ == "__main__":
    cli.make_typer_app(main)()
