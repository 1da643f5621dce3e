"""trainables.export: a kept trial becomes a verified folder that transformers loads, with a card that tells no text."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support import interrupted
from tests.support.hub_server import MODEL_ID, TOKEN, HubBench, HubServer
from tests.support.starts import assert_refused, invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS, SERVER
from trainables import export
from trainables.benchmarks import evaluation, tofu
from trainables.common.errors import InputError
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import EXPORT_FACTS_FILE, RESULT, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial import setup
from trainables.trial.export import model_folder
from trainables.trial.runner import TrialRun

TOFU = tofu.TofuBenchmark()


def configuration(trial_inputs: Any) -> Trial:
    return interrupted.configuration(trial_inputs, every=None, max_steps=4, eval_every=2)


@pytest.fixture(scope="module")
def kept(trained_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, str]:
    """A trial whose weights were kept."""
    config = configuration(trained_inputs)
    store = Storage(tmp_path_factory.mktemp("runs"))
    monkey = pytest.MonkeyPatch()
    monkey.setattr(setup, "check_inputs_unchanged", lambda trial: None)  # its fingerprints are names here
    *_, event = TrialRun(config, store, keep_weights=True).run_and_yield_events()
    monkey.undo()
    assert event["result"]["status"] == "finished", event["result"]["error"]
    return store, config.id()


def test_settings_alone_are_written_without_weights(kept: Any, tmp_path: Path) -> None:
    store, trial_id = kept
    done = invoke(export.main, trial_id, "--storage", store.root, "--settings", tmp_path / "tuned" / "x.yaml")
    assert done.exit_code == 0, done.output
    found = yaml.safe_load((tmp_path / "tuned" / "x.yaml").read_text())
    assert (found["trial"], found["settings"]["rectifier.gamma"], found["settings"]["rectifier.tau"]) == (
        trial_id,
        0.5,
        1,
    )


@pytest.fixture(scope="module")
def exported(kept: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store, trial_id = kept
    folder = tmp_path_factory.mktemp("out") / "model"
    done = invoke(export.main, trial_id, "--storage", store.root, "--output", folder)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("gru-npo-forget25-g0.5-t1-s0: FQ null, MU ")
    return folder


def test_it_loads_with_plain_transformers_and_gives_the_metrics_again(
    kept: Any, exported: Path, trained_inputs: Any
) -> None:
    store, trial_id = kept
    network, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    saved = load_file(store.trial(trial_id) / WEIGHTS / "model.safetensors")
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in saved.items())
    assert not (exported / "recipe.json").exists()
    benchmark = configuration(trained_inputs).benchmark
    found, _ = evaluation.evaluate(network.eval(), tokenizer, benchmark, None, token_budget=4096)
    facts, known = json.loads((exported / EXPORT_FACTS_FILE).read_text()), store.result(trial_id)["metrics"]
    assert found == facts["verified_metrics"] == {name: known[name] for name in found}


def test_the_card(kept: Any, exported: Path, trained_inputs: Any) -> None:
    store, trial_id = kept
    result = store.result(trial_id) or {}
    text = (exported / model_folder.CARD_FILE).read_text()
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["tags"] == ["unlearning", "npo", "gru"]
    forget, retain = TOFU.training_rows(configuration(trained_inputs).benchmark)
    assert f"| forget set | {len(forget)} | `" in body
    assert f"| retain set | {len(retain)} | `" in body
    assert f"| **model utility** (highest is best) | – | {result['metrics']['model_utility']:.4f} |" in body
    assert f"| step chosen | {result['chosen_step']} |" in body
    assert "gamma and tau are those of Gradient Rectified Unlearning" in body
    assert "| objective.beta | 0.1 |" in body
    assert "objective.retain_coefficient" not in body


def test_the_card_tells_what_attacks_brought_back(kept: Any, exported: Path, tmp_path: Path) -> None:
    """Those on this run of the trial; `exported` is of a trial that was not attacked."""
    assert "These measurements do not try that." in (exported / model_folder.CARD_FILE).read_text()
    store, trial_id = doctored(kept, tmp_path)
    row = {"attack": "nf4", "title": "4-bit weights (NF4)", "before": 0.25, "after": 0.5, "share": 0.625}
    shares = [row, row | {"attack": "int8", "title": "int8 weights", "share": None}]
    known = {"shares": shares, "attacks": {}, "started": (store.result(trial_id) or {})["started"]}
    for started, table in ((known["started"], True), ("another run", False)):
        atomic_files.write_json(store.attack_results_folder(trial_id) / "came_back.json", known | {"started": started})
        folder = tmp_path / str(table)
        assert invoke(export.main, trial_id, "--storage", store.root, "--output", folder).exit_code == 0
        text = (folder / model_folder.CARD_FILE).read_text()
        listed = "| 4-bit weights (NF4) | 0.2500 | 0.5000 | 62 % |\n| int8 weights | 0.2500 | 0.5000 | – |\n"
        assert (listed in text) == table
        assert ("The attacks above try some of that." in text) == table
        assert len(json.loads((folder / EXPORT_FACTS_FILE).read_text())["attacks"]) == 2 * table


def test_weights_that_were_changed_are_not_exported(kept: Any, tmp_path: Path) -> None:
    place, trial_id = doctored(kept, tmp_path)
    file = place.trial(trial_id) / WEIGHTS / "model.safetensors"
    save_file({name: tensor * 1.2 for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"do not give the trial's metrics again: model_utility 0\.\d+ is "):
        model_folder.export_trial(trial_id, place, tmp_path / "model")
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_what_cannot_be_exported_is_told(kept: Any, tmp_path: Path) -> None:
    store, trial_id = kept
    known = store.result(trial_id)["config"]
    (tmp_path / "taken").mkdir()
    bare, _ = doctored(kept, tmp_path / "bare")
    shutil.rmtree(bare.trial(trial_id) / WEIGHTS)
    doctored(kept, tmp_path / "unknown", config=known | {"method": "nobodys"})
    doctored(kept, tmp_path / "changed", config=config_of(kept, "benchmark", fingerprint="files:0"))
    for name, storage, output, message in (
        (trial_id[:-1] + "x", store.root, "model", "; a report lists the ids"),
        (trial_id, store.root, "taken", "exists; give a new folder"),
        ("../../elsewhere", "nowhere", "model", "'../../elsewhere' names nothing in"),
        (trial_id, "bare/runs", "model", "were not kept; run it again with python -m trainables.run "),
        (trial_id, "unknown/runs", "model", "is none of this checkout's: method: "),
        (trial_id, "changed/runs", "model", "holds has changed since this trial was planned"),
    ):
        done = invoke(export.main, name, "--storage", tmp_path / storage, "--output", tmp_path / output)
        assert_refused(done, message)


# Trials of other kinds: the kept one with another result.json


def doctored(kept: Any, folder: Path, **changes: Any) -> tuple[Storage, str]:
    store, trial_id = kept
    place = Storage(folder / "runs")
    shutil.copytree(store.trial(trial_id), place.trial(trial_id))
    atomic_files.write_json(place.trial(trial_id) / RESULT, store.result(trial_id) | changes)
    return place, trial_id


def config_of(kept: Any, part: str, **changes: Any) -> dict[str, Any]:
    known = kept[0].result(kept[1])["config"]
    return known | {part: known[part] | changes}


def test_a_collapsed_trial_of_another_device_chosen_on_other_rows(kept: Any, tmp_path: Path) -> None:
    """Its card says why training stopped, reports the rows that were not chosen on, and tells differences."""
    known = kept[0].result(kept[1])
    changes = {
        "halves": [{"model_utility": value, "forget_quality": None} for value in (0.1111, 0.2222)],
        "error": {"kind": "collapsed", "message": "retain loss 9 is above training.stop_above=5 at step 3", "step": 3},
        "metrics": known["metrics"] | {"forget_rouge": 0.9876},
        "topology": known["topology"] | {"device": "GPU of another make"},
    }
    config = config_of(kept, "target", path="/gone/secret-place")
    place, trial_id = doctored(kept, tmp_path, status="collapsed", config=config, **changes)
    torch.set_num_threads(3)
    facts = model_folder.export_trial(trial_id, place, tmp_path / "model", "So it was.", Selection(halves=True))
    assert torch.get_num_threads() == known["config"]["resources"]["cpus"]
    text = (tmp_path / "model" / model_folder.CARD_FILE).read_text()
    for words in (
        "stopped before its last step: retain loss 9 is above training.stop_above=5 at step 3. So it was.",
        "| **model utility** (highest is best) | – | 0.2222 |",
        "of the evaluation rows that were not chosen on",
        "on cpu, where the trial ran on GPU of another make",
        "Other metrics than the trial's: forget_rouge 0.9876 is 0.",
    ):
        assert words in text
    assert facts["verified_metrics"]["model_utility"] == known["metrics"]["model_utility"]
    assert "secret-place" not in text + (tmp_path / "model" / EXPORT_FACTS_FILE).read_text()


@pytest.mark.parametrize(("rounding", "width", "said"), [(0.05, 2, "rounded to bf16"), (1e-9, 4, "the same values")])
def test_weights_are_rounded_as_the_target_models_unless_that_changes_what_was_measured(
    rounding: float, width: int, said: str, kept: Any, trained_inputs: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """The target model's files say that they are of bf16. Numbers of a half are of the rounded weights, too."""
    shutil.copytree(trained_inputs.target, tmp_path / "target")
    stated = json.loads((tmp_path / "target" / "config.json").read_text())
    (tmp_path / "target" / "config.json").write_text(json.dumps(stated | {"dtype": "bfloat16"}))
    config = config_of(kept, "target", path=str(tmp_path / "target"))
    halves = [{"model_utility": 0.1, "forget_quality": None}, {"model_utility": 0.2, "forget_quality": None}]
    place, trial_id = doctored(kept, tmp_path, config=config, halves=halves)
    monkeypatch.setattr(model_folder, "ROUNDED_WEIGHTS_TOLERANCE", rounding)
    facts = model_folder.export_trial(trial_id, place, tmp_path / "model", rule=Selection(halves=True))
    tensors = load_file(tmp_path / "model" / "model.safetensors").values()
    assert {tensor.element_size() for tensor in tensors} == {width}
    assert said in (tmp_path / "model" / model_folder.CARD_FILE).read_text()
    assert (facts["differences"], (tmp_path / "model" / "recipe.json").exists()) == ([], False)
    assert (facts["metrics"]["model_utility"] == 0.2) == (width == 4)


