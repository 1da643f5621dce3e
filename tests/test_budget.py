"""The product stays readable in a few days: no package has more lines than CONTRIBUTING.md's table allows."""

import subprocess
from pathlib import Path

import pytest

from tests.support import pages

ROOT = Path(__file__).parents[1]
BUDGET = {
    row[0].strip("`/"): int(row[1].replace(",", "")) for row in pages.rows(pages.read("CONTRIBUTING.md"), "lines of")
}


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_has_no_more_lines_than_its_budget(package: str) -> None:
    listed = subprocess.run(["git", "ls-files", "--", package], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines() if name.endswith((".py", ".js", ".j2", ".toml", ".sh"))]
    lines = sum(len(file.read_bytes().splitlines()) for file in files if file.is_file())
    assert 0 < lines <= BUDGET[package]


def test_every_package_has_a_budget() -> None:
    assert list(BUDGET) == ["platform", "trainables", "search_spaces", "analysis", "bench", "tests"]
