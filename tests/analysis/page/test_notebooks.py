"""The notebooks: without outputs as they are kept, and executed from the first cell to the last on invented sweeps."""

from __future__ import annotations

import os
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.environment import INHERITED_PREFIXES, ROOT
from tests.support.grid_sweep import write_grid
from tests.support.sweep_store import write_store, write_vectors

FOLDER = ROOT / "analysis" / "notebooks"
STEMS = ["report", "retain_free", "sensitivity"]


def read(stem: str) -> Any:
    return nbformat.read(FOLDER / f"{stem}.ipynb", as_version=4)


STORES = {
    "report": ("tiny", write_store),
    "sensitivity": ("tiny", write_grid),
    "retain_free": ("vectors", write_vectors),
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return `executed(stem)`: the notebook after its execution, as Jupyter runs it: in its own folder."""
    done: dict[str, Any] = {}

    def execute(stem: str) -> Any:
        if stem not in done:
            name, write = STORES[stem]
            folder = tmp_path_factory.mktemp(stem)
            environment = {key: value for key, value in os.environ.items() if not key.startswith(INHERITED_PREFIXES)}
            environment |= {"UNLEARN_SWEEP": name, "UNLEARN_STORAGE": str(write(folder / "store"))}
            environment |= {"IPYTHONDIR": str(folder / "ipython")}
            notebook = read(stem)
            place = {"metadata": {"path": str(FOLDER)}}
            NotebookClient(notebook, timeout=120, startup_timeout=300, kernel_name="python3", resources=place).execute(
                env=environment
            )
            done[stem] = notebook
        return done[stem]

    return execute


def outputs(notebook: Any, kind: str) -> list[str]:
    """Return what the cells show of one kind, such as image/png."""
    every = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["data"][kind] for output in every if kind in output.get("data", {})]


def test_every_notebook_is_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == STEMS


@pytest.mark.parametrize("stem", STEMS)
def test_kept_without_outputs_and_runs_without_a_word_on_stderr(stem: str, executed: Any) -> None:
    """NAME and STORAGE are in the first cell of code."""
    kept = [cell for cell in read(stem).cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in kept)
    assert re.search(r"^NAME = .*\nSTORAGE = ", kept[0].source, re.MULTILINE)
    cells = [cell for cell in executed(stem).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "stream"]


def test_report_counts_compares_and_concludes(executed: Any) -> None:
    notebook = executed("report")
    table, verdict = outputs(notebook, "text/markdown")
    assert "| GA" in table
    assert re.search(r"^- On forget05.*GRU", verdict, re.MULTILINE | re.IGNORECASE)
    counted = outputs(notebook, "text/html")[0]
    assert {"diverged", "failed", "finished"} <= set(re.findall(r">(\w+)</th>", counted))
    assert len(outputs(notebook, "image/png")) == 1


def test_sensitivity_shows_every_pair(executed: Any) -> None:
    """FQ is -10 gamma - tau (none: 3), the mean over seeds 0.5 less; GD lacks one pair."""
    notebook = executed("sensitivity")
    texts = outputs(notebook, "text/plain")
    every, pairs, spread = texts[0], texts[1], texts[-1]
    assert len(every.splitlines()) == 1 + 9 + 8
    rows = [line.split()[-6:] for line in pairs.splitlines()]
    assert ["-1.1", "-4.6", "-8.6", "0.85", "0.85", "0.85"] in rows
    assert ["-2.0", "-5.5", "NaN", "0.85", "0.85", "NaN"] in rows
    assert spread.count("10.4") == 2
    assert len(outputs(notebook, "image/png")) == 3  # both, over gamma, over tau


def test_retain_free_shows_strengths_and_who_keeps_more(executed: Any) -> None:
    notebook = executed("retain_free")
    table, _, verdict = outputs(notebook, "text/markdown")
    assert "| TRU" in table
    assert "TRU keeps more MU" in verdict
    assert len(outputs(notebook, "image/png")) == 1
