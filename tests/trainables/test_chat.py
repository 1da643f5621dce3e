"""trainables.chat: what a model says to typed questions, by its chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from tests.support import tiny
from tests.support.starts import invoke
from trainables import chat
from trainables.storage.names import WEIGHTS

TEMPLATE = "{% for turn in messages %}[{{ turn['content'] }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
QUESTION = "Where is the key?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.write_model(tmp_path_factory.mktemp("model") / "mine", layers=1)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def restate(model: Path) -> str:
    tokenizer = tiny.tokenizer()
    network: Any = AutoModelForCausalLM.from_pretrained(model)
    ids = tokenizer(f"[{QUESTION}]>", add_special_tokens=False, return_tensors="pt")
    said = network.generate(**ids, do_sample=False, max_new_tokens=200)[0, ids["input_ids"].shape[1] :]
    return tokenizer.decode(said, skip_special_tokens=True).strip()


def test_a_folder_and_a_trial_are_asked(model: Path, tmp_path: Path) -> None:
    """Questions are options, or lines that are typed; a trial's exported model comes before its kept weights."""
    for place in (tmp_path / "exports" / "abc", tmp_path / "trials" / "def" / WEIGHTS):
        place.parent.mkdir(parents=True)
        place.symlink_to(model)
    expected = f"> {QUESTION}\n{chat.cli.escape_controls(restate(model))}\n"
    for name in (str(model), "abc", "def"):
        done = invoke(chat.main, name, "--storage", tmp_path, "--ask", QUESTION)
        assert (done.exit_code, done.stdout) == (0, expected), name


def test_what_cannot_be_asked_is_told(tmp_path: Path) -> None:
    folder = tiny.write_model(tmp_path / "mine", layers=1)
    for name, words in (("abc", "the weights of trial abc were not kept"), (str(folder), "has no chat template")):
        done = invoke(chat.main, name, "--storage", tmp_path, "--ask", QUESTION)
        assert done.exit_code == 2
        assert words in done.output
