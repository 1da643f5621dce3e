"""What a person sees of a report in a headless Chromium that is Debian's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis import report
from tests.support import browser
from tests.support.browser import read_page
from tests.support.sweep_store import write_store

pytestmark = pytest.mark.slow
chromium = pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium: apt-get install chromium fonts-dejavu-core")

MEASURE = """<script>
for (const part of document.querySelectorAll('details')) part.open = true
const drawn = [...document.querySelectorAll('figure img')]
document.body.dataset.widths = drawn.map(e => e.getBoundingClientRect().width)
document.body.dataset.fits = document.documentElement.scrollWidth <= window.innerWidth
</script>"""


@chromium
def test_report_is_whole_in_a_browser(tmp_path: Path, written_figures: None) -> None:
    folder = report.build("tiny", write_store(tmp_path / "store"))
    with (folder / "index.html").open("a", encoding="utf-8") as page:
        page.write(MEASURE)
    shown, said = read_page((folder / "index.html").as_uri(), tmp_path / "profile", seconds=5)
    for words in ("tiny-0a1b2c3d", "w/ GRU", "Retrain", "FQ", "MU", "failed", "python -m analysis.report"):
        assert words in shown, words
    (widths,) = re.findall('data-widths="([^"]*)"', shown)
    assert min(map(float, widths.split(","))) > 200
    assert 'data-fits="true"' in shown
    assert said == ""
    narrow, _ = read_page((folder / "index.html").as_uri(), tmp_path / "phone", width=500, seconds=5)
    assert 'data-fits="true"' in narrow  # 500 px is the narrowest window that Chromium opens
