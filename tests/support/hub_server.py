"""A hub of folders on the loopback: what huggingface_hub asks for, and the accidents that tests want of it.

`HOME/models/ORG/NAME/` and `HOME/datasets/ORG/NAME/` are the repositories. A commit is the digest of all that a folder
holds, so that writing to it moves `main`; older commits stay served. Weights are stored as with Git LFS, so that their
SHA-256 is known, other files by git's hash.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LFS = (".safetensors", ".parquet")


@dataclass
class Hub:
    """`fails`: so many requests get 503. `short`: file name -> how often its last quarter is missing.

    `damaged`: file name -> how often a byte in its middle is another one. `gated`: ids whose files need a token.
    `told`: whether a listing tells hashes. `xet`: whether headers say that weights are in Xet (not served here).
    `asked`: every request, `GET /path`.
    """

    home: Path
    url: str = ""
    fails: int = 0
    short: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    told: bool = True
    xet: bool = False
    asked: list[str] = field(default_factory=list)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def environment(self, cache: Path) -> dict[str, str]:
        """What points huggingface_hub here."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def commit(self, kind: str, name: str) -> str | None:
        """The commit of a repository as it is now."""
        folder = self.home / kind / name
        if not folder.is_dir():
            return None
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        total = hashlib.sha1()
        for path, content in sorted(files.items()):
            total.update(f"{path} {hashlib.sha1(content).hexdigest()}\n".encode())
        self.commits[total.hexdigest()] = files
        return total.hexdigest()

    def count(self, word: str) -> int:
        return sum(word in line for line in self.asked)


def _sibling(name: str, content: bytes, told: bool) -> dict[str, object]:
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    found: dict[str, object] = {"rfilename": name, "size": len(content)}
    if told:
        found["blobId"] = git
    if told and name.endswith(LFS):
        found["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return found


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the tests read `asked`."""

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if self.hub.fails > 0:
            self.hub.fails -= 1
            return self._send(503, b"busy")
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) >= 6 and parts[4] == "revision":
            return self._listing(parts[1], "/".join(parts[2:4]), parts[5])
        kind = "datasets" if parts[0] == "datasets" else "models"
        parts = parts[1:] if kind == "datasets" else parts
        if len(parts) >= 5 and parts[2] == "resolve":
            return self._file(kind, "/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)
        return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _found(self, kind: str, name: str, revision: str) -> str | None:
        now = self.hub.commit(kind, name)
        return now if revision == "main" else revision if revision in self.hub.commits else None

    def _listing(self, kind: str, name: str, revision: str) -> None:
        commit = self._found(kind, name, revision)
        if commit is None:
            code = "RevisionNotFound" if (self.hub.home / kind / name).is_dir() else "RepoNotFound"
            return self._send(404, b"", {"X-Error-Code": code})
        files = [_sibling(path, content, self.hub.told) for path, content in sorted(self.hub.commits[commit].items())]
        document = {"id": name, "modelId": name, "sha": commit, "private": False, "tags": [], "siblings": files}
        return self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _file(self, kind: str, name: str, revision: str, file: str, body: bool) -> None:
        commit = self._found(kind, name, revision)
        if commit is None or file not in self.hub.commits[commit]:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit or ""})
        if name in self.hub.gated and not self.headers.get("Authorization"):
            return self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        content = self.hub.commits[commit][file]
        if body:
            content = self._spoilt(file, content)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if self.hub.xet and file.endswith(LFS):
            headers |= {"X-Xet-Hash": hashlib.sha256(content).hexdigest(), "X-Xet-Refresh-Route": f"{self.hub.url}/xet"}
        begin = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        if body and begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            return self._send(206, content[int(begin) :], headers)
        if not body and not self.hub.told:
            content = self._spoilt(file, content, count=False)
        return self._send(200, content, headers)

    def _spoilt(self, file: str, content: bytes, *, count: bool = True) -> bytes:
        for how in (self.hub.short, self.hub.damaged):
            if how.get(file, 0) > 0:
                how[file] -= count
                middle = len(content) // 2
                cut = content[: len(content) * 3 // 4]
                other = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
                return cut if how is self.hub.short else other
        return content

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def serving(home: Path) -> Iterator[Hub]:
    """A hub of the repositories below `home`, until the block ends."""
    hub = Hub(home)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = "http://{}:{}".format(*server.server_address[:2])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
