"""trainables.chat: what a model says to typed questions, by its chat template."""

import importlib
import io
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from tests.support import tiny, tracked_store
from tests.support.starts import assert_refused, invoke
from trainables import chat
from trainables.storage import atomic_files
from trainables.storage.file_names import WEIGHTS
from trainables.storage.opening import open_storage

TEMPLATE = "{% for turn in messages %}[{{ turn['content'] }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
QUESTION, LONGER = "Where is the key?", "Who has written the longest of the books about the key?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.write_model(tmp_path_factory.mktemp("model") / "mine", layers=1)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def restate(model: Path, question: str, prompt: str = "[{}]>") -> str:
    """What is printed of a question and its answer, which `generate` gives to this question alone."""
    tokenizer = tiny.tokenizer()
    network: Any = AutoModelForCausalLM.from_pretrained(model)
    ids = tokenizer(prompt.format(question), add_special_tokens=prompt[-1] == "]", return_tensors="pt")
    said = network.generate(**ids, do_sample=False, max_new_tokens=200)[0, ids["input_ids"].shape[1] :]
    return f"> {question}\n{chat.cli.escape_controls(tokenizer.decode(said, skip_special_tokens=True).strip())}\n"


def test_a_folder_and_a_trial_are_asked(model: Path, object_store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Questions are options or lines, answered as each alone; a trial's exported model comes before its weights."""
    for place in (tmp_path / "exports" / "abc", tmp_path / "trials" / "def" / WEIGHTS):
        place.parent.mkdir(parents=True)
        place.symlink_to(model)
    expected = (first := restate(model, QUESTION)) + restate(model, LONGER)
    for name, many in ((str(model), 9), ("abc", 1), ("def", 1)):  # 9: more than are answered together
        done = invoke(chat.main, name, "--storage", tmp_path, *("--ask", QUESTION, "--ask", LONGER) * many)
        assert (done.exit_code, done.stdout) == (0, expected * many), name
    for name, value in {**object_store, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    store, one = open_storage("s3://bucket/chat"), tracked_store.TRIALS["finished"]
    tracked_store.write_result(store, one, "finished")
    shutil.copytree(model, store.trial(one.id()) / WEIGHTS)
    store.push_trial(one.id())
    shutil.rmtree(store.root)  # what another machine has of it
    for asked in ((one.id(), "--storage", "s3://bucket/chat"), (model, "--template", "llama2")):
        assert invoke(chat.main, *asked, "--ask", QUESTION).stdout == restate(model, QUESTION, "[INST] {} [/INST]")
    lines = f"{QUESTION}\n\n{LONGER}\n"
    done = CliRunner().invoke(chat.cli.make_typer_app(chat.main), [str(model)], input=lines)
    assert (done.exit_code, done.stdout) == (0, expected)
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(read))
    monkeypatch.setattr(sys, "stdout", said := io.StringIO())
    os.write(write, f"{QUESTION}\n".encode())
    talk = threading.Thread(target=chat.main, args=(str(model),), daemon=True)
    talk.start()
    deadline = time.monotonic() + 120
    while said.getvalue() != first:  # it waits for no further question
        assert time.monotonic() < deadline, said.getvalue()
        time.sleep(0.05)
    os.close(write)
    talk.join(120)
    assert not talk.is_alive()


@pytest.mark.parametrize("command", [("export", "--output", "out"), ("chat",), ("stress", "--attacks", "prefix")])
def test_a_trial_is_named_by_its_id_or_by_its_label(command: tuple[str, ...], tmp_path: Path) -> None:
    store = tracked_store.write_store(tmp_path / "runs")
    sweep, one = tracked_store.write_sweep(store), tracked_store.TRIALS["finished"]
    main = importlib.import_module(f"trainables.{command[0]}").main
    for name in (one.id(), one.label()):
        done = invoke(main, name, *command[1:], "--storage", store.root)
        assert_refused(done, f"the weights of trial {one.id()} were not kept")
    other = one.model_copy(update={"training": one.training.model_copy(update={"lr": 1e-3})})
    tracked_store.write_result(store, other, "finished")
    document = sweep.model_dump(mode="json") | {"trials": [*sweep.trials, other.id()]}
    atomic_files.write_json(store.sweep("tiny", sweep.hash), document)
    done = invoke(main, one.label(), *command[1:], "--storage", store.root)
    told = f"2 trials are called '{one.label()}'; name one by its id: {one.id()}, {other.id()}\n"
    assert (done.exit_code, done.stderr) == (2, f"error: ID: {told}")


def test_what_cannot_be_asked_is_told(tmp_path: Path) -> None:
    folder, code = (tiny.write_model(tmp_path / name, layers=1) for name in ("mine", "code"))
    named = {"model_type": "odd", "auto_map": {"AutoConfig": "odd.Config", "AutoModelForCausalLM": "odd.Model"}}
    atomic_files.write_json(code / "config.json", named)
    (code / "odd.py").write_text(f"open('{tmp_path}/ran', 'w')")
    told = {"abc": "no result of a trial 'abc'", folder: "has no chat template", code: "it needs code"}
    for name, words in told.items():
        done = CliRunner().invoke(
            chat.cli.make_typer_app(chat.main), [str(name), f"--storage={tmp_path}"], input="yes\n" * 9
        )
        assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output
    assert not (tmp_path / "ran").exists()
