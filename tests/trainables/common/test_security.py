"""Names stay inside the storage, and nothing that is read is unpickled or run. Secrets: test_secrets.py."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from pydantic import ValidationError

from analysis.figures.style import save_figure_and_points
from analysis.load import trials as loaded
from analysis.tables.printing import PrintedTable, TableCell, to_latex
from tests.support import tracked_store
from tests.support.starts import invoke
from tests.support.sweep_store import write_sweep, write_trial
from trainables import export
from trainables.common.errors import InputError
from trainables.common.wording import escape_markdown
from trainables.config.settings import Benchmark
from trainables.storage import atomic_files
from trainables.storage.file_names import WEIGHTS
from trainables.storage.folder_storage import Storage

# Names and paths


@pytest.mark.parametrize("name", ["../../outside", "/etc", "..", ".", "", "a/b", "a\0b"])
def test_storage_gives_no_place_outside_itself(store: Storage, name: str) -> None:
    places = [store.trial, store.model, store.data_folder, store.evaluation]
    if "/" in name or "\0" in name:
        places += [lambda name: store.sweep(name, "01234567"), lambda name: store.lock(name, "01234567")]
    for place in places:
        with pytest.raises(InputError, match="it is a path, not a name"):
            place(name)


FORGED = [*r"x/../../../NAME .. \input{x} <img> =cmd +1 @x -x $(id) `id`".split(), "a b", "a\n", "a\x1b[2J"]
"""What a path, LaTeX, Markdown, a spreadsheet, a terminal or a shell would take for more than a name."""


@pytest.mark.parametrize("text", FORGED)
def test_names_of_results_and_sweep_files_are_words(text: str, tmp_path: Path) -> None:
    """A result of other names is damaged, a sweep's file is refused, and a configuration, too."""
    store = Storage(tmp_path)
    known = json.loads((store.trial(write_trial(tmp_path, "0" * 12)) / "result.json").read_text())
    assert store.result("0" * 12) == known
    config = known["config"]
    for change in (
        {"config": config | {"method": text}},
        {"config": config | {"rectifier": {"name": text}}},
        {"config": config | {"benchmark": config["benchmark"] | {"split": text}}},
        {"versions": {"torch": text}},
        {"metrics": {text: 1.0}},
        {"commit": text},
        {"started": text},
    ):
        atomic_files.write_json(store.trial("0" * 12) / "result.json", known | change)
        assert store.result("0" * 12) is None
    write_sweep(tmp_path, ["0" * 12])
    (file,) = (tmp_path / "sweeps").glob("*.json")
    sweep, more = json.loads(file.read_text()), {"role": "original", "split": text, "evaluation": "x"}
    command = f"python -m platform.sweep tiny{text}; id"
    for part in ({"name": text}, {"trials": [text]}, {"references": [more]}, {"command": command}):
        atomic_files.write_json(file, sweep | part)
        with pytest.raises(InputError, match="cannot be read"):
            loaded.find_sweep(file.stem, tmp_path)
    for field in ("split", "template"):
        with pytest.raises(ValidationError):
            Benchmark.model_validate({field: text})


def test_writers_keep_to_their_folder_and_their_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a path, not a name"):
        save_figure_and_points(Figure(), tmp_path / "figures", "dynamics-x/../../NAME", pd.DataFrame())
    assert list(tmp_path.iterdir()) == []
    text = r"\write18{id} $x$ ^~#%&_"
    cells = pd.DataFrame([[TableCell(text)]], index=[text], columns=pd.MultiIndex.from_tuples([("a", "b")]))
    tex = to_latex(PrintedTable(cells, (text,)))
    escaped = r"\textbackslash{}write18\{id\} \$x\$ \textasciicircum{}\textasciitilde{}\#\%\&\_"
    assert (tex.count(escaped), tex.count(r"\write18")) == (3, 0)
    assert escape_markdown("![a](http://b) <img>") == r"\!\[a\](http://b) \<img\>"


def test_links_of_a_storage_do_not_leave_with_a_model(tmp_path: Path) -> None:
    store, trial = tracked_store.write_store(tmp_path / "runs"), tracked_store.TRIALS["finished"].id()
    (store.trial(trial) / WEIGHTS).mkdir()
    (store.trial(trial) / WEIGHTS / "notes.json").symlink_to("/etc/passwd")
    done = invoke(export.main, trial, "--output", tmp_path / "out", "--storage", store.root)
    assert (done.exit_code, "has links (notes.json)" in done.stderr, (tmp_path / "out").exists()) == (2, True, False)


# What is read


HARMFUL = re.compile(
    r"^ *(import|from) (pickle|cloudpickle|dill|joblib|marshal|shelve)\b|read_pickle"
    r"|unsafe_load|full_load|Tuner\.restore|allow_pickle=(?!False)|trust_remote_code=(?!False)|torch\.load\((?![^\n]*weights_only=True)",
    re.MULTILINE,
)


def test_nothing_in_the_code_unpickles_or_runs_what_it_reads(root: Path) -> None:
    """Pickles and their like are not imported; torch.load reads weights only; code from the hub is not trusted."""
    packages = ("platform", "search_spaces", "trainables", "analysis", "bench")
    code = {path: path.read_text(encoding="utf-8") for name in packages for path in (root / name).rglob("*.py")}
    assert [path for path, text in code.items() if HARMFUL.search(text)] == []
    assert any("torch.load(" in text for text in code.values())
