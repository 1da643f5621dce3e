"""Folders, files and servers of strangers: a word soon, an end, one clear line; nothing run, written or given away.

`make test-faults SEED=N ROUNDS=M` takes other seeds and so many; a problem is told with its seed.
"""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.faults.test_fuzz_commands import dice_of, find_problem
from tests.support import tiny
from tests.support.environment import ROOT, clean_environment
from tests.support.strange_server import MANNERS, serve_strangely
from tests.support.tracked_store import write_store

pytestmark = pytest.mark.faults
WORD_SECONDS, END_SECONDS, INTERRUPT_SECONDS = 10.0, 75.0, 5.0
"""From the first request (at most 120 s after the start) to a word and to the end, and from Ctrl-C to the end."""
PASSWORD = "pass'word\"of-nobody"
SECRETS = {"HF_TOKEN": "hf_invented-token", "AWS_SECRET_ACCESS_KEY": "invented/secret+key"}
HUB, SERVER, SECRET_SERVER = "HF_ENDPOINT", "http://{server}", f"http://somebody:{PASSWORD}@{{server}}"
COMMANDS = {  # what is typed, the variable that names the server, and its value
    "trainables.evaluate --model somebody/tiny --split forget05 --output {place}/out.json": (HUB, SERVER),
    "trainables.chat somebody/tiny --ask Hello": (HUB, SERVER),
    "platform.sweep own {rows} --set target=somebody/tiny --storage {place}/new": (HUB, SERVER),
    "platform.tracking sync tofu_tiny --storage {place}/runs": ("MLFLOW_TRACKING_URI", SECRET_SERVER),
    "platform.status own --storage s3://bucket/runs": ("AWS_ENDPOINT_URL", SERVER),
    "platform.sweep quickstart --storage {place}/new --address {server}": ("AWS_ACCESS_KEY_ID", "INVENTED"),
}
FOLDERS = (
    "platform.sweep own {rows} --set target={place}/model --dry-run --storage {place}/new",
    "trainables.evaluate --benchmark own --model {place}/model {sources} --output {place}/out.json",
    "platform.status tofu_tiny --storage {place}/runs",
    "analysis.report tofu_tiny --storage {place}/runs --output {place}/out",
    "platform.tracking sync tofu_tiny --storage {place}/runs",
    "platform.cluster check {place}/cluster.yaml",
    "platform.sweep own --cluster {place}/cluster.yaml",
)
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
TEMPLATES = (LOOP * 9, "{% for a in range(90000) %}{{ 'x' * 4000 }}{% endfor %}", "{% if %}", "{{ x.y.z }}")
TEMPLATES += ("{{ raise_exception('\x1b[2J') }}", "{% include '/etc/passwd' %}", "{{ messages.__class__.__mro__ }}")
TEXTS = ("../../../out", "\x1b[2J", "$(touch ran)", "'; touch ran; '", "x" * 100_000, "\u202e", "%s", "\x00")
TEXTS += TEMPLATES
TEXTS += ("!!python/object/apply:os.system ['touch ran']", "[" * 5000, "&a [*a]", "/etc/passwd", "=cmd|'x'!A0", "<b>")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a storage, a model, rows and a cluster file as they should be, which each round copies."""
    place = tmp_path_factory.mktemp("good")
    write_store(place / "runs")
    tiny.write_model(place / "model")
    tiny.own(place)
    shutil.copy(ROOT / "clusters" / "rehearsal.yaml", place / "cluster.yaml")
    return place


def change_file(place: Path, typed: str, dice: random.Random) -> str:
    """Change one of the files that a command reads; return what was done."""
    kinds = {"cluster": ["*.yaml"], "runs": ["runs/**/*.json"], "model": ["model/*.json", "*.jsonl"]}
    patterns = next(found for name, found in kinds.items() if f"{{place}}/{name}" in typed)
    file, text = dice.choice([path for pattern in patterns for path in sorted(place.glob(pattern))]), dice.choice(TEXTS)
    content = file.read_text(encoding="utf-8")
    values = [one for one in re.findall(r'(?<=: ")[^"]+(?=")|(?<=: )[a-z0-9.-]+$', content, re.MULTILINE) if one]
    if patterns[0].startswith("model") and dice.random() < 0.5:
        file, text, way = place / "model" / "chat_template.jinja", dice.choice(TEMPLATES), "template"
        file.write_text(text)
    elif (way := dice.choice(("value", "value", "link", "whole"))) == "value" and values:
        written = json.dumps(text)[1:-1] if file.suffix != ".yaml" else text
        file.write_text(content.replace(dice.choice(values), written), encoding="utf-8")
    elif way == "link":
        file.unlink()
        file.symlink_to(dice.choice(("/etc/passwd", "/nowhere", file.name, "..")))
    else:
        file.write_text(text, encoding="utf-8")
    return f"{file.relative_to(place)}: {way} {text[:40]!r}"


def find_wrong(typed: str, place: Path, server: str, asked: threading.Event, stop: bool, **env: str) -> str:
    """Run a command; return what is wrong with how it ended. `asked`: its wait has begun; `stop`: then by Ctrl-C."""
    files = {name: place / f"{name}.jsonl" for name in ("forget", "retain", "eval")}
    rows = " ".join(f"--set {name}={file}" for name, file in files.items())
    sources = " ".join(f"--source {name}={file}" for name, file in files.items())
    words = typed.format(place=place, server=server, rows=rows, sources=sources).split()
    known = {"HOME": str(place / "home"), "HF_HOME": str(place / "home"), "AWS_DEFAULT_REGION": "us-east-1"}
    environment = clean_environment(**known | SECRETS | env, NO_COLOR="1")
    said, first, word, stopped = place / "home" / "said", 0.0, 0.0, 0.0
    with said.open("wb") as stream:
        begun = time.monotonic()
        command = [sys.executable, "-m", *words]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stream, stderr=stream)
        while process.poll() is None and (now := time.monotonic()) < (first or begun + 120.0) + END_SECONDS:
            first = first or (now if asked.is_set() else 0.0)
            word = word or (now if first and said.stat().st_size else 0.0)
            if stop and first and not stopped and now > first + 3:
                stopped = now
                process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        ended, status = time.monotonic(), process.poll()
        process.kill()
        process.wait()
    text = said.read_text(encoding="utf-8", errors="replace")
    shown = json.dumps(text)[1:-1]
    if any(form in text + shown for form in (*SECRETS.values(), PASSWORD, json.dumps(PASSWORD)[1:-1], "\x1b")):
        return f"a secret or an escape: {text[-300:]}"
    if stopped and status in (130, -signal.SIGINT) and ended < stopped + INTERRUPT_SECONDS and "Traceback" not in text:
        return ""
    if first and (word or ended) > first + WORD_SECONDS:
        return f"no word for {(word or ended) - first:.0f} s"
    return find_problem(status, text)


def list_files(folder: Path) -> set[Path]:
    """Return the files that a command may not make: those that are neither its results nor a library's cache."""
    made = ("out", "out.json", "new", "home", "runs")
    return {path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in made}


