"""Secrets stay where they are, nothing is unpickled, names stay inside the storage, nothing listens to the network."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import small_sweep
import typer
from small_sweep import Small
from sweep_store import write_sweep
from test_sweep_end_to_end import SETTINGS

import platform.driver as driver
import platform.starting as starting
import platform.sweep as sweep
import platform.tracking as tracking
from analysis import sweeps
from trainables import export, records, redaction, run, trial
from trainables.config import Benchmark, Model, RetainEvaluation, Training, Trial
from trainables.errors import InputError
from trainables.storage import Storage

RunModule = Callable[..., subprocess.CompletedProcess[str]]
SECRETS = {
    "HF_TOKEN": "hf_invented-token",
    "AWS_ACCESS_KEY_ID": "INVENTEDKEYID",
    "AWS_SECRET_ACCESS_KEY": "invented/secret+key",
    "AWS_SESSION_TOKEN": "invented-session",
    "AZURE_CLIENT_SECRET": "invented~client",
    "MLFLOW_TRACKING_PASSWORD": "invented-password",
    "DATABRICKS_TOKEN": "dapi-invented",
    "RAY_AUTH_TOKEN": "invented-ray",
}
PASSWORD = "invented/by-no@body"
SERVER = f"http://somebody:{PASSWORD}@127.0.0.1:9"
HIDDEN = (*SECRETS.values(), PASSWORD)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, "MLFLOW_TRACKING_URI": SERVER}.items():
        monkeypatch.setenv(name, value)


def files_with_secrets(*folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in HIDDEN)
    ]


# Secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://somebody:word@host/db down", "postgresql://***@host/db down"),
        ("s3://INVENTED:abc/def+ghi@bucket/x and s3://bucket/y", "s3://***@bucket/x and s3://bucket/y"),
        ("'http://a:b/c@host' 'somebody@host'", "'http://***@host' 'somebody@host'"),
        ("see https://host/a?user=b&access_token=word&c=d", "see https://host/a?user=b&access_token=***&c=d"),
        ("a token hf_invented-token, twice hf_invented-token", "a token ***, twice ***"),
        ("invented%2Fsecret%2Bkey and invented/secret+key", "*** and ***"),
        (
            "invented/by-no%40body, invented%2Fby-no%40body, invented~client, dapi-invented, invented-ray",
            "***, ***, ***, ***, ***",
        ),
        (f"the password {PASSWORD} of the server's address", "the password *** of the server's address"),
        ("sqlite:////home/somebody@host/runs", "sqlite:////home/somebody@host/runs"),
        ("hub:locuslab/TOFU@main and somebody@host", "hub:locuslab/TOFU@main and somebody@host"),
    ],
)
def test_redaction(secrets: None, text: str, shown: str) -> None:
    assert redaction.redact(text) == shown


def test_short_words_and_unset_variables_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "loss")
    assert redaction.redact("the loss is nan") == "the loss is nan"


@pytest.mark.parametrize("path", ["target", "benchmark.data", "benchmark.revision", "tokenizer"])
def test_place_with_a_password_is_refused_without_repeating_it(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    settings = [*small.settings(), f"{path}=https://somebody:{PASSWORD}@host/model"]
    with pytest.raises(typer.Exit) as ended:
        sweep.main("tofu_tiny", set_=settings, dry_run=True, location=str(tmp_path))
    told = capsys.readouterr().err
    assert ended.value.exit_code == 2
    assert f"{path.rpartition('.')[2]}: holds a user name or password" in told
    assert PASSWORD not in told


def test_storage_address_with_a_key_is_refused_without_repeating_it(capsys: pytest.CaptureFixture[str]) -> None:
    """AWS makes keys with slashes in them."""
    with pytest.raises(typer.Exit) as ended:
        sweep.main("tofu_tiny", dry_run=True, location="s3://INVENTED:abc/def+ghi@bucket/x")
    told = capsys.readouterr().err
    assert ended.value.exit_code == 2
    assert "--storage: the address holds a user name or password" in told
    assert "abc/def" not in told


def test_failing_trial_writes_and_prints_no_secret(
    secrets: None, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Iterator[Any]:
        yield {"phase": "loading"}
        raise RuntimeError(f"401 for {SERVER} with {', '.join(SECRETS.values())}")

    monkeypatch.setattr(trial, "_phases", failing)
    config = Trial(method="ga", target=Model(path="somebody/model"))
    *_, event = trial.run(config, store)
    message = event["result"]["error"]["message"]
    assert message.startswith("RuntimeError: 401 for http://***@127.0.0.1:9 with ***, ")
    other = config.model_copy(update={"seed": 1})
    records.refused(other, store, f"the actor died: {SERVER}, {SECRETS['HF_TOKEN']}")
    assert len(list(store.root.rglob("error.txt"))) == 2
    assert files_with_secrets(store.root) == []


def test_driver_says_no_secret(secrets: None, capsys: pytest.CaptureFixture[str]) -> None:
    driver.say(f"MLflow is behind (no answer from {SERVER}); MLflow: {SERVER}; {SECRETS['AWS_SECRET_ACCESS_KEY']}")
    assert capsys.readouterr().out == (
        "MLflow is behind (no answer from http://***@127.0.0.1:9); MLflow: http://***@127.0.0.1:9; ***\n"
    )


def test_kept_command_has_no_secret(
    secrets: None, small: Small, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lock, the sweep's file and the advice to resume get it."""
    given: list[str] = []
    monkeypatch.setattr(driver, "run", lambda plan, store, *, command: given.append(command) or 0)
    monkeypatch.setattr("sys.argv", ["sweep", "tofu_tiny", "--address", f"ray://somebody:{PASSWORD}@host:1"])
    assert starting.start(small.plan(store), store, starting.Choice(), {}) == 0
    assert given == ["python -m platform.sweep tofu_tiny --address 'ray://***@host:1'"]


