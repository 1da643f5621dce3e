"""A hub of folders on the loopback: what huggingface_hub asks for, uploads, and the failures that tests need.

`HOME/models/ORG/NAME/` and `HOME/datasets/ORG/NAME/` are the repositories. A commit is the digest of all that a folder
holds, so that writing to it moves `main`; older commits stay served. Weights have a SHA-256, as with Git LFS, other
files git's hash. Uploads need the token TOKEN; each replaces files.
"""

import base64
import contextlib
import hashlib
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch
import yaml
from safetensors.torch import save_file

from platform.sweep import hub_download
from trainables.data.hub_folders import HubRequirement, find_downloaded_folder
from trainables.storage.folder_storage import Storage

LFS = (".safetensors", ".parquet")
TOKEN = "hf_invented-token-that-may-write"
MODEL_ID, ROWS_ID, QUESTIONS_ID = "somebody/tiny", "somebody/authors", "somebody/questions"
TARGET = HubRequirement("models", MODEL_ID, None, "target=DIR")
TOKENIZER = HubRequirement("tokenizers", MODEL_ID, None, "tokenizer=DIR")
ROWS = HubRequirement("datasets", ROWS_ID)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass
class HubServer:
    """`full`: commits are refused. `gated`: ids whose files need a token.

    `requests`: every request, `GET /path`. `private`: ids of repositories that were made so.
    """

    home: Path
    url: str = ""
    full: bool = False
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, kind: str, name: str) -> str:
        """Return the commit of a repository as it is now, and keep its files."""
        folder = self.home / kind / name
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        total = hashlib.sha1()
        for path, content in sorted(files.items()):
            total.update(f"{path} {hashlib.sha1(content).hexdigest()}\n".encode())
        self.commits[total.hexdigest()] = files
        return total.hexdigest()

    def downloads(self) -> list[str]:
        """Return the requests for files."""
        return [line for line in self.requests if line.startswith("GET") and "/resolve/" in line]


