"""The sweep own is planned offline from files and a folder; what is missing or wrong with them is said."""

from pathlib import Path

import pytest

from platform.plan.plan import Plan
from platform.state import manifest, trial_outcomes
from platform.sweep import dry_run
from platform.sweep.hub_download import describe_start_needs
from tests.support import own_rows, tiny
from tests.support.small_sweep import Small, plan_named
from trainables.common.errors import InputError
from trainables.config.settings import Calibration
from trainables.data import raw_rows
from trainables.storage.folder_storage import Storage
from trainables.trial import setup

files, target = own_rows.files, own_rows.target
HUB_MODEL = "somebody/a-model"


def plan(store: Storage, target: Path | str, files: dict[str, Path], *more: str, strategy: str | None = None) -> Plan:
    return plan_named("own", store, *own_rows.settings(target, files), *more, strategy=strategy)


@pytest.mark.parametrize(
    ("chats", "typed", "template"),
    [(True, (), "chat"), (True, ("benchmark.template=plain",), "plain"), (False, ("benchmark.limit=5",), "plain")],
)
def test_a_model_is_trained_and_asked_in_its_chat_template_unless_another_is_named(
    chats: bool, typed: tuple[str, ...], template: str, files: dict[str, Path], store: Storage, tmp_path: Path
) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{% for turn in messages %}[{{ turn['content'] }}]{% endfor %}" if chats else None
    target = tiny.write_model(tmp_path / "mine", layers=1)
    tokenizer.save_pretrained(target)
    state = trial_outcomes.read_sweep_state(plan(store, target, files, *typed), store)
    assert {trial.benchmark.template for trial in state.plan.trials} == {template}
    lines = list(dry_run.format_dry_run(state, dry_run.make_dry_run_document(state, store, "none", 1), 1))
    assert f"prompt template: {template}" in lines
    limited = 5 if "benchmark.limit=5" in typed else 6
    (told,) = (line for line in lines if line.startswith("rows of own (forget.jsonl): 6 to forget, 6 to retain; "))
    assert told.endswith(f" measured: {limited} forget, 2 paraphrase, 2 retain, 3 holdout")
    measured = state.plan.trials[0].model_copy(
        update={"retain_evaluation": None, "calibration": Calibration(targets=(0.9,))}
    )
    with pytest.raises(InputError, match=r"^retain_evaluation: not given; calibration needs the target model's"):
        setup.load_reference_evaluation(measured)


TYPED = "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ((), rf"^target, forget: not given; {TYPED} \[--set retain=FILE --set eval=FILE]$"),
        (("target", "retain"), "^forget: not given; "),
    ],
)
def test_all_that_is_missing_is_told(
    left: tuple[str, ...], words: str, target: Path, files: dict[str, Path], store: Storage
) -> None:
    chosen = [setting for setting in own_rows.settings(target, files) if setting.split("=")[0] in left]
    with pytest.raises(InputError, match=words):
        plan_named("own", store, *chosen)


def test_rows_to_forget_and_to_retain_are_warned_of(
    target: Path, files: dict[str, Path], store: Storage, tmp_path: Path
) -> None:
    both = tmp_path / "retain.jsonl"
    both.write_text(files["retain"].read_text() + files["forget"].read_text().splitlines()[1])
    state = trial_outcomes.read_sweep_state(plan(store, target, files | {"retain": both}), store)
    assert (state.warning() or "").startswith("forget, retain: 1 of 6 forget rows are among the rows to retain, too")
    lines = dry_run.format_dry_run(state, dry_run.make_dry_run_document(state, store, "none", 1), 1)
    (line,) = (line for line in lines if line.startswith("warning: "))
    assert "(of the forget file: row 2). " in line
    assert line.endswith("too few rows (2) measure what is kept: with one lost it is below 90%; give ten or more")


def test_wrong_files_and_tasks_are_refused(files: dict[str, Path], store: Storage) -> None:
    published = "forget, eval, baseline: sweep tofu_phi has published rows; on rows of your own: type "
    with pytest.raises(InputError, match=published):
        plan_named("tofu_phi", store, f"forget={files['forget']}", f"eval={files['eval']}", "baseline=/nowhere")
    with pytest.raises(InputError, match="forget: '/nowhere' is no file"):
        plan(store, HUB_MODEL, {**files, "forget": Path("/nowhere")})
    with pytest.raises(InputError, match=r"lm-eval has no task 'arc_eazy'.*did you mean 'arc_easy'"):
        plan(store, HUB_MODEL, files, "benchmark.tasks=arc_eazy,wikitext")


