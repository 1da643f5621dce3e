"""As another user of this machine: what can be read of a folder, and what answers at ports. Its own program, for root.

`python other_user.py FOLDER PORT ...` prints JSON: `read`, the files that it could read; `answers`, by port.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from pathlib import Path

import grpc

NOBODY = 65534
METHODS = (
    "NodeInfoGcsService/GetAllNodeInfo",
    "NodeManagerService/GetSystemConfig",
    "CoreWorkerService/GetCoreWorkerStats",
    "ObjectManagerService/Pull",
    "ReporterService/HealthCheck",
)
"""A method of each kind of server that Ray has. Who may call it may call the others of that server."""


def ask(port: int) -> list[str]:
    """Return what a port answers to each call, and to a request by HTTP; OK where it served one."""
    found = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in METHODS:
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=3)
                found.append(f"OK {method}")
            except grpc.RpcError as error:
                found.append(error.code().name)  # type: ignore[attr-defined]
            if found[-1] == "UNAVAILABLE":  # it does not speak gRPC
                break
    try:
        request = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        request.request("GET", "/metrics")
        found.append(str(request.getresponse().status))
    except (OSError, http.client.HTTPException):
        found.append("no HTTP")
    return found


def list_readable(folder: Path) -> list[str]:
    found = []
    for place, _, names in os.walk(folder):
        found += [str(Path(place, name)) for name in names if os.access(Path(place, name), os.R_OK)]
    return found


if __name__ == "__main__":
    ask(9)  # imports what nobody may read
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    answers = {port: ask(int(port)) for port in sys.argv[2:]}
    print(json.dumps({"read": list_readable(Path(sys.argv[1])), "answers": answers}))
