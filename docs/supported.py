"""Print README.md's table of what is supported, from the code: `python -m docs.supported`."""

from __future__ import annotations

import importlib
import pkgutil

from search_spaces import backbones
from search_spaces.schema.backbones import Backbone
from trainables.benchmarks.measures import load_measures
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.types import benchmark_names


def list_backbones() -> list[str]:
    """Return the names of all backbones, by file."""
    modules = [
        importlib.import_module(f"{backbones.__name__}.{one.name}") for one in pkgutil.iter_modules(backbones.__path__)
    ]
    found = [value.name for module in modules for value in vars(module).values() if isinstance(value, Backbone)]
    return list(dict.fromkeys(found))


def make_table() -> str:
    """Return the table: what may be chosen, how, and where it is explained."""
    objectives = [row.label for row in METHODS.values() if not row.strength]
    vectors = [row.label for row in METHODS.values() if row.strength]
    rules = [row.label for name, row in RECTIFIERS.items() if name != "none"]
    rows = [
        ("objectives, each with every rectifier", "method", objectives, "docs/adding.md"),
        ("task vectors, which need no retain data", "method", vectors, "docs/guide.md"),
        ("rectifiers", "rectifier.name", rules, "docs/adding.md"),
        ("benchmarks", "benchmark.name", benchmark_names(), "docs/measuring.md"),
        ("further measures", "benchmark.measures", load_measures(), "docs/measuring.md"),
        ("models whose sizes and recipe are known", "backbone", list_backbones(), "docs/one-server.md"),
    ]
    lines = ["| what | setting | values |", "|---|---|---|"]
    for what, setting, values, page in rows:
        lines.append(f"| {len(values)} [{what}]({page}) | `{setting}` | {', '.join(values)} |")
    lines.append("| [any causal language model](docs/own.md) of transformers | `target` | a folder or hub id |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(make_table())
