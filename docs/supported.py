"""Print README.md's table of what is supported, from the code: `python -m docs.supported`."""

from __future__ import annotations

from platform.plan.overrides import load_backbones
from trainables.benchmarks.measures import load_measures
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.types import list_benchmark_names


def make_table() -> str:
    """Return the table: what may be chosen, how, and where it is explained."""
    objectives = [row.label for row in METHODS.values() if not row.strength]
    vectors = [row.label for row in METHODS.values() if row.strength]
    rules = [row.label for name, row in RECTIFIERS.items() if name != "none"]
    known = [one.name for one in load_backbones()]
    rows = [
        ("objectives, each with the rectifiers that suit it", "method", objectives, "docs/guide.md"),
        ("task vectors, which need no retain data", "method", vectors, "docs/guide.md"),
        ("rectifiers", "rectifier.name", rules, "docs/guide.md"),
        ("benchmarks", "benchmark.name", list_benchmark_names(), "docs/measuring.md"),
        ("further measures", "benchmark.measures", load_measures(), "docs/measuring.md"),
        ("models whose sizes and recipe are known", "backbone", known, "docs/one-server.md"),
    ]
    lines = ["| what | setting | values |", "|---|---|---|"]
    for what, setting, values, page in rows:
        lines.append(f"| {len(values)} [{what}]({page}) | `{setting}` | {', '.join(values)} |")
    lines.append("| [any causal language model](docs/own.md) of transformers | `target` | a folder or hub id |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(make_table())
