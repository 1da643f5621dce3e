"""How much anonymous memory this process comes to: files that are mapped, such as libraries, are not counted."""

from __future__ import annotations

import threading
from pathlib import Path

SAMPLE_SECONDS = 0.002


class Peak:
    """`with Peak() as peak`: `peak.growth` is the most bytes that there were above those at its start; sampled."""

    def __init__(self) -> None:
        self.base = _anonymous_bytes()
        self.growth = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.ended.wait(SAMPLE_SECONDS):
            self.growth = max(self.growth, _anonymous_bytes() - self.base)


def _anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])