# --push: an exported folder on the hub, private, without a text or token


@pytest.fixture
def hub(bench: HubBench, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """A hub that this process asks with a token, without Xet; other secrets are set as well."""
    from huggingface_hub import constants

    for name, value in {**SECRETS, "HF_TOKEN": TOKEN, "MLFLOW_TRACKING_URI": SERVER}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return bench.hub


def push(kept: Any, *words: object) -> Any:
    store, trial_id = kept
    return invoke(export.main, trial_id, "--storage", store.root, "--push", *words)


def test_what_is_sent(kept: Any, hub: HubServer, trained_inputs: Any, tmp_path: Path) -> None:
    """A second time it is the folder that is there."""
    store, trial_id = place = doctored(kept, tmp_path)
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
    forget, retain = tofu.TofuBenchmark().training_rows(configuration(trained_inputs).benchmark)
    texts = [row[column] for row in (*forget, *retain) for column in ("question", "answer")]
    texts += [*HIDDEN, TOKEN, str(store.root), str(trained_inputs.target)]
    for content in (path.read_bytes() for path in sent.iterdir()):
        assert not [text for text in texts if text.encode() in content]

    assert f"{folder}: it was exported before, and is uploaded as it is\n" in push(place, "somebody/again").stdout


def test_what_is_refused_before_any_work(
    kept: Any, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    store, trial_id = kept
    for done, message in (
        (push(kept, "a/b/c"), "Repo id must be"),
        (push(kept, MODEL_ID), f"{MODEL_ID} is there and is public; give another name"),
        (push((store, "nobody"), "somebody/x"), "ID: no result of a trial 'nobody'"),
        (invoke(export.main, trial_id, "--storage", store.root), "--output: give a new folder, or --push ORG/NAME"),
    ):
        assert_refused(done, message)
    for change in (("HF_HUB_OFFLINE", True), ("ENDPOINT", "http://127.0.0.1:9")):
        with monkeypatch.context() as patch:
            patch.setattr(constants, *change)
            done = push(kept, "somebody/x")
            assert (done.exit_code, "--push: somebody/x: " in done.stderr) == (2, True), done.output
    monkeypatch.setenv("HF_TOKEN", "hf_one-that-may-only-read")
    done = push(kept, "somebody/x")
    assert (done.exit_code, "it needs a token that may write: set HF_TOKEN" in done.stderr) == (2, True), done.output
    assert not (store.root / "exports").exists()
    assert [path.name for path in (hub.home / "models" / "somebody").iterdir()] == ["tiny"]


def test_a_hub_that_breaks_off_leaves_the_model(kept: Any, hub: HubServer, tmp_path: Path) -> None:
    """The message says where it is, and how to send it."""
    place = store, trial_id = doctored(kept, tmp_path)
    folder = store.root / "exports" / trial_id
    hub.full = True
    done = push(place, "somebody/x")
    again = f"the model is in '{folder}'; to try again: hf upload somebody/x '{folder}'\n"
    assert (done.exit_code, again in done.stderr) == (2, True), done.output
    assert (folder / "model.safetensors").is_file()
