"""A Kubernetes API server on loopback with RayJobs and pods, which kubectl and Ray's own client ask like a real one."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

KINDS = {"rayjobs": "RayJob", "rayclusters": "RayCluster", "pods": "Pod"}
PATH = re.compile(r"/(?:api|apis/ray\.io)/v1/namespaces/[^/]+/(?P<kind>\w+)(?:/(?P<name>[^/]+))?(?P<log>/log)?")


class Kubernetes:
    """What the server knows: objects by kind and name, logs by pod, what was asked and sent, what happens then."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.logs: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.sent: list[Any] = []
        self.on_create: Callable[[str, dict[str, Any]], None] = lambda kind, item: None
        self.on_get: Callable[[str], None] = lambda kind: None
        self.on_patch: Callable[[dict[str, Any]], None] = lambda item: None
        self.on_log_end: Callable[[str], None] = lambda pod: None
        self.refused: dict[str, str] = {}

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """Return status and content of an answer, a text for a log."""
        url = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.asked.append((method, target))
        self.sent.append(body)
        if url.path in DISCOVERY:
            return 200, DISCOVERY[url.path]
        match = PATH.fullmatch(url.path)
        if match is None or match["kind"] not in KINDS:
            return fail(404, "NotFound", "the server could not find the requested resource")
        kind, items = KINDS[match["kind"]], self.objects[match["kind"]]
        if reason := self.refused.get(f"{method} {match['kind']}"):
            return fail(403, "Forbidden", reason)
        if method == "POST":
            item = body | {"status": {}}
            items[item["metadata"]["name"]] = item
            self.on_create(match["kind"], item)
            return 201, item
        self.on_get(match["kind"])
        if match["name"] is None:
            selector = dict(part.split("=") for part in asked.get("labelSelector", "").split(",") if part)
            field = asked.get("fieldSelector", "").removeprefix("metadata.name=")
            found = [
                item
                for name, item in items.items()
                if field in ("", name) and selector.items() <= item["metadata"].get("labels", {}).items()
            ]
            if "watch" in asked:
                return 200, "".join(json.dumps({"type": "MODIFIED", "object": item}) + "\n" for item in found)
            version = "v1" if kind == "Pod" else "ray.io/v1"
            return 200, {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": found}
        if match["name"] not in items:
            return fail(404, "NotFound", f'{match["kind"]} "{match["name"]}" not found')
        if match["log"]:
            return 200, self.logs[match["name"]]
        if method == "DELETE":
            return 200, items.pop(match["name"])
        if method == "PATCH":
            items[match["name"]]["spec"] |= body["spec"]
            self.on_patch(items[match["name"]])
        return 200, items[match["name"]]


def fail(code: int, reason: str, message: str) -> tuple[int, Any]:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return code, status | {"reason": reason, "message": message}


def resource(name: str, verbs: str = "create delete get list patch watch") -> dict[str, Any]:
    kind = KINDS[name]
    return {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs.split()}


GROUP = {"groupVersion": "ray.io/v1", "version": "v1"}
DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.4"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource("pods")]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": "ray.io", "versions": [GROUP], "preferredVersion": GROUP}],
    },
    "/apis/ray.io/v1": {
        "kind": "APIResourceList",
        "groupVersion": "ray.io/v1",
        "resources": [resource("rayjobs"), resource("rayclusters")],
    },
    "/openapi/v3": {"paths": {"apis/ray.io/v1": {"serverRelativeURL": "/openapi/v3/apis/ray.io/v1"}}},
    "/openapi/v3/apis/ray.io/v1": {  # all that kubectl looks for: that the server itself refuses unknown fields
        "openapi": "3.0.0",
        "info": {"title": "", "version": ""},
        "paths": {
            "/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}": {
                "patch": {
                    "x-kubernetes-group-version-kind": {"group": "ray.io", "kind": "RayJob", "version": "v1"},
                    "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                }
            }
        },
    },
}


@contextmanager
def serve(state: Kubernetes, certificate: Path | None = None) -> Iterator[str]:
    """Serve `state` on a port of 127.0.0.1, by TLS with a certificate and its key in one file; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, content = state.answer(self.command, self.path, body)
            is_log = urlsplit(self.path).path.endswith("/log")
            text = content if isinstance(content, str) else json.dumps(content)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_log else "application/json")
            with suppress(ConnectionError):  # of a kubectl that was stopped meanwhile
                self.end_headers()
                self.wfile.write(text.encode())
            if is_log:
                state.on_log_end(urlsplit(self.path).path.split("/")[-2])

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(path: Path, address: str) -> None:
    cluster = {"name": "test", "cluster": {"server": address}}
    context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
    users = [{"name": "test", "user": {}}]
    content = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "users": users}
    path.write_text(json.dumps(content | {"clusters": [cluster], "contexts": [context]}))
