"""A hub of folders on the loopback: what huggingface_hub asks for, takes uploads, and has the failures that tests need.

`HOME/models/ORG/NAME/` and `HOME/datasets/ORG/NAME/` are the repositories. A commit is the digest of all that a folder
holds, so that writing to it moves `main`; older commits stay served. Weights are stored as with Git LFS, so that their
SHA-256 is known, other files by git's hash. Uploads (without Xet) need the token TOKEN; each replaces files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

LFS = (".safetensors", ".parquet")
TOKEN = "hf_invented-token-that-may-write"


@dataclass
class HubServer:
    """`busy`: whether files get 503. `gated`: ids whose files need a token.

    `requests`: every request, `GET /path`. `private`: ids of repositories that were made so. `objects`: what was
    uploaded of Git LFS, by SHA-256. `full`: whether commits are refused.
    """

    home: Path
    url: str = ""
    busy: bool = False
    gated: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    objects: dict[str, bytes] = field(default_factory=dict)
    full: bool = False

    def environment(self, cache: Path) -> dict[str, str]:
        """Return the variables that point huggingface_hub here."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def commit(self, kind: str, name: str) -> str:
        """Return the commit of a repository as it is now, and keep its files."""
        folder = self.home / kind / name
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        total = hashlib.sha1()
        for path, content in sorted(files.items()):
            total.update(f"{path} {hashlib.sha1(content).hexdigest()}\n".encode())
        self.commits[total.hexdigest()] = files
        return total.hexdigest()

    def downloads(self, word: str = "") -> list[str]:
        """Return the requests for files whose path has this word."""
        return [line for line in self.requests if line.startswith("GET") and "/resolve/" in line and word in line]


def _hash(name: str, content: bytes) -> str:
    """Return what the hub calls a file's content: SHA-256 of large files, git's SHA-1 of others."""
    if name.endswith(LFS):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            _, kind, org, name, endpoint, revision = [*parts, "revision", "main"][:6]
            return self._send_listing(kind, f"{org}/{name}", endpoint, revision)
        kind = "datasets" if parts[0] == "datasets" else "models"
        org, name, _, revision, *file = parts[kind == "datasets" :]
        return self._send_file(kind, f"{org}/{name}", revision, "/".join(file))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Take an upload: what is to be made, how each file is to be sent, and the commit."""
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(403, b"", {"X-Error-Message": "this token may not write"})
        parts = path.strip("/").split("/")
        name = "/".join(parts[2:4])
        if path == "/api/repos/create":
            return self._create(json.loads(content))
        if path == "/api/validate-yaml":
            return self._answer({"warnings": [], "errors": []})
        if parts[-1] == "batch":
            offers = [
                one | {"actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}", "header": {}}}}
                for one in json.loads(content)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": offers})
        if "preupload" in parts:
            paths = [one["path"] for one in json.loads(content)["files"]]
            modes = {path: "lfs" if path.endswith(LFS) else "regular" for path in paths}
            files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            return self._answer({"files": files})
        return self._commit(name, [json.loads(line) for line in content.splitlines()])

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.objects[hashlib.sha256(content).hexdigest()] = content
        self._send(200, b"")

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
        for line in lines:
            one = line["value"]
            if line["key"] == "header":
                continue
            place = self.hub.home / "models" / name / one["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            large = line["key"] == "lfsFile"
            place.write_bytes(self.hub.objects[one["oid"]] if large else base64.b64decode(one["content"]))
        if self.hub.full:
            return self._answer({"error": "storage limit reached"}, 403)
        commit = self.hub.commit("models", name)
        return self._answer(
            {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{name}/commit/{commit}"}
        )

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the tests read `requests`."""

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
        answer = tree if endpoint == "tree" else whole
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send_file(self, kind: str, name: str, revision: str, file: str) -> None:
        commit = self._find_commit(kind, name, revision)
        if commit is None:
            return None
        if self.hub.busy:
            return self._send(503, b"busy")
        if name in self.hub.gated and not self.headers.get("Authorization"):
            return self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        content = self.hub.commits[commit][file]
        known = _hash(file, content)
        return self._send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{known}"'})

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