def test_servers(good: Path, tmp_path: Path) -> None:
    """12 of them, two each of six commands, one time in three with Ctrl-C."""
    problems = []
    for seed, dice in dice_of(12):
        place = tmp_path / str(seed)
        shutil.copytree(good, place)
        (place / "home").mkdir()
        typed, (variable, value) = list(COMMANDS.items())[seed % len(COMMANDS)]
        manner, stop = dice.choice(MANNERS), dice.random() < 1 / 3
        with serve_strangely(manner) as (server, asked):
            wrong = find_wrong(typed, place, server, asked, stop, **{variable: value.format(server=server)})
        problems += [f"seed {seed}: {manner}, {typed}, Ctrl-C {stop}: {wrong}"] if wrong else []
    assert not problems, "\n".join(problems)


def test_folders(good: Path, tmp_path: Path) -> None:
    """60 of them: in one file of JSON, YAML or rows one or two values are a stranger's, or the file is a link."""
    problems = []
    for seed, dice in dice_of(60):
        place, typed = tmp_path / str(seed), dice.choice(FOLDERS)
        shutil.copytree(good, place)
        (place / "home").mkdir()
        done_to_it, before = change_file(place, typed, dice), list_files(tmp_path)
        wrong = find_wrong(typed, place, "", threading.Event(), False)
        wrong = wrong or ", ".join(map(str, list_files(place) - before | set(ROOT.glob("ran"))))
        problems += [f"seed {seed}: {typed}, {done_to_it}: {wrong}"] if wrong else []
        shutil.rmtree(place)
    assert not problems, "\n".join(problems)
