"""Fixtures of the analysis: reports draw their figures and write only their points."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.report import answers, page


@pytest.fixture(autouse=True)
def _unwritten_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no figures, which take most of a report's time, unless a test asks for `written_figures`."""

    def save_points(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}.svg").write_text('<svg width="1pt" height="1pt"></svg>', encoding="utf-8")
        points.to_csv(folder / f"{stem}.csv", index=False, lineterminator="\n")

    if "written_figures" not in request.fixturenames:
        monkeypatch.setattr(answers, "write_interactive_tradeoff", lambda *_: False)  # its libraries take seconds
        monkeypatch.setattr(page, "save_figure_and_points", save_points)


@pytest.fixture
def written_figures() -> None:
    """Write figures as they are."""
