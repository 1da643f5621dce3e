"""How much anonymous memory this process comes to: files that are mapped, such as libraries, are not counted."""

from __future__ import annotations

import threading
from pathlib import Path

SAMPLED_EVERY = 0.002
"""Seconds."""


def anonymous_bytes() -> int:
    """RssAnon, as Linux tells it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


class Peak:
    """`with Peak() as peak`: `peak.growth` is the most bytes that there were above those at its start; sampled."""

    def __init__(self) -> None:
        self.base = anonymous_bytes()
        self.most = self.base
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    @property
    def growth(self) -> int:
        return self.most - self.base

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.ended.wait(SAMPLED_EVERY):
            self.most = max(self.most, anonymous_bytes())
