"""First screens of reports in a browser: what is seen without scrolling, and that nothing is cut."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from tests.support import benchmark_store, ruled_sweeps, sweep_store

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


STORES: dict[str, Callable[[Path], object]] = {
    "tiny": sweep_store.write_store,
    "own": lambda folder: benchmark_store.write_store(folder, "own"),
    "arena": lambda folder: ruled_sweeps.write_arena(folder, lambda _, name, seed, lr: (-9 + seed / 9, len(name) / 9)),
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
    made = report.build_report(name, tmp_path / "store", tmp_path / "report") / "index.html"
    for width in (1300, 420):
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(made.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        picture, table = (page.locator(one).first.bounding_box() for one in ("img", "table"))
        assert picture["y"] < 500
        if width == 1300:
            assert page.locator("strong").first.bounding_box()["y"] < 100
            assert max(box["y"] + box["height"] for box in (picture, table)) <= 800
            assert abs(picture["y"] - table["y"]) < 120, "side by side"
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate(CUT) == [], "reaches out of the right edge"
        assert page.evaluate(INNER) == 0, "a table scrolls inside the page"
        first = page.locator("table").first
        first.locator("thead tr:last-child th").nth(1).click()
        cells = first.locator("td:nth-child(2)").all_inner_texts()
        numbers = [float(found[0]) for cell in cells if (found := re.match(r"-?[\d.]+", cell))]
        assert (numbers == sorted(numbers), len(set(numbers)) > 2) == (True, True)
        page.close()
