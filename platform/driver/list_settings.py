"""The settings of a sweep that `--set` takes: what each accepts, its value in the sweep, and what reads it."""

from __future__ import annotations

import json
from typing import Any

from platform.plan.overrides import BACKBONE, list_settable_paths
from platform.plan.space import read_setting, spell_setting
from search_spaces.schema.axes import axis_paths, value_type
from search_spaces.schema.settings_with_effect import has_effect
from search_spaces.schema.sweep import FILES, Sweep

SIGNS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
ENDLESS = 1e9
"""Bounds from here on only keep arithmetic finite."""


def print_fields(sweep: Sweep, *, as_json: bool) -> int:
    """Print every setting that --set takes; return the exit status."""
    rows = [describe_field(path, sweep) for path in list_settable_paths()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    lines = [("setting", "accepts", f"in {sweep.name}", ""), *(tuple(map(str, row.values())) for row in rows)]
    widths = [min(40, max(map(len, column))) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0


def describe_field(path: str, sweep: Sweep) -> dict[str, str]:
    """Return a setting's path, what it accepts, its value or values in a sweep, and whether the sweep reads it."""
    axis = path in axis_paths()
    cells = [(method, name) for method in sweep.axes["method"] for name in sweep.axes["rectifier.name"]]
    if path == BACKBONE:
        value, accepts = sweep.backbone and sweep.backbone.name, "name of a backbone"
        read = value is not None
    else:
        value = sweep.axes.get(path, read_setting(sweep, path))
        read = path not in FILES or sweep.name == "own"
        if axis or path.startswith("objective."):
            read = any(has_effect(path, *cell, sweep.axes) for cell in cells)
        schema = value_type(path, Sweep).json_schema()
        accepts = describe_schema(schema, schema.get("$defs", {}))
    note = ("may be an axis" if axis else "") if read else "nothing here reads it"
    return {"setting": path, "accepts": accepts, "value": spell_setting(value), "note": note}


def describe_schema(schema: dict[str, Any], shared: dict[str, Any]) -> str:
    """Return what a JSON schema accepts in words: `number > 0`, `adamw|sgd`, `whole number >= 1 or none`."""
    if "$ref" in schema:
        return describe_schema(shared[schema["$ref"].rpartition("/")[2]], shared)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(describe_schema(one, shared) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return "|".join(map(str, schema.get("enum", [schema.get("const")])))
    kind = str(schema.get("type", "value"))
    if kind == "array":
        inside = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
        return f"{describe_schema(inside, shared)}, several with commas"
    bounds = [f"{sign} {schema[name]:g}" for name, sign in SIGNS.items() if abs(schema.get(name, ENDLESS)) < ENDLESS]
    words = {"integer": "whole number", "string": "text", "boolean": "true|false", "null": "none"}
    return " ".join([words.get(kind, kind), *bounds])
