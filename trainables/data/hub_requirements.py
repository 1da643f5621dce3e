"""What a sweep wants of the hub: a model, a tokenizer, a data set or the questions of a task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["models", "tokenizers", "datasets", "tasks"]
DATA = "data"
"""The part of a benchmark that `benchmark.data` names; the others are its sources."""
CONFIGURATION = ("config.json", "generation_config.json")
TOKENIZER = ("*token*.json", "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken", "*.jinja")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
FILES = {"models": CONFIGURATION + TOKENIZER + WEIGHTS, "tokenizers": CONFIGURATION[:1] + TOKENIZER}
"""By kind, the files at the top of a repository that are read: never pickles, never code."""
MODEL = (
    *CONFIGURATION,
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors (or model.safetensors.index.json with all its shards)",
)
NAMES = {"models": "model", "tokenizers": "tokenizer", "datasets": "data set", "tasks": "questions of"}


@dataclass(frozen=True)
class Wanted:
    """One thing on the hub. Of `tasks` the id is lm-eval's task, which names the data set and its configuration.

    `part`: of a benchmark, DATA or the name of a source. `setting`: names a folder in its place, `target=DIR`.
    `folder`: where one DIR is for several things, its own folder there. `holds`: the files that it has to hold,
    `endings`: others that each of them may have. `bytes`: its size, where that is known without asking. `gated`: what
    to accept, where that is known.
    """

    kind: Kind
    id: str
    revision: str | None = None
    part: str = DATA
    setting: str = "benchmark.data=DIR"
    holds: tuple[str, ...] = ("its files",)
    endings: tuple[str, ...] = ()
    bytes: int | None = None
    gated: str = ""
    folder: str = ""

    @property
    def key(self) -> str:
        """Its name in a storage: `models--ORG--NAME@main`."""
        return name(self.kind, self.id, self.revision or "main")

    @property
    def field(self) -> str:
        """The setting that messages begin with."""
        return self.setting.split("=", 1)[0]

    @property
    def place(self) -> str:
        """Where its files go before `setting` is given: `DIR`, `DIR/retain95`."""
        return f"DIR/{self.folder}" if self.folder else "DIR"

    @property
    def instead(self) -> str:
        """`--set models=DIR with it in DIR/retain95`."""
        return f"--set {self.setting}" + (f" with it in {self.place}" if self.folder else "")

    @property
    def files(self) -> str:
        """`forget05.json, retain95.json (or .jsonl, .parquet)`."""
        return ", ".join(self.holds) + (f" (or {', '.join(self.endings)})" if self.endings else "")

    @property
    def called(self) -> str:
        """`model ORG/NAME`."""
        return f"{NAMES[self.kind]} {self.id}"


def name(kind: str, hub_id: str, revision: str) -> str:
    """`models--ORG--NAME@REVISION`, as a name of a file or folder."""
    return f"{kind}--{hub_id.replace('/', '--')}@{re.sub(r'[^A-Za-z0-9._-]', '_', revision)}"
