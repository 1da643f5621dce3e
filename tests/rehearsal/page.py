"""What README.md and docs/cluster.md say of clusters: a rehearsal types the commands, and none is left out."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = "\n## On a cluster\n"
ELSEWHERE = {
    "python -m platform.cluster account cluster.yaml": "AWS alone has accounts: tests/platform/cluster",
    "make rehearsal": "is the rehearsal itself",
    'make rehearsal ARGS="--shared DIR"': "is the rehearsal itself",
}
"""Commands there that no host of one's own can answer, and what runs them instead."""


def commands() -> list[str]:
    """Return the commands in the blocks of both, in their order, once each, without comments."""
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/cluster.md"))
    return list(dict.fromkeys([*_typed(readme.split(HEAD)[1].split("\n## ")[0]), *_typed(page)]))


def _typed(section: str) -> list[str]:
    lines = (line.split("  #")[0].strip() for block in section.split("```")[1::2] for line in block.splitlines())
    return [line for line in lines if line]
