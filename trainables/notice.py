"""When a trial writes a checkpoint: every so many steps, and on the notice that its machine will be taken away."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trainables.engine import Engine

Notice = Callable[[], bool]
"""Whether this process's machine is about to be taken away."""


def never() -> bool:
    """Of a machine that stays."""
    return False


class Due:
    """Asked after every step, on all ranks alike. A notice, which any rank may get, counts once."""

    def __init__(self, every: int | None, leaving: Notice) -> None:
        self.every = every
        self.leaving = leaving
        self.left = leaving is never

    def __call__(self, engine: Engine, step: int) -> bool:
        if not self.left and engine.total(torch.tensor(float(self.leaving()))).item() > 0:
            self.left = True
            return True
        return bool(self.every) and step % self.every == 0