def test_sync_prints_no_secret(
    secrets: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking.manifest, "read", lambda name, store: {})
    monkeypatch.setattr(tracking, "sync", lambda sweep, store: 3)
    with pytest.raises(typer.Exit) as ended:
        tracking.main("sync", "tofu_tiny", location=str(tmp_path))
    assert (ended.value.exit_code, capsys.readouterr().out) == (0, "3 trials in http://***@127.0.0.1:9\n")


# Names and paths


@pytest.mark.parametrize("name", ["../../outside", "/etc", "..", ".", "", "a/b", "a\0b"])
def test_storage_gives_no_place_outside_itself(store: Storage, name: str) -> None:
    for place in (store.trial, store.model, store.data, store.evaluation):
        with pytest.raises(InputError, match="it is a path, not a name"):
            place(name)
    if name in ("../../outside", "/etc", "a/b", "a\0b"):
        for place in (store.sweep, store.lock):
            with pytest.raises(InputError, match="it is a path, not a name"):
                place(name, "01234567")


def test_export_takes_an_id_and_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        export.main("../../elsewhere", output=tmp_path / "model", location=str(tmp_path / "runs"))
    assert ended.value.exit_code == 2
    assert "'../../elsewhere' names nothing in" in capsys.readouterr().err


def test_report_of_a_file_that_calls_itself_otherwise_is_refused(tmp_path: Path) -> None:
    """Its name would be the report's folder."""
    store = tmp_path / "runs"
    write_sweep(store, [])
    (file,) = (store / "sweeps").glob("*.json")
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "name": "../../../outside"}))
    with pytest.raises(sweeps.InputError, match="outside-0a1b2c3d inside; give the file that name again"):
        sweeps.find_sweep(file.stem, tmp_path / "runs")


def test_trial_with_paths_everywhere_writes_into_the_storage_alone(house: Any, tmp_path: Path) -> None:
    """Relative places, and fingerprints that would lead out if they named files."""
    small_sweep.cut_short(house.data, tmp_path / "data")
    shutil.copytree(house.target, tmp_path / "model")
    odd = "../../../outside"
    config = Trial(
        method="ga",
        benchmark=Benchmark(
            data=f"{tmp_path}/model/../data", split=house.split, limit=2, fingerprint=f"fictional:{odd}"
        ),
        target=Model(path=f"{tmp_path}/data/../model", fingerprint=f"recipe:{odd}"),
        retain_evaluation=None,
        training=Training(max_steps=1, batch_size=2, max_length=64),
    )
    (tmp_path / "config.json").write_text(config.model_dump_json())
    before = _tree(tmp_path)
    assert run._run(tmp_path / "config.json", str(tmp_path / "a" / "b" / "runs")) == 0
    written = _tree(tmp_path) - before
    place = tmp_path / "a" / "b" / "runs" / "trials" / config.id()
    assert place / "result.json" in written
    assert {path for path in written if path.is_file() and path.parent != place} == set()


