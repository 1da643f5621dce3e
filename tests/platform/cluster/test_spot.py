"""EC2's notice of a spot machine, from a server that stands for its metadata."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

NOTICE = b'{"action": "terminate", "time": "2026-01-01T00:00:00Z"}'


class Metadata(BaseHTTPRequestHandler):
    """As EC2's, version 2: nothing without a token, 404 where there is no notice."""

    given = False

    def do_PUT(self) -> None:
        wanted = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if wanted else 400, b"token")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            self._answer(401, b"")
        else:
            there = self.path == "/latest/meta-data/spot/instance-action" and Metadata.given
            self._answer(200 if there else 404, NOTICE)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def spot(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("METADATA", f"http://127.0.0.1:{server.server_address[1]}")
    yield SimpleNamespace(**runpy.run_path(str(root / "clusters" / "spot.py"), run_name="spot"))
    server.shutdown()


def test_notice_is_seen_when_it_is_given(spot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not EC2's gets none."""
    assert not spot.noticed()
    monkeypatch.setattr(Metadata, "given", True)
    assert spot.noticed()
    monkeypatch.setitem(spot.noticed.__globals__, "SERVER", "http://127.0.0.1:9/latest")
    assert not spot.noticed()