def test_a_model_that_never_saw_the_rows_leaves_trials_and_name_as_they_are(
    target: Path, files: dict[str, Path], store: Storage
) -> None:
    alone, compared = plan(store, target, files), plan(store, target, files, f"baseline={target}")
    assert (compared.name, compared.trials) == (alone.name, alone.trials)
    first, *more = compared.references
    assert [first.role, *((ref.role, ref.against) for ref in more)] == ["original", ("baseline", first.evaluation)]
    for started in (compared, alone):  # a later start without it keeps it
        sweep = manifest.write_manifest(
            trial_outcomes.read_sweep_state(started, store), store, "python -m platform.sweep own"
        )
        assert {ref.role for ref in sweep.references} == {"original", "baseline"}
    with pytest.raises(InputError, match=r"baseline: .*nowhere"):
        plan(store, target, files, "baseline=/nowhere")
    (needed,) = plan(store, target, files, f"baseline={HUB_MODEL}").hub
    assert needed.setting == "baseline=DIR"


def test_a_hub_model_and_a_task_are_what_a_start_needs(files: dict[str, Path], store: Storage) -> None:
    found = plan(store, HUB_MODEL, files, "benchmark.tasks=mmlu", "benchmark.sources=mmlu=cais/mmlu")
    questions, model = describe_start_needs(found.sweep, found.hub, store)
    assert questions.startswith("data set cais/mmlu from the hub; without a network, on the machine that runs the")
    assert questions.endswith(", or --set benchmark.sources=mmlu=DIR\n  not checked: needs the hub")
    first, download, checked = model.splitlines()
    assert checked == "  not checked: needs the hub"
    assert first.startswith("model somebody/a-model from the hub; without a network")
    assert download.startswith("  hf download somebody/a-model (where there is a network")
    assert download.endswith(", or --set target=DIR")
    assert not found.needs


def test_files_may_move_and_must_not_change(
    target: Path, files: dict[str, Path], store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plan(store, target, files)
    tiny.own(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    moved = plan(store, target, {part: Path(file.name) for part, file in files.items()})
    assert (here.name, [t.id() for t in here.trials]) == (moved.name, [t.id() for t in moved.trials])
    assert f"forget={tmp_path / 'moved' / 'forget.jsonl'}" in moved.trials[0].benchmark.sources
    (tmp_path / "moved" / "eval.jsonl").unlink()
    fewer = plan(store, target, {part: Path(f"{part}.jsonl") for part in ("forget", "retain")})
    assert fewer.name != here.name
    assert {t.id() for t in fewer.trials}.isdisjoint(t.id() for t in here.trials)
    planned = {"fingerprint": moved.trials[0].benchmark.fingerprint}
    changed = fewer.trials[0].benchmark.model_copy(update=planned)
    with pytest.raises(InputError, match=r"forget\.jsonl.* holds has changed since this trial was planned"):
        setup.check_inputs_unchanged(moved.trials[0].model_copy(update={"benchmark": changed}))


METHODS = "method=ga,idk_dpo,idk_nll"


def ids(small: Small, store: Storage, *settings: str) -> dict[str, str]:
    plan = small.plan(store, METHODS, "rectifier.name=none", "benchmark.split=forget05", *settings)
    return {trial.method: trial.id() for trial in plan.trials}


def test_content_of_the_file_is_in_the_ids_of_those_that_read_it(small: Small, store: Storage, tmp_path: Path) -> None:
    one, other, same = (tmp_path / name for name in ("one.txt", "other.txt", "same.jsonl"))
    one.write_text("No idea.\nI cannot say.\n")
    other.write_text("No idea.\n")
    same.write_text("# from elsewhere\n\n  No idea.\r\nI cannot say.")
    plain = ids(small, store)
    found = [ids(small, store, f"objective.idk={path}") for path in (one, other, same)]
    assert {each["ga"] for each in (plain, *found)} == {plain["ga"]}
    for method in ("idk_dpo", "idk_nll"):
        assert found[0][method] == found[2][method]
        assert len({plain[method], found[0][method], found[1][method]}) == 3
    default = ids(small, store, f"objective.idk={raw_rows.DEFAULT_IDK_ANSWERS_FILE}")
    assert default == plain
    chosen = (METHODS, "benchmark.split=forget05")
    hashes = [small.plan(store, *chosen, f"objective.idk={path}").hash for path in (one, other, same)]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"objective.idk: cannot read '.*idk.txt': No such file or directory; give a text file"),
        (b"\xff\xfe\x00", "it is no text in UTF-8"),
        (b"# nothing\n\n", "has no answer; write one a line"),
        (b'{"text": "No idea."}', "write each answer as plain text, not as JSON"),
    ],
)
def test_files_that_cannot_be_used(
    small: Small, store: Storage, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "idk.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        small.plan(store, "method=idk_nll", f"objective.idk={path}")


def test_texts_have_no_question_to_answer_otherwise(target: Path, files: dict[str, Path], store: Storage) -> None:
    assert plan(store, target, files, "rectifier.name=none", "method=ceu").trials
    with pytest.raises(InputError, match="forget: another answer needs a question, and row 5 is a text"):
        plan(store, target, files, "rectifier.name=none", "method=idk_dpo")
