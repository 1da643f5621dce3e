"""As another user of this machine: what can be read of a folder, and what answers at ports. Its own program, for root.

`python other_user.py FOLDER HOST:PORT ...` prints JSON: `read`, the files that it could read; `answers`, by address.
"""

import http.client
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

NOBODY = 65534
METHODS = ("NodeInfoGcsService/GetAllNodeInfo", "NodeManagerService/GetSystemConfig", "ReporterService/HealthCheck")
METHODS += ("CoreWorkerService/GetCoreWorkerStats", "ObjectManagerService/Pull")
"""A method of each kind of server that a sweep's Ray has. Who may call it may call the others of that server."""
SILENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "no HTTP"}
"""What a port answers that serves neither gRPC nor HTTP, such as the one that gloo opens for a rank."""


def ask(address: str) -> list[str]:
    """Return what an address answers to each call, and to a request by HTTP; OK where it served one."""
    found = []
    with grpc.insecure_channel(address) as channel:
        for method in (*METHODS, "RayletDriver/ClusterInfo"):  # the last: of `ray://` addresses, on a head
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=10)
                found.append(f"OK {method}")
            except grpc.RpcError as error:
                found.append(error.code().name)  # type: ignore[attr-defined]
            if found[-1] in SILENT:  # it does not speak gRPC
                break
    try:
        request = http.client.HTTPConnection(address, timeout=3)
        request.request("GET", "/metrics")
        found.append(str(request.getresponse().status))
    except (OSError, http.client.HTTPException):
        found.append("no HTTP")
    return found


def find_breaches(told: dict[str, Any]) -> list[str]:
    """Return what another user could read or call, and which of Ray's kinds of servers nobody asked."""

    def is_open(found: list[str]) -> bool:
        return not {"UNAUTHENTICATED", "401"} & set(found) or any(answer.startswith("OK") for answer in found)

    kept = {at: found for at, found in told["answers"].items() if not set(found) <= SILENT}
    asked = {place for found in kept.values() for place, answer in enumerate(found) if answer == "UNAUTHENTICATED"}
    return [
        *(f"could read: {path}" for path in told["read"]),
        *(f"let in: {at} answers {found}" for at, found in kept.items() if is_open(found)),
        *(f"not asked: {METHODS[place]}" for place in range(len(METHODS)) if place not in asked),
    ]


if __name__ == "__main__":
    ask("127.0.0.1:9")  # imports what nobody may read
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    files = (Path(place, name) for place, _, names in os.walk(sys.argv[1]) for name in names)
    read = [str(file) for file in files if os.access(file, os.R_OK)]
    with ThreadPoolExecutor(len(sys.argv)) as pool:  # one that lets a call wait holds up no other
        answers = dict(zip(sys.argv[2:], pool.map(ask, sys.argv[2:]), strict=True))
    print(json.dumps({"read": read, "answers": answers}))
