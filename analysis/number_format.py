"""Numbers and settings as tables, figures and sentences print them."""

from __future__ import annotations

import pandas as pd

DASH = "—"
DEFAULT_DECIMALS = 4
"""Decimals of a number in a table, and of a difference between two."""


def format_as(value: float, form: str) -> str:
    """Return a number in this format, a dash for NaN; zero has no sign."""
    return DASH if pd.isna(value) else format(value, f"z{form}")


def format_number(value: float, decimals: int = DEFAULT_DECIMALS) -> str:
    """Return a number with so many decimals, a dash for NaN; zero has no sign."""
    return format_as(value, f".{decimals}f")


def format_change(value: float, digits: int) -> str:
    """Return a difference with its sign, as many decimals as its first digit takes beyond `digits`; zero is `0`."""
    if pd.isna(value) or not value:
        return DASH if pd.isna(value) else "0"
    return f"{value:+.{digits}f}" if round(value, digits) else f"{value:+.1g}"


def format_setting(value: float) -> str:
    """Return a value of gamma, tau or strength as tables and tidy frames spell it."""
    return "none" if pd.isna(value) else f"{value:g}"


def normalise_setting(setting: str) -> str:
    """Return a text of gamma or tau in one spelling: 1 for 1.0."""
    return setting if setting in ("", "none") else f"{float(setting):g}"
