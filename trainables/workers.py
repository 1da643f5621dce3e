"""The one file that knows Ray: a trial inside a Tune actor that is used again for the next trial."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray import tune

from trainables import commands, storage
from trainables.config import Trial
from trainables.errors import InputError

REPORT_SECONDS = 2.0


class TrialActor(tune.Trainable):
    """Runs one-rank trials, one after another; Tune's configuration is `{"trial": {...}, "storage": root}`."""

    def setup(self, config: dict[str, Any]) -> None:
        commands.quiet()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial into the same process: nothing of the last one is kept but imported modules."""
        self.events: Iterator[dict[str, Any]] | None = None
        self.trial = Trial.model_validate(new_config["trial"])
        self.store = storage.Storage(Path(new_config["storage"]))
        return True

    def step(self) -> dict[str, Any]:
        """Go on for about two seconds, or to the end."""
        from trainables import trial

        if self.events is None:
            self.events = trial.run(self.trial, self.store)
        try:
            return self._go_on(self.events)
        except InputError as error:
            return _final(trial.refused(self.trial, self.store, str(error)))

    def _go_on(self, events: Iterator[dict[str, Any]]) -> dict[str, Any]:
        begun = time.monotonic()
        told: dict[str, Any] = {}
        for event in events:
            if event["phase"] == "done":
                return _final(event["result"])
            told = {"phase": event["phase"], "step": event.get("step", 0), "steps": event.get("steps", 0)}
            if event["phase"] == "evaluation" or time.monotonic() - begun > REPORT_SECONDS:
                break
        return {"id": self.trial.id(), "done": False, **told}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the storage is the truth."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see save_checkpoint."""


def _final(result: dict[str, Any]) -> dict[str, Any]:
    found = result["metrics"]
    return {
        "id": result["id"],
        "done": True,
        "phase": "done",
        "status": result["status"],
        "forget_quality": found.get("forget_quality"),
        "model_utility": found.get("model_utility"),
    }
