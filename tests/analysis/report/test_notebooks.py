"""The notebooks: without outputs as they are kept, and executed from the first cell to the last on invented sweeps."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import benchmark_store
from tests.support.environment import ROOT, clean_environment
from tests.support.ruled_sweeps import write_grid
from tests.support.sweep_store import write_store, write_vectors

FOLDER = ROOT / "analysis" / "notebooks"
STORES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "own_figure": ("own", lambda folder: benchmark_store.write_store(folder, "own")),
    "report": ("tiny", write_store),
    "retain_free": ("vectors", write_vectors),
    "sensitivity": ("tiny", write_grid),
}
"""By notebook a sweep's name, and what writes it."""


def code(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return each notebook's cells of code after its execution, all in one kernel, which starts in their folder."""
    kept = {stem: nbformat.read(FOLDER / f"{stem}.ipynb", as_version=4) for stem in STORES}
    whole = nbformat.v4.new_notebook()
    for stem, (name, write) in STORES.items():
        where = {"UNLEARN_SWEEP": name, "UNLEARN_STORAGE": str(write(tmp_path_factory.mktemp(stem)))}
        start = nbformat.v4.new_code_cell(f"%reset -f\nimport os\nos.environ.update({where})\ndel os")
        whole.cells += [start, *code(kept[stem].cells)]
    place = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(whole, timeout=120, startup_timeout=300, kernel_name="python3", resources=place)
    client.execute(env=clean_environment(IPYTHONDIR=str(tmp_path_factory.mktemp("ipython"))))
    return {stem: code(notebook.cells) for stem, notebook in kept.items()}


def outputs(cells: list[Any], kind: str) -> list[str]:
    every = [output for cell in cells for output in cell.outputs]
    return [output["data"][kind] for output in every if kind in output.get("data", {})]


def test_kept_without_outputs_and_run_without_a_word_on_stderr(executed: dict[str, list[Any]]) -> None:
    """NAME and STORAGE are in the first cell of code."""
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == list(STORES)
    for stem, cells in executed.items():
        kept = code(nbformat.read(FOLDER / f"{stem}.ipynb", as_version=4).cells)
        assert all(cell.outputs == [] and cell.execution_count is None for cell in kept)
        assert re.search(r"^NAME = .*\nSTORAGE = ", kept[0].source, re.MULTILINE)
        assert all(cell.execution_count for cell in cells)
        assert not [output for cell in cells for output in cell.outputs if output.output_type == "stream"]


@pytest.mark.parametrize(
    ("stem", "pictures", "words"),
    [
        ("report", 1, ["| GA", "- No verdict on GRU yet: that takes 3 seeds", ">diverged</th>"]),
        ("own_figure", 1, ["benchmark.split"]),
        (
            "sensitivity",
            2,
            ["-1.1 -4.6 -8.6 0.85 0.85 0.85", "-2.0 -5.5 NaN 0.85 0.85 NaN"],
        ),  # FQ: -10 gamma - tau - 0.5
        ("retain_free", 1, ["| TRU"]),
    ],
)
def test_each_shows_its_tables_and_pictures(
    executed: dict[str, list[Any]], stem: str, pictures: int, words: list[str]
) -> None:
    assert len(outputs(executed[stem], "image/png")) == pictures
    kinds = ("text/markdown", "text/html", "text/plain")
    shown = " ".join(" ".join(outputs(executed[stem], kind)) for kind in kinds)
    for text in words:
        assert text in " ".join(shown.split()), text
