"""Numbers in words, as messages say them: durations, counts, amounts and sizes; and texts as Markdown takes them."""

import re
from collections.abc import Sequence


def format_duration(seconds: float) -> str:
    """Return `42 s`, `3.5 min` or `2.1 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_count(count: int, name: str) -> str:
    """Return `1 model` or `2 models`."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def format_bytes(count: float) -> str:
    """Return bytes as `1.5 MB`, `512 MB` or `13.5 GB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def format_row_numbers(numbers: Sequence[int], most: int = 10) -> str:
    """Return `row 4`, `rows 1, 2, 3`, or the first ones and how many more there are."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"row{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers[:most]))}{more}"


def escape_markdown(text: str) -> str:
    """Return a text that Markdown shows as it stands: no HTML, link or image of it counts."""
    return re.sub(r"([\\`*\[\]<>!|~&])", r"\\\1", text)
