"""Model folders, rows, storages and cluster files of strangers: refused in one line with exit status 2, or told."""

import json
import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import platform.status as status
import platform.sweep.__main__ as sweep_command
from analysis import report
from platform.cluster import __main__ as cluster
from platform.plan.build import make_plan
from search_spaces.schema.sweep import import_sweep
from tests.support import tiny
from tests.support.own_rows import settings
from tests.support.starts import assert_refused, in_process, invoke
from trainables import run, stress
from trainables.common import deadlines, fingerprints
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.data import fictional
from trainables.data.conversations import make_encoder
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.training import model_files

SYSTEM = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no system') }}{% endif %}"
SYSTEM += "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("given")
    tiny.write_model(place / "model", layers=1)
    tiny.own(place)
    return place


@pytest.fixture
def folder(given: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(given / "model", tmp_path / "model"))


def configure(folder: Path, name: str, **values: Any) -> None:
    file = folder / f"{name}.json"
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | values))


def write(file: Path, content: bytes | str) -> Path:
    """Return a file of this content, a link if that is a path, a pipe if it is empty."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    if not content:
        os.mkfifo(file)
    elif isinstance(content, str):
        file.symlink_to(content)
    else:
        file.write_bytes(content)
    return file


def write_bomb(file: Path, _: object) -> Path:
    column = pyarrow.array(["What is it?"] * 1_500_000).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"question": column, "answer": column}), file, compression="zstd")
    assert file.stat().st_size < 10**5
    return file


def shorten(value: object) -> str:
    return getattr(value, "__module__", str(value))[:30]  # a function's text has its address


def dry_run(given: Path, **changed: Path) -> Any:
    files = {part: given / f"{part}.jsonl" for part in ("forget", "retain")} | changed
    words = [word for one in settings(files.pop("target", given / "model"), files) for word in ("--set", one)]
    return in_process("own", *words, "--storage", given / "runs", "--dry-run")


ALIASES = [f"{b}: &{b} [{','.join(9 * ['*' + a])}]" for a, b in pairwise("abcdefghij")]
BOMB = "\n".join(["a: &a [x]", *ALIASES]).encode()
LOOP = b"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
TEMPLATE = "model/chat_template.jinja"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", "", "is no file; give one with rows"),
        ("x.json", b"[" * 10**5, "maximum recursion depth exceeded"),
        ("x.jsonl", b'{"question":' + b"[" * 10**5, "line 1 is not JSON"),
        ("x.jsonl", b"\xff", "cannot be read as jsonl: 'utf-8' codec can't decode"),
        ("x.parquet", write_bomb, "unfolds to over 1000000 rows"),
        ("model/vocab.json", "/gone", "vocab.json' is a link to nothing"),
        ("model/model.safetensors", "/gone", "model.safetensors (a link to nothing)"),
        ("model/extra.json", "/dev/zero", "extra.json' is no file but a pipe"),
        (TEMPLATE, b"{% include '/etc/passwd' %}", "refuses the turns: no loader"),
        (TEMPLATE, b"{{ messages[0].nothing.at.all }}", "has no attribute 'nothing'"),
        (TEMPLATE, LOOP, "does not end within 2 s"),
        (TEMPLATE, b"{{ 'a' * 4000000 }}", "it writes 4000000 characters"),
        (TEMPLATE, SYSTEM.encode(), "refuses the turns: it demands a system turn in front"),
    ],
    ids=shorten,
)
def test_rows_and_models(
    name: str, content: Any, said: str, given: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "TEMPLATE_RENDER_TIMEOUT", 2.0)
    make: Any = content if callable(content) else write
    file: Path = make(folder.parent / name, content)
    changed = {"target": folder} if file.parent == folder else {"forget": file}
    assert_refused(dry_run(given, **changed), said)


@pytest.mark.parametrize(
    ("command", "words", "content", "said"),
    [
        (run.main, "x.json", "/dev/zero", "is no file but a pipe"),
        (run.main, "x.json", b'{"a":' + b"[" * 10**5, "holds no JSON object"),
        (cluster.main, "check x.json", "", "is no file but a pipe"),
        (cluster.main, "check x.json", b"[" * 1500, "is not YAML"),
        (cluster.main, "check x.json", BOMB, "its aliases unfold to over "),
        (sweep_command.main, "tofu_tiny --dry-run --set @x.json", BOMB, "its aliases unfold to over "),
        (stress.main, "x --attack x.json", "", "is no file but a pipe"),
        (report.main, "x --storage .", "", "is no file but a pipe"),
        (status.main, "x --storage .", "", "is no file but a pipe"),
    ],
    ids=shorten,
)
def test_other_files(command: Any, words: str, content: Any, said: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ("x.json" if words.endswith("x.json") else "sweeps/x-01234567.json"), content)
    assert_refused(invoke(command, *words.split()), said)


def test_a_template_may_demand_the_system_turn_that_every_row_has(folder: Path) -> None:
    configure(folder, "tokenizer_config", chat_template=SYSTEM + "</s>")
    encoder = make_encoder("chat", model_files.load_tokenizer(Model(path=str(folder))))
    (example,) = encoder.encode([((("system", "Be kind."), ("user", "Where?")), "Here.")], max_length=99)
    assert encoder.tokenizer.decode(example.input_ids) == "<system>Be kind.<user>Where?<assistant>Here.</s>"


def test_an_end_token_that_the_model_alone_names(given: Path, folder: Path) -> None:
    configure(folder, "generation_config", eos_token_id=[1, 40])
    tokenizer = model_files.load_tokenizer(Model(path=str(folder), tokenizer=str(given / "model")))
    assert make_encoder("plain", tokenizer).end_tokens == {1, 40}


def test_a_fingerprint_is_of_all_that_a_tokenizer_reads(folder: Path) -> None:
    """A template called `default` counts in the place of chat_template.jinja; files elsewhere are refused."""
    read = fingerprints.MODEL_PATTERNS, fingerprints.TOKENIZER_PATTERNS, fingerprints.ALL_FILES_PATTERNS
    before = {fingerprints.hash_folder(folder, patterns) for patterns in read}
    write(folder / "additional_chat_templates" / "default.jinja", b"x")
    assert before.isdisjoint(fingerprints.hash_folder(folder, patterns) for patterns in read)
    configure(folder, "tokenizer_config", fast_tokenizer_files=["../x/tokenizer.4.0.0.json"])
    with pytest.raises(InputError, match="names fast_tokenizer_files outside the folder"):
        model_files.load_tokenizer(Model(path=str(folder)))


def test_settings_that_change_greedy_answers_are_told(given: Path, folder: Path) -> None:
    odd = {"max_time": 0.1, "no_repeat_ngram_size": 1, "num_beams": 4, "repetition_penalty": 1.2}
    configure(folder, "generation_config", temperature=9.0, length_penalty=1.0, **odd)
    told = f"target: its generation_config.json sets {', '.join(odd)}: its answers are greedy under these"
    assert told in dry_run(given, target=folder).stdout
    assert "generation_config" not in dry_run(given).stdout


def test_a_large_file_is_hashed_whole_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept counts until the file is written again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fingerprints, "MIN_CACHED_HASH_FILE_BYTES", 2**20)
    file = write(tmp_path / "model.safetensors", bytes(2**27))
    first = fingerprints.hash_folder(tmp_path, ["*.safetensors"])
    (kept,) = (tmp_path / "cache" / "unlearn").iterdir()
    kept.write_bytes(bytes(32))
    assert fingerprints.hash_folder(tmp_path, ["*.safetensors"]) != first
    with file.open("r+b") as stream:
        stream.seek(2**21 + 5)  # between the places that were looked at
        stream.write(b"x")
    assert len({first, fingerprints.hash_folder(tmp_path, ["*.safetensors"])}) == 2
    assert len(list((tmp_path / "cache" / "unlearn").iterdir())) == 2


def test_rows_and_models_that_are_made_once_are_those_that_were_written(store: Storage) -> None:
    """By an earlier start: a plan and a trial look at them, after a swap of equal size."""
    sweep = import_sweep("quickstart")
    plan = make_plan(sweep, store)
    (benchmark,), recipe = plan.benchmarks.values(), plan.recipes[0]
    fictional.write_fictional_authors(Path(benchmark.data), **sweep.fictional.model_dump())  # type: ignore[union-attr]
    tiny.write_model(store.model(recipe.id()), layers=1)
    for folder in (Path(benchmark.data), store.model(recipe.id())):
        atomic_files.write_recipe_file(folder, {})
    make_plan(sweep, store)
    for field, file in (
        ("benchmark.data", Path(benchmark.data) / "full.json"),
        ("target", store.model(recipe.id()) / "model.safetensors"),
    ):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"x")
        with pytest.raises(InputError, match=f"{field}: '.*' holds other files than were written there"):
            make_plan(sweep, store)
        file.write_bytes(content)


LONG = """
import pathlib, sys, time
from trainables.common import cli
def main():
    for number in range(3):
        print("x" * 10**5, flush=True)
    pathlib.Path(sys.argv[1]).touch()
    return 0
