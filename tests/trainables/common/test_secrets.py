"""No secret in what is written or printed, and no port that others can reach: by parts, and of whole sweeps."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import platform.sweep.__main__ as sweep
from platform.state.limits import StartOptions
from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from tests.support.environment import ROOT, RunModule, type_settings
from tests.support.other_user import find_breaches
from tests.support.small_sweep import Small
from trainables.common import cli, redaction
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.trial import record
from trainables.trial.runner import TrialRun

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
    monkeypatch.setenv("OTHER_API_KEY", 'dapi-"quoted"')
    short = {"HUGGING_FACE_HUB_TOKEN": "", "WANDB_API_KEY": "loss"}  # which may be a word of any text
    for name, value in {**SECRETS, **short, "MLFLOW_TRACKING_URI": SERVER}.items():
        monkeypatch.setenv(name, value)


def files_with_secrets(*folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in HIDDEN)
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://somebody:word@host/db down", "postgresql://***@host/db down"),
        ("s3://INVENTED:abc/def+ghi@bucket/x and s3://bucket/y", "s3://***@bucket/x and s3://bucket/y"),
        ("see https://host/a?user=b&access_token=word&c=d", "see https://host/a?user=b&access_token=***&c=d"),
        ("a token hf_invented-token, twice hf_invented-token", "a token ***, twice ***"),
        ("invented%2Fsecret%2Bkey and invented/secret+key", "*** and ***"),
        (
            "invented/by-no%40body, invented%2Fby-no%40body, invented~client, dapi-invented, invented-ray",
            "***, ***, ***, ***, ***",
        ),
        (f"the password {PASSWORD} of the server's address", "the password *** of the server's address"),
        ("hub:locuslab/TOFU@main and somebody@host", "hub:locuslab/TOFU@main and somebody@host"),
        ("http://somebody:wo'r\"d@host/x", "http://***@host/x"),
        ("https://a.blob/x?sv=1&sig=abc%3D&se=2", "https://a.blob/x?sv=1&sig=***&se=2"),
        (
            "?X-Amz-Credential=AK/2\\u0026X-Amz-Signature=ab&amp;c=1",
            "?X-Amz-Credential=***\\u0026X-Amz-Signature=***&amp;c=1",
        ),
        ("{'Authorization': 'Basic QWxhZGRpbg=='}", "{'Authorization': 'Basic ***'}"),
        ("sent c29tZWJvZHk6aW52ZW50ZWQvYnktbm9AYm9keQ==, invented%2Fby-no%40body", "sent ***, ***"),
        (json.dumps('dapi-"quoted"') + repr('dapi-"quoted"'), '"***"' + "'***'"),
    ],
)
def test_redaction(secrets: None, text: str, shown: str) -> None:
    assert redaction.redact(text) == shown


@pytest.mark.parametrize("path", ["target", "benchmark.data", "benchmark.revision", "tokenizer", "--storage"])
def test_place_with_a_password_is_refused_without_repeating_it(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    """AWS makes keys with slashes in them."""
    place = f"https://somebody:{PASSWORD}@host/model"
    settings = [*small.settings(), *([] if path == "--storage" else [f"{path}={place}"])]
    location = place if path == "--storage" else str(tmp_path)
    assert cli.run_for_exit_status(lambda: sweep.main("tofu_tiny", set_=settings, dry_run=True, location=location)) == 2
    said = capsys.readouterr().err
    assert "holds a user name or password" in said
    assert path.rpartition(".")[2] + ": " in said
    assert PASSWORD not in said


def test_failing_trial_writes_and_prints_no_secret(
    secrets: None, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Iterator[Any]:
        yield {"phase": "loading"}
        raise RuntimeError(f"401 for {SERVER} with {', '.join(SECRETS.values())}")

    monkeypatch.setattr(TrialRun, "_phases", failing)
    config = Trial(method="ga", target=Model(path="somebody/model"))
    *_, event = TrialRun(config, store).run_and_yield_events()
    message = event["result"]["error"]["message"]
    assert message.startswith("RuntimeError: 401 for http://***@127.0.0.1:9 with ***, ")
    other = config.model_copy(update={"seed": 1})
    record.write_failed_trial(other, store, f"the actor died: {SERVER}, {SECRETS['HF_TOKEN']}")
    assert len(list(store.root.rglob("error.txt"))) == 2
    assert files_with_secrets(store.root) == []


def test_kept_command_has_no_secret(
    secrets: None, small: Small, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lock, the sweep's file and the advice to resume get it."""
    given: list[str] = []
    monkeypatch.setattr(sweep, "run_plan_and_report", lambda state, store, command, options: given.append(command) or 0)
    monkeypatch.setattr("sys.argv", ["sweep", "tofu_tiny", "--address", f"ray://somebody:{PASSWORD}@host:1"])
    assert sweep.run_sweep_under_lock(small.state(store), store, StartOptions()) == 0
    assert given == ["python -m platform.sweep tofu_tiny --address 'ray://***@host:1'"]