def _hash(name: str, content: bytes) -> str:
    if name.endswith(LFS):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the tests read `requests`."""

    def _read_path(self) -> list[str]:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        return path.strip("/").split("/")

    def do_GET(self) -> None:
        parts = self._read_path()
        if parts[0] == "api":
            _, kind, org, name, endpoint, revision = [*parts, "revision", "main"][:6]
            return self._send_listing(kind, f"{org}/{name}", endpoint, revision)
        kind = "datasets" if parts[0] == "datasets" else "models"
        org, name, _, revision, *file = parts[kind == "datasets" :]
        return self._send_file(kind, f"{org}/{name}", revision, "/".join(file))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Take an upload: what is to be made, how each file is to be sent (in the commit), and the commit."""
        parts = self._read_path()
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(403, b"", {"X-Error-Message": "this token may not write"})
        if parts == ["api", "repos", "create"]:
            return self._create(json.loads(content))
        if parts == ["api", "validate-yaml"]:
            return self._answer({"warnings": [], "errors": []})
        if "preupload" in parts:
            paths = [one["path"] for one in json.loads(content)["files"]]
            files = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
            return self._answer({"files": files})
        return self._commit("/".join(parts[2:4]), [json.loads(line) for line in content.splitlines()])

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        folder = self.hub.home / "models" / name
        if folder.is_dir():
            return self._answer({"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"}, 409)
        folder.mkdir(parents=True)
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(name)
        return self._answer({"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        if self.hub.full:
            return self._answer({"error": "storage limit reached"}, 403)
        for one in (line["value"] for line in lines if line["key"] == "file"):
            place = self.hub.home / "models" / name / one["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(one["content"]))
        commit = self.hub.commit("models", name)
        url = f"{self.hub.url}/{name}/commit/{commit}"
        return self._answer({"success": True, "commitOid": commit, "commitUrl": url})

    def _find_commit(self, kind: str, name: str, revision: str) -> str | None:
        """Return the commit of a revision; None where there is none, which the answer says then."""
        exists = (self.hub.home / kind / name).is_dir()
        now = self.hub.commit(kind, name) if exists else ""
        found = now if revision == "main" else revision
        if found in self.hub.commits:
            return found
        self._send(404, b"", {"X-Error-Code": "RevisionNotFound" if exists else "RepoNotFound"})
        return None

    def _send_listing(self, kind: str, name: str, endpoint: str, revision: str) -> None:
        """Answer `revision` (the commit and its files) or `tree` (the files alone)."""
        commit = self._find_commit(kind, name, revision)
        if commit is None:
            return
        siblings: list[dict[str, Any]] = []
        tree: list[dict[str, Any]] = []
        for path, content in sorted(self.hub.commits[commit].items()):
            known, size = _hash(path, content), len(content)
            siblings.append({"rfilename": path, "size": size, "blobId": known})
            tree.append({"type": "file", "path": path, "size": size, "oid": known})
            if path.endswith(LFS):
                siblings[-1]["lfs"] = {"size": size, "pointerSize": 130, "sha256": known}
                tree[-1]["lfs"] = {"size": size, "pointerSize": 130, "oid": known}
        card = self.hub.commits[commit].get("README.md", b"").decode().split("---\n")
        whole = {"id": name, "modelId": name, "sha": commit, "tags": [], "siblings": siblings}
        whole |= {"private": name in self.hub.private, "cardData": yaml.safe_load(card[1]) if card[1:] else None}
        self._answer(tree if endpoint == "tree" else whole)

    def _send_file(self, kind: str, name: str, revision: str, file: str) -> None:
        commit = self._find_commit(kind, name, revision)
        if commit is None:
            return None
        if name in self.hub.gated and not self.headers.get("Authorization"):
            return self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        content = self.hub.commits[commit][file]
        return self._send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{_hash(file, content)}"'})

    def _answer(self, document: Any, status: int = 200) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def serve(home: Path) -> Iterator[HubServer]:
    """Serve the repositories below `home` until the block ends."""
    hub = HubServer(home)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = "http://{}:{}".format(*server.server_address[:2])
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class HubBench:
    """A hub, a storage and what was printed."""

    hub: HubServer
    store: Storage
    printed: io.StringIO = field(default_factory=io.StringIO)

    def fetch(self, *required: HubRequirement) -> None:
        with contextlib.redirect_stdout(self.printed):
            hub_download.fetch_requirements(required, self.store)

    def folder(self, requirement: HubRequirement) -> Path:
        found = find_downloaded_folder(requirement, self.store)
        assert found is not None
        return found

    def served(self, name: str, repository: str = f"models/{MODEL_ID}") -> Path:
        """Return a file of the hub."""
        return self.hub.home / repository / name

    def write(self, name: str, content: str, repository: str = f"models/{MODEL_ID}") -> None:
        path = self.served(name, repository)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def _write_model(folder: Path) -> None:
    """Write a model of two shards and what a repository has besides."""
    (folder / "original").mkdir(parents=True)
    tensors = {"a": torch.ones(64, 8), "b": torch.ones(32, 8)}
    for name, file in zip(tensors, SHARDS, strict=True):
        save_file({name: tensors[name]}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 96 * 8 * 4}, "weight_map": dict(zip(tensors, SHARDS, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text("{}")
    for name in ("pytorch_model.bin", "modeling_tiny.py", "README.md", "original/model.safetensors"):
        (folder / name).write_text("not read")


@contextmanager
def open_hub_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubBench]:
    """Serve a model until the block ends; a request that fails is not sent again."""
    from huggingface_hub import constants, file_download

    _write_model(tmp_path / "models" / MODEL_ID)
    with serve(tmp_path) as server:
        for name, value in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache" / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_TOKEN_PATH": str(tmp_path / "no-token"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(file_download, "_DEFAULT_RETRY_ON_STATUS_CODES", ())
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield HubBench(server, Storage(tmp_path / "store"))
