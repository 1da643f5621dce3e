"""First screens of reports in a browser: what is seen without scrolling, and that nothing is cut."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from tests.support import arena_store, benchmark_store, sweep_store

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def write_arena(folder: Path) -> None:
    arena_store.write_arena(folder, lambda method, name, seed, lr: (-9 + seed / 9, 0.8 + len(name) / 100))


STORES: dict[str, Callable[[Path], object]] = {
    "tiny": sweep_store.write_store,
    "own": lambda folder: benchmark_store.write_store(folder, "own"),
    "arena": write_arena,
    "tofu_phi": lambda folder: None,
}
CUT = """() => [...document.querySelectorAll("body *")].filter(one => !one.closest(".wide, pre") &&
  one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""
INNER = "() => [...document.querySelectorAll('.wide')].filter(one => one.scrollHeight > one.clientHeight + 20).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.usefixtures("written_figures")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "tiny")) for name in STORES])
def test_the_first_screen_has_the_answer(name: str, browser: Any, tmp_path: Path) -> None:
    """At 1300 px the sentence, the picture and the table are within 800 px; at 420 px the picture begins there."""
    STORES[name](tmp_path / "store")
    paper = name == "tofu_phi"
    made = report.build(
        name, tmp_path / "store", tmp_path / "report", source=report.Source.PAPER if paper else report.Source.RUNS
    )
    for width in (1300, 420):
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.goto((made / "index.html").as_uri())
            assert page.evaluate(CUT) == [], "reaches out of the right edge"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            picture, table = (page.locator(one).first.bounding_box() for one in ("img", "table"))
            assert picture["y"] < 500
            if width == 1300:
                assert page.locator("strong").first.bounding_box()["y"] < 100
                assert max(box["y"] + box["height"] for box in (picture, table)) <= 800
                assert abs(picture["y"] - table["y"]) < 120, "side by side"
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert (page.evaluate(CUT), page.evaluate(INNER)) == ([], 0)
            page.close()


@pytest.mark.usefixtures("written_figures")
def test_tables_sort_by_the_column_that_is_clicked(browser: Any, tmp_path: Path) -> None:
    sweep_store.write_store(tmp_path / "store")
    page = browser.new_page()
    page.goto((report.build("tiny", tmp_path / "store", tmp_path / "report") / "index.html").as_uri())
    page.locator("th", has_text="FQ").first.click()
    first = page.locator("table").first.locator("tbody tr td:nth-of-type(1)").all_inner_texts()
    numbers = [float(text.split()[0]) for text in first if text[:1] != "—"]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 3
