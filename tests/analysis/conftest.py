"""Fixtures of the analysis: reports do not write their figures."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.page import paper_report, sections


@pytest.fixture(autouse=True)
def _unwritten_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an empty picture in the place of each figure, whose layout and files take most of a report's time.

    A test that asks for `written_figures` has the files.
    """
    if "written_figures" in request.fixturenames:
        return
    for module in (sections, paper_report):
        monkeypatch.setattr(module, "save_figure", _save_points)


@pytest.fixture
def written_figures() -> None:
    """Write figures as they are."""


def _save_points(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.svg").write_text('<svg width="1pt" height="1pt"></svg>', encoding="utf-8")
    points.to_csv(folder / f"{stem}.csv", index=False, lineterminator="\n")
