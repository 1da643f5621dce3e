"""The pages that a person follows: what they ask to be typed, their tables and links."""

import re
from pathlib import Path

from tests.support.environment import ROOT

PAGES = ("README.md", "CONTRIBUTING.md")
PAGES += tuple(f"docs/{name}.md" for name in ("guide", "searching", "one-server", "cluster", "own", "buckets"))
PAGES += tuple(
    f"docs/{name}.md" for name in ("adding", "measuring", "open_unlearning", "reproduction", "reliability", "security")
)
PAGES += ("docs/smollm2/README.md",)
RECORDS = {"docs/LOG.md": "dated experiments: what was typed then, with that day's code"}
"""Pages whose commands nobody follows."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:python -m [a-z_]+\.[a-z_]+|make|pre-commit|hf) [^`]*)`")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """What a page asks to be typed, in order, once each: blocks of no language, and commands in the midst of text."""
    blocks = [body for language, body in FENCE.findall(text) if not language]
    lines = (re.split(r"\s+# ", line)[0].strip() for body in blocks for line in body.splitlines())
    return list(dict.fromkeys([*filter(None, lines), *INLINE.findall(FENCE.sub("", text))]))


def cluster_commands() -> list[str]:
    """What README.md, "On a cluster", and docs/cluster.md ask to be typed."""
    section = read("README.md").split("\n## On a cluster\n")[1].split("\n## ")[0]
    return list(dict.fromkeys([*commands(section), *commands(read("docs/cluster.md"))]))


def files(text: str) -> dict[str, str]:
    """What a page asks to be written: the first path in the line above a block of Python, and the block."""
    found = re.findall(r"^[^\n]*?`([\w/]+\.py)`[^\n]*:\n\n```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return dict(found)


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells below the first table head that begins with these words, without the line of dashes."""
    lines = text[text.index(f"\n| {heading}") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]


def links(page: str) -> list[Path]:
    """Files that a page links to or shows."""
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", FENCE.sub("", read(page)))
    return [(ROOT / page).parent / target for target in found if not target.startswith("http")]
