"""A hub, a storage and what was said: for tests of what is fetched from the one into the other, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from platform.plan.requirements import MODEL
from platform.preparation import downloads
from platform.preparation import hub as hubs
from tests.support import hub_server
from trainables.data.hub import HubRequirement, find_folder
from trainables.storage.base import Storage

MODEL_ID, ROWS_ID, ASKED_ID = "somebody/tiny", "somebody/authors", "somebody/asked"
TARGET = HubRequirement("models", MODEL_ID, None, "", "target=DIR", MODEL)
TOKENIZER = HubRequirement("tokenizers", MODEL_ID, None, "", "tokenizer=DIR")
ROWS = HubRequirement("datasets", ROWS_ID)
ASKED = HubRequirement("datasets", ASKED_ID, None, "wmdp", "benchmark.sources=wmdp=DIR")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass
class Bench:
    """A hub, a storage and what was said."""

    hub: hub_server.Hub
    store: Storage
    said: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.store.root / "shared" / "hub"

    def fetch(self, *things: HubRequirement) -> None:
        plan: Any = SimpleNamespace(hub=things)
        hubs.fetch(plan, self.store, self.said.append)

    def folder(self, thing: HubRequirement) -> Path:
        found = find_folder(thing, self.store)
        assert found is not None
        return found

    def write(self, name: str, content: str | bytes, repository: str = f"models/{MODEL_ID}") -> None:
        path = self.hub.home / repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_model(folder: Path) -> None:
    """A model of two shards with what a repository has besides."""
    folder.mkdir(parents=True)
    tensors = {"a": torch.ones(64, 8), "b": torch.ones(32, 8)}
    for name, file in zip(tensors, SHARDS, strict=True):
        save_file({name: tensors[name]}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 96 * 8 * 4}, "weight_map": dict(zip(tensors, SHARDS, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text("{}")
    for name in ("pytorch_model.bin", "modeling_tiny.py", "README.md", "original/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("not read")


@contextmanager
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Until the block ends, with a model on the hub and without a wait between two tries."""
    from huggingface_hub import constants

    write_model(tmp_path / "models" / MODEL_ID)
    with hub_server.serving(tmp_path) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(downloads, "WAITS", (0.0, 0.0, 0.0))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield Bench(hub, Storage(tmp_path / "store"))