@contextmanager
def watch_ports(place: Path) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Collect where the processes of a sweep listen, port and address, until the block ends. Its storage: `place`/runs.

    As root also what another user of the machine can do, once a trial runs: other_user.py says it.
    """
    found: dict[str, str] = {}
    told: dict[str, Any] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            started = [child for child in psutil.Process().children() if "platform.sweep" in child.cmdline()]
            for process in (one for parent in started for one in (parent, *parent.children(recursive=True))):
                with suppress(psutil.Error):
                    opened = [one.laddr for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
                    found.update({str(port): address for address, port in opened})
            if os.geteuid() == 0 and not told and any(place.glob("runs/trials/*/progress.json")):
                command = [sys.executable, str(ROOT / "tests/support/other_user.py"), str(place)]
                command += [f"127.0.0.1:{port}" for port in found]
                told.update(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found, told
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_sweep_under_secrets_keeps_them_and_lets_nobody_in(
    trial_inputs: Any, run_module: RunModule, tmp_path: Path
) -> None:
    """An unreachable server with a password in its address, Ray's own logs included; then a sync into SQLite.

    It listens on loopback alone, and another user can read nothing of the storage and of Ray's files, and call nothing
    at a port.
    """
    settings = (*small_sweep.write_inputs(trial_inputs, tmp_path), *SETTINGS)
    arguments = ["tofu_tiny", *type_settings(settings), "--only=method=ga"]
    place = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # sockets have short paths
    place.chmod(0o755)
    (place / "r").mkdir()
    store, logs = place / "runs", place / "r"
    away = {"MLFLOW_TRACKING_URI": SERVER, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
    quiet = {**SECRETS, "OMP_NUM_THREADS": "1", "TMPDIR": str(logs)}
    try:
        with watch_ports(place) as (ports, told):
            done = run_module("platform.sweep", *arguments, f"--storage={store}", timeout=400, **quiet, **away)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "MLflow is behind" in done.stdout
        assert not any(secret in done.stdout + done.stderr for secret in HIDDEN)
        assert list(logs.rglob("*.log"))
        assert files_with_secrets(store, logs) == []
        assert ports, "no socket of Ray was seen"
        assert {address.removeprefix("::ffff:") for address in ports.values()} <= {"127.0.0.1", "::1"}
        assert os.geteuid() != 0 or find_breaches(told) == []
        synced = run_module("platform.tracking", "sync", "tofu_tiny", f"--storage={store}", **SECRETS)
        assert synced.returncode == 0, synced.stderr
        assert (store / "mlflow.db").is_file()
        assert not any(secret in synced.stdout + synced.stderr for secret in HIDDEN)
        assert files_with_secrets(store) == []
    finally:
        shutil.rmtree(place, ignore_errors=True)