sys.exit(cli.run_for_exit_status(main))
"""


@pytest.mark.parametrize(("output", "status", "said"), [("| head -c 1", 0, ""), ("> /dev/full", 1, "No space left")])
def test_output_that_nobody_takes(output: str, status: int, said: str, tmp_path: Path, root: Path) -> None:
    """Who reads has gone: the work is done to its end, in silence. A full disk is told once."""
    (tmp_path / "long.py").write_text(LONG)
    line = f"set -o pipefail; {sys.executable} {tmp_path}/long.py {tmp_path}/done {output}"
    where = {"cwd": root, "env": {**os.environ, "PYTHONPATH": str(root)}}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, **where)
    assert (done.returncode, (tmp_path / "done").exists()) == (status, status == 0), done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


# Waits for what is outside: told of, and ended by their deadline


def test_a_call_gives_its_value_or_its_error_or_is_told_of_and_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadlines, "NOTICE_SECONDS", 0.1)
    assert deadlines.call_within(5, "a value", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        deadlines.call_within(5, "an error", lambda: 1 / 0)
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="a sleeper has not answered in 1 s"):
        deadlines.call_within(1, "a sleeper", lambda: time.sleep(60))
    assert time.monotonic() - begun < 5
    assert capsys.readouterr().err == "waiting for a sleeper, 1 s left\n"
