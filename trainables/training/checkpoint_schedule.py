"""When a trial writes a checkpoint: every so many steps, and on the notice that its machine will be taken away."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trainables.training.engine import Engine

Notice = Callable[[], bool]
"""Whether this process's machine is about to be taken away."""


def never() -> bool:
    """Of a machine that stays."""
    return False


class Due:
    """Asked after every step, on all ranks alike. A notice, which any rank may get, counts once."""

    def __init__(self, every: int | None, notice: Notice) -> None:
        self.every = every
        self.notice = notice
        self.given = notice is never

    def __call__(self, engine: Engine, step: int) -> bool:
        if not self.given and engine.total(torch.tensor(float(self.notice()))).item() > 0:
            self.given = True
            return True
        return bool(self.every) and step % self.every == 0
