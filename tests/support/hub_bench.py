"""A hub on the loopback, a storage and the messages of what is fetched from the one into the other, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from platform.sweep import hub_download
from tests.support.hub_server import HubServer, serve
from trainables.data.hub_folders import HubRequirement, find_folder
from trainables.storage.folder_storage import Storage

MODEL_ID, ROWS_ID, QUESTIONS_ID = "somebody/tiny", "somebody/authors", "somebody/questions"
TARGET = HubRequirement("models", MODEL_ID, None, "", "target=DIR")
TOKENIZER = HubRequirement("tokenizers", MODEL_ID, None, "", "tokenizer=DIR")
ROWS = HubRequirement("datasets", ROWS_ID)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass
class HubBench:
    """A hub, a storage and what was printed."""

    hub: HubServer
    store: Storage
    lines: list[str] = field(default_factory=list)

    def fetch(self, *required: HubRequirement) -> None:
        hub_download.fetch(required, self.store, self.lines.append)

    def folder(self, requirement: HubRequirement) -> Path:
        found = find_folder(requirement, self.store)
        assert found is not None
        return found

    def served(self, name: str, repository: str = f"models/{MODEL_ID}") -> Path:
        """Return a file of the hub."""
        return self.hub.home / repository / name

    def write(self, name: str, content: str, repository: str = f"models/{MODEL_ID}") -> None:
        path = self.served(name, repository)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def write_model(folder: Path) -> None:
    """Write a model of two shards and what a repository has besides."""
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
def open_hub_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubBench]:
    """Serve a model until the block ends; a request that fails is not sent again."""
    from huggingface_hub import constants, file_download

    write_model(tmp_path / "models" / MODEL_ID)
    with serve(tmp_path) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache" / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(file_download, "_DEFAULT_RETRY_ON_STATUS_CODES", ())
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield HubBench(server, Storage(tmp_path / "store"))
