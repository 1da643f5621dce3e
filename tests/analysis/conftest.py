"""Fixtures of the analysis: reports do not write their figures."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis import report
from analysis.figures import bars, rectifiers, sensitivity, tradeoff, training
from analysis.report import page

DRAWING = (bars, rectifiers, sensitivity, tradeoff, training)


@pytest.fixture(autouse=True)
def _undrawn_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an empty picture in the place of each figure of a report, which take most of its time; no interactive.

    A test that asks for `drawn_figures` has them, and has their files if it asks for `written_figures`.
    """
    if "written_figures" in request.fixturenames:
        return
    monkeypatch.setattr(report, "write_interactive", lambda *_: False)  # its libraries take seconds
    monkeypatch.setattr(page, "save_figure", _save_points)
    if "drawn_figures" in request.fixturenames:
        return
    build = report.build

    def build_undrawn(*given: Any, **named: Any) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            for module in DRAWING:
                for name in vars(module):
                    if name.startswith("draw"):
                        patch.setattr(module, name, lambda *_, **__: Figure())
            return build(*given, **named)

    monkeypatch.setattr(report, "build", build_undrawn)


@pytest.fixture
def written_figures() -> None:
    """Draw and write figures as they are."""


@pytest.fixture
def drawn_figures() -> None:
    """Draw figures, and write only their points."""


def _save_points(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.svg").write_text('<svg width="1pt" height="1pt"></svg>', encoding="utf-8")
    points.to_csv(folder / f"{stem}.csv", index=False, lineterminator="\n")
