"""trainables.export --push: an exported folder on the hub, private, with its measures and without a text or token."""

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
from trainables.storage import atomic_files
from trainables.storage.names import CAME_BACK
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
    row = {"attack": "nf4", "title": "4-bit weights (NF4)", "before": 0.25, "after": 0.5, "share": 0.6}
    known = {"shares": [row, row | {"title": "never", "after": None}], "attacks": {}}
    known["started"] = (store.result(trial_id) or {})["started"]
    atomic_files.write_json(store.stress(trial_id) / CAME_BACK, known)
    done = push(place, "somebody/forgetful")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"uploaded: {hub.url}/somebody/forgetful, private\n")
    assert hub.private == {"somebody/forgetful"}
    sent, folder = hub.home / "models/somebody/forgetful", store.root / "exports" / trial_id
    names = {path.name for path in sent.iterdir()}
    assert names >= {"README.md", "unlearning.json", "config.json", "model.safetensors", "tokenizer.json"}
    assert all((sent / name).read_bytes() == (folder / name).read_bytes() for name in names)
    check_card(sent / "README.md", json.loads((sent / "unlearning.json").read_text()))
    forget, retain = tofu.TofuBenchmark().training_rows(test_export.configuration(trained_inputs).benchmark)
    texts = [row[column] for row in (*forget, *retain) for column in ("question", "answer")]
    for content in (path.read_bytes() for path in sent.iterdir()):
        assert not [text for text in (*texts, *HIDDEN, TOKEN, str(store.root)) if text.encode() in content]

    (folder / "evals").mkdir()
    (folder / "evals" / "TOFU_EVAL.json").write_text('{"forget_quality": 1}')
    done = push(place, "somebody/open", "--public")
    assert done.exit_code == 0, done.output
    assert f"{folder}: it was exported before, and is uploaded as it is\n" in done.stdout
    assert hub.private == {"somebody/forgetful"}
    assert not (hub.home / "models/somebody/open/evals").exists()


def check_card(file: Path, facts: dict[str, Any]) -> None:
    """The card's metadata, as huggingface_hub reads them."""
    data: Any = ModelCard.load(file).data
    assert data.model_name == "gru-npo-forget25-g0.5-t1-s0"
    known = {name: value for name, value in facts["verified_metrics"].items() if isinstance(value, float)}
    assert facts["verified_metrics"]["forget_quality"] is None, "which would make the card unreadable"
    found = {one.metric_type: one for one in data.eval_results}
    assert found.keys() == {model_card.SHARED_NAMES.get(name, name) for name in known}
    utility = found["model_utility"]
    assert (utility.metric_value, utility.metric_args) == (known["model_utility"], {"protocol": "paper"})
    assert (utility.metric_name, utility.dataset_type, utility.dataset_config) == ("model utility", "tofu", "forget25")


def test_the_hubs_own_data_are_named(kept: Any, exported: Path) -> None:
    """Forget quality is called as open-unlearning calls it."""
    store, trial_id = kept
    config = Trial.model_validate((store.result(trial_id) or {})["config"])
    found = {"forget_quality": -2.0, "forget_quality_pvalue": 0.135}
    facts = json.loads((exported / model_folder.FACTS).read_text()) | {"verified_metrics": found}

    def told_of(fingerprint: str) -> Trial:
        benchmark = config.benchmark.model_copy(update={"fingerprint": fingerprint})
        return config.model_copy(update={"benchmark": benchmark})

    published, made_up = told_of("hub:locuslab/TOFU@main"), told_of("fictional:0")
    assert "(rows of locuslab/TOFU)" in model_card.write_card(facts, published)
    named = [(one.dataset_type, one.metric_type, one.metric_value) for one in model_card.list_results(facts, published)]
    assert named == [("locuslab/TOFU", "forget_quality_ln_p", -2.0), ("locuslab/TOFU", "forget_quality", 0.135)]
    assert "Benchmark `tofu` with made-up rows, split" in model_card.write_card(facts, made_up)
    assert {one.dataset_name for one in model_card.list_results(facts, made_up)} == {"made-up rows forget25"}


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
    again = f"the model is in '{folder}'; to try again: hf upload somebody/x '{folder}' --exclude 'evals/*'\n"
    assert (done.exit_code, again in done.stderr) == (2, True), done.output
    assert (folder / "model.safetensors").is_file()
