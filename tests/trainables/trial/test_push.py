"""trainables.export --push: an exported folder on the hub, private, without a text or token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests.support.hub_server import TOKEN, HubServer, serve
from tests.support.starts import invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS, SERVER
from tests.trainables.trial import test_export
from trainables import export
from trainables.benchmarks import tofu
from trainables.config.trial import Trial
from trainables.trial.export import model_card, model_folder

kept, exported = test_export.kept, test_export.exported


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that this process asks with a token, without Xet; other secrets are set as well."""
    from huggingface_hub import constants

    with serve(tmp_path / "hub") as server:
        (tmp_path / "hub" / "models").mkdir(parents=True)
        for name, value in {**SECRETS, "HF_TOKEN": TOKEN, "MLFLOW_TRACKING_URI": SERVER}.items():
            monkeypatch.setenv(name, value)
        for name, value in {
            "ENDPOINT": server.url,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
            "HF_TOKEN_PATH": str(tmp_path / "no-token"),
            "HF_STORED_TOKENS_PATH": str(tmp_path / "no-tokens"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        yield server


def push(kept: Any, *words: object) -> Any:
    store, trial_id = kept
    return invoke(export.main, trial_id, "--storage", store.root, "--push", *words)


def test_what_is_sent(kept: Any, hub: HubServer, trained_inputs: Any, tmp_path: Path) -> None:
    """A second time, another way: made public, from the folder that is there."""
    store, trial_id = place = test_export.doctored(kept, tmp_path)
    done = push(place, "somebody/forgetful")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"uploaded: {hub.url}/somebody/forgetful, private\n")
    assert hub.private == {"somebody/forgetful"}
    sent, folder = hub.home / "models/somebody/forgetful", store.root / "exports" / trial_id
    names = {path.name for path in sent.iterdir()}
    assert names >= {"README.md", "unlearning.json", "config.json", "model.safetensors", "tokenizer.json"}
    assert all((sent / name).read_bytes() == (folder / name).read_bytes() for name in names)
    data: Any = ModelCard.load(sent / "README.md").data
    assert (data.model_name, data.tags) == ("gru-npo-forget25-g0.5-t1-s0", ["unlearning", "npo", "gru"])
    forget, retain = tofu.TofuBenchmark().training_rows(test_export.configuration(trained_inputs).benchmark)
    texts = [row[column] for row in (*forget, *retain) for column in ("question", "answer")]
    for content in (path.read_bytes() for path in sent.iterdir()):
        assert not [text for text in (*texts, *HIDDEN, TOKEN, str(store.root)) if text.encode() in content]

    done = push(place, "somebody/open", "--public")
    assert done.exit_code == 0, done.output
    assert f"{folder}: it was exported before, and is uploaded as it is\n" in done.stdout
    assert hub.private == {"somebody/forgetful"}


def test_the_hubs_own_data_are_named(kept: Any, exported: Path) -> None:
    store, trial_id = kept
    config = Trial.model_validate((store.result(trial_id) or {})["config"])
    facts = json.loads((exported / model_folder.FACTS).read_text())

    def write(fingerprint: str) -> str:
        benchmark = config.benchmark.model_copy(update={"fingerprint": fingerprint})
        return model_card.write_card(facts, config.model_copy(update={"benchmark": benchmark}))

    published = write("hub:locuslab/TOFU@main")
    assert "(rows of locuslab/TOFU)" in published
    assert "datasets:\n- locuslab/TOFU\n" in published
    assert "Benchmark `tofu` with made-up rows, split" in write("fictional:0")


def test_what_is_refused_before_any_work(
    kept: Any, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    store, trial_id = kept
    (hub.home / "models" / "somebody" / "seen").mkdir(parents=True)
    words = (export.main, trial_id, "--storage", store.root)
    for done, message in (
        (push(kept, "a/b/c"), "Repo id must be"),
        (push(kept, "somebody/seen"), "somebody/seen is there and is public; add --public, or give another name"),
        (push((store, "nobody"), "somebody/x"), "ID: no result of a trial 'nobody'"),
        (invoke(*words), "--output: give a new folder, or --push ORG/NAME"),
        (invoke(*words, "--output", tmp_path / "x", "--public"), "--public: goes with --push ORG/NAME"),
    ):
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
        assert message in done.stderr
    for change in (("HF_HUB_OFFLINE", True), ("ENDPOINT", "http://127.0.0.1:9")):
        with monkeypatch.context() as patch:
            patch.setattr(constants, *change)
            done = push(kept, "somebody/x")
            assert (done.exit_code, "--push: somebody/x: " in done.stderr) == (2, True), done.output
    monkeypatch.setenv("HF_TOKEN", "hf_one-that-may-only-read")
    done = push(kept, "somebody/x")
    assert (done.exit_code, "it needs a token that may write: set HF_TOKEN" in done.stderr) == (2, True), done.output
    assert not (store.root / "exports").exists()
    assert [path.name for path in (hub.home / "models" / "somebody").iterdir()] == ["seen"]


def test_a_hub_that_breaks_off_leaves_the_model(kept: Any, hub: HubServer, tmp_path: Path) -> None:
    """The message says where it is, and how to send it."""
    place = store, trial_id = test_export.doctored(kept, tmp_path)
    folder = store.root / "exports" / trial_id
    hub.full = True
    done = push(place, "somebody/x")
    again = f"the model is in '{folder}'; to try again: hf upload somebody/x '{folder}'\n"
    assert (done.exit_code, again in done.stderr) == (2, True), done.output
    assert (folder / "model.safetensors").is_file()
