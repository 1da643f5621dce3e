"""`python -m trainables.chat ID|DIR`: asks a model what you type, each question by itself, and prints what it says."""

import sys
from typing import Annotated, Any

import typer

from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import resolve_trial_id


@cli.wrap_as_command
def main(
    model: Annotated[str, typer.Argument(metavar="ID|DIR", help="A trial's id or name, a model folder or a hub id.")],
    ask: Annotated[list[str] | None, typer.Option(help="A question, several times if you like; else you type.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Chat with a model: greedy answers by its chat template, without memory of earlier questions.

    Example: python -m trainables.chat ID --ask "Where is the key?"
    """
    cli.silence_libraries()
    import torch
    from transformers import pipeline

    from trainables.data.conversations import make_encoder
    from trainables.training.model_files import load_model_and_tokenizer
    from trainables.trial.export.model_folder import fetch_weights

    place = typed_paths.expand_home(model)
    if not place.is_dir() and "/" not in model:
        store = open_storage(location, writable=False)
        trial_id = resolve_trial_id(model, store)
        place = store.root / "exports" / trial_id
        place = place if place.is_dir() else fetch_weights(trial_id, store)
    precision = "bf16" if torch.cuda.is_available() else "fp32"  # that of trials, before and after alike
    network, tokenizer = load_model_and_tokenizer(Model(path=str(place), attention="eager"), precision, "MODEL")
    if not tokenizer.chat_template:
        raise InputError(f"MODEL: the tokenizer of '{model}' has no chat template to chat by")
    encoder, chat = make_encoder("chat", tokenizer), pipeline("text-generation", network, tokenizer=tokenizer)
    settings: dict[str, Any] = {"add_special_tokens": False, "do_sample": False, "max_new_tokens": 200}
    for question in ask or map(str.strip, sys.stdin):
        (said,) = chat(encoder.render_prompt(question), return_full_text=False, **settings)
        cli.print_line(f"> {question}\n{said['generated_text'].strip()}")
    return 0


if __name__ == "__main__":
    cli.make_app(main)()
