"""The README's section on clusters: a rehearsal types its commands, and none is left out."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = "\n## On a cluster\n"
ELSEWHERE = {"python -m platform.cluster account cluster.yaml": "AWS alone has accounts: tests/test_cluster_file.py"}
"""Commands of the section that no host of one's own can answer, and what runs them instead."""


def commands(text: str | None = None) -> list[str]:
    """The commands in the section's blocks, in their order, without comments. `text`: of another README."""
    page = text if text is not None else (ROOT / "README.md").read_text(encoding="utf-8")
    section = page.split(HEAD)[1].split("\n## ")[0]
    lines = (line.split("  #")[0].strip() for block in section.split("```")[1::2] for line in block.splitlines())
    return [line for line in lines if line]


def untyped(typed: set[str]) -> list[str]:
    """What the section says and nobody has typed."""
    return [line for line in commands() if line not in typed | ELSEWHERE.keys()]