def _tree(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_reference_evaluation_is_named_by_a_hash(store: Storage) -> None:
    """Whatever a configuration says about the evaluation it was given."""
    odd = RetainEvaluation(path="/etc/passwd", fingerprint="../../x")
    config = Trial(method="ga", target=Model(path="a/b", fingerprint="../../y"), retain_evaluation=odd)
    assert store.trial(config.id()).parent == store.root / "trials"


# What is read


def _nodes(root: Path) -> Iterator[tuple[str, ast.AST]]:
    for package in ("platform", "search_spaces", "trainables", "analysis", "bench"):
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{path.relative_to(root)}:{getattr(node, 'lineno', 0)}", node


def _imported(node: ast.AST) -> set[str]:
    """Top-level names of the packages that a statement imports."""
    if isinstance(node, ast.Import):
        return {name.name.split(".")[0] for name in node.names}
    return {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _harmful(called: str, given: dict[str | None, str]) -> bool:
    return (
        called.rpartition(".")[2] in ("read_pickle", "unsafe_load", "full_load")
        or called == "Tuner.restore"
        or given.get("allow_pickle", "False") != "False"
        or given.get("trust_remote_code", "False") != "False"
        or (called == "torch.load" and given.get("weights_only") != "True")
    )


def test_nothing_in_the_code_unpickles_or_runs_what_it_reads(root: Path) -> None:
    """Pickles and their like are not imported; torch.load reads weights only; code from the hub is not trusted."""
    found, calls = [], set()
    for place, node in _nodes(root):
        if _imported(node) & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}:
            found.append(place)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            calls.add(called)
            if _harmful(called, {word.arg: ast.unparse(word.value) for word in node.keywords}):
                found.append(place)
    assert found == []
    assert {"torch.load", "AutoModelForCausalLM.from_pretrained", "tune.Tuner"} <= calls


# Whole sweeps


@pytest.mark.slow
def test_sweep_under_secrets_keeps_them_and_listens_on_loopback_only(
    house: Any, run_module: RunModule, tmp_path: Path
) -> None:
    """An unreachable server with a password in its address, Ray's own logs included; then a sync into SQLite."""
    shutil.copytree(house.target, tmp_path / "models" / "full")
    shutil.copytree(house.retain, tmp_path / "models" / "retain75")
    small_sweep.cut_short(house.data, tmp_path / "data")
    settings = (f"benchmark.data={tmp_path / 'data'}", f"models={tmp_path / 'models'}", *SETTINGS)
    arguments = ["tofu_tiny", *(f"--set={setting}" for setting in settings), "--only=method=ga"]
    logs, store = Path(tempfile.mkdtemp(prefix="r", dir="/tmp")), tmp_path / "runs"  # sockets have short paths
    away = {"MLFLOW_TRACKING_URI": SERVER, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
    quiet = {**SECRETS, "OMP_NUM_THREADS": "1", "RAY_TMPDIR": str(logs)}
    try:
        with Watch() as watch:
            done = run_module("platform.sweep", *arguments, f"--storage={store}", timeout=400, **quiet, **away)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "MLflow is behind" in done.stdout
        assert not any(secret in done.stdout + done.stderr for secret in HIDDEN)
        assert list(logs.rglob("*.log"))
        assert files_with_secrets(store, logs) == []
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    assert watch.seen, "no socket of Ray was seen"
    assert {address for address in watch.seen if address.removeprefix("::ffff:") not in ("127.0.0.1", "::1")} == set()
    synced = run_module("platform.tracking", "sync", "tofu_tiny", f"--storage={store}", **SECRETS)
    assert synced.returncode == 0, synced.stderr
    assert (store / "mlflow.db").is_file()
    assert not any(secret in synced.stdout + synced.stderr for secret in HIDDEN)
    assert files_with_secrets(store) == []


class Watch:
    """Where the processes of a sweep listen, looked at until the block ends."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.over.wait(0.5):
            for process in psutil.Process().children():
                if "platform.sweep" in process.cmdline():
                    for one in (process, *process.children(recursive=True)):
                        self.seen |= self._listening(one)

    def _listening(self, process: psutil.Process) -> set[str]:
        try:
            found = process.net_connections(kind="inet")
        except psutil.Error:
            return set()
        return {one.laddr[0] for one in found if one.status == psutil.CONN_LISTEN}
