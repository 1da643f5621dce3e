"""`python -m trainables.chat ID|DIR`: asks a model what you type, each question by itself, and prints what it says."""

import itertools
import os
import stat
import sys
from typing import Annotated

import typer

from trainables import benchmarks
from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model
from trainables.data.templates import CHAT
from trainables.storage.atomic_files import read_json
from trainables.storage.file_names import EXPORT_FACTS_FILE
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import resolve_trial_id

QUESTIONS_PER_BATCH, MAX_ANSWER_TOKENS = 16, 200
"""How many questions of a file or of options are answered together, and the most tokens of an answer."""


def main(
    model: Annotated[str, typer.Argument(metavar="ID|DIR", help="A trial's id or name, a model folder or a hub id.")],
    ask: Annotated[list[str] | None, typer.Option(help="A question, several times if you like; else you type.")] = None,
    template: Annotated[str | None, typer.Option(help="Prompt template; none: a trial's own, or the model's.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Chat with a model: greedy answers by its chat template, or by its trial's, without memory of earlier questions.

    Example: python -m trainables.chat ID --ask "Where is the key?" (or ID < questions.txt, a question in each line)
    """
    cli.silence_libraries()
    import torch

    from trainables.benchmarks.own.model_answers import generate_answers
    from trainables.training.memory import CPU_PASS_TOKENS
    from trainables.training.model_files import load_model_and_tokenizer
    from trainables.trial.export.model_folder import fetch_kept_weights

    place, config = typed_paths.expand_home(model), None
    if not place.is_dir() and "/" not in model:
        store = open_storage(location, writable=False)
        trial_id = resolve_trial_id(model, store)
        store.download_sweeps_and_results([trial_id])
        config = (store.result(trial_id) or {}).get("config")
        place = store.find_export(trial_id) or fetch_kept_weights(trial_id, store)
        store.fetch(place)
    precision = "auto" if torch.cuda.is_available() else "fp32"  # a small change of fp32 weights is lost in bf16
    network, tokenizer = load_model_and_tokenizer(Model(path=str(place), attention="eager"), precision, "MODEL")
    asked = Benchmark(name="own", template=template or CHAT)
    config = config or (read_json(place / EXPORT_FACTS_FILE) or {}).get("configuration")  # of an exported model
    if config and not template:
        trained = Benchmark.model_validate(config.get("benchmark", {}))
        asked = trained if benchmarks.get_benchmark(trained.name).ASKS_BY_TEMPLATE else asked
    if asked.template == CHAT and not tokenizer.chat_template:
        raise InputError(f"MODEL: the tokenizer of '{model}' has no chat template; give --template NAME, such as plain")
    encoder = benchmarks.get_benchmark(asked.name).make_encoder(asked, tokenizer)
    network.to("cuda" if torch.cuda.is_available() else "cpu")
    lines = filter(None, map(str.strip, ask or sys.stdin or ()))
    # Who types, also through a pipe, waits for each answer; those of options or a file come together, which is faster.
    at_once = QUESTIONS_PER_BATCH if ask or (sys.stdin and stat.S_ISREG(os.fstat(0).st_mode)) else 1
    while questions := list(itertools.islice(lines, at_once)):
        answers = generate_answers(network, encoder, questions, CPU_PASS_TOKENS, MAX_ANSWER_TOKENS)
        for question, answer in zip(questions, answers, strict=True):
            cli.print_line(f"> {question}\n{answer}")
    return 0


if __name__ == "__main__":
    cli.make_typer_app(main)()
