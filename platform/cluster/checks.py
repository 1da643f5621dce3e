"""What can be wrong in a cluster file, in words: Ray's own check stops at the first problem and lets most typos by."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform.cluster.file import FILL_IN, OURS, ClusterFile, is_filled, listing, mapping
from trainables.common.errors import closest
from trainables.common.redaction import has_credentials, redact

LOCAL = ("type", "head_ip", "worker_ips", "external_head_ip", *OURS)

RAYS_MOST = 2
"""Workers that Ray starts at most where the file does not say."""
ARROWS = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
"""Schemes of storages that pyarrow opens by itself; for others there is fsspec."""


def problems(file: ClusterFile) -> list[str]:
    """All that keeps the file from being used, as `place: what is wrong; what to do`."""
    from platform.cluster import shell

    found = [*unfilled(file), *_keys(file), *_schema(file), *_workers(file), *shell.problems(file)]
    found += [*_key(file), *address(file), *_backend(file)]
    match file.provider.get("type"):
        case "aws":
            from platform.cluster import aws

            found += aws.problems(file)
        case "local":
            found += _local(file)
    return found


def notes(file: ClusterFile) -> list[str]:
    """What a person should know, although the file can be used."""
    limits = [*_limits(file)]
    match file.provider.get("type"):
        case "aws":
            from platform.cluster import aws

            return [*limits, *aws.notes()]
        case "local":
            return limits
    return [*limits, f"provider.type: '{file.provider.get('type')}' was never tried; aws and local were"]


def unfilled(file: ClusterFile) -> Iterator[str]:
    """Values left to fill in; one that stands in several places by an anchor is named once, under `provider`."""
    told: set[int] = set()
    for path, value in [*_leaves(file.provider, "provider"), *_leaves(file.content, "")]:
        if isinstance(value, str) and FILL_IN in value and id(value) not in told:
            told.add(id(value))
            yield f"{path}: still to be filled in ('{value}')"


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, f"{path}.{name}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, node


def _ray_schema() -> dict[str, Any]:
    import ray.autoscaler

    return json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())


def _keys(file: ClusterFile) -> Iterator[str]:
    known = _ray_schema()["properties"]
    kinds = known["available_node_types"]["patternProperties"][".*"]["properties"]
    yield from strangers(file.content, known, "")
    yield from strangers(mapping(file.content.get("auth")), known["auth"]["properties"], "auth.")
    for name, kind in file.node_types.items():
        yield from strangers(kind, kinds, f"available_node_types.{name}.")
    if file.provider.get("type") == "local":
        yield from strangers(file.provider, LOCAL, "provider.")


def strangers(node: dict[str, Any], known: Any, place: str) -> Iterator[str]:
    """A line for every key that is not known."""
    for name in node:
        if name not in known:
            yield f"{place}{name}: unknown key; {closest(str(name), known)}"


def _schema(file: ClusterFile) -> Iterator[str]:
    """What Ray's schema says beyond unknown keys."""
    import jsonschema

    for error in jsonschema.Draft7Validator(_ray_schema()).iter_errors(file.content):
        if error.validator == "additionalProperties":
            continue
        place = ".".join(map(str, error.absolute_path)) or str(file.path)
        yield f"{place}: {error.message.replace(chr(10), ' ')}"


def _workers(file: ClusterFile) -> Iterator[str]:
    most, kinds = file.content.get("max_workers", RAYS_MOST), file.node_types
    if kinds and file.head not in kinds:
        yield f"head_node_type: '{file.head}' is no node type; {closest(str(file.head), kinds)}"
    for name, kind in kinds.items():
        low, high = kind.get("min_workers", 0), kind.get("max_workers")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            yield f"available_node_types.{name}.min_workers: {low} is more than its max_workers of {high}"
    lows = [kind.get("min_workers", 0) for kind in kinds.values() if isinstance(kind.get("min_workers", 0), int)]
    if isinstance(most, int) and sum(lows) > most:
        yield f"max_workers: {most} is less than the min_workers of all node types together ({sum(lows)})"
    workers = {name: kind.get("max_workers") for name, kind in kinds.items() if name != file.head}
    if workers and most == 0:
        yield "max_workers: 0; no worker would ever start"
    elif workers and not any(high != 0 for high in workers.values()):
        yield f"available_node_types.{next(iter(workers))}.max_workers: 0; no worker would ever start"


def _limits(file: ClusterFile) -> Iterator[str]:
    """Numbers of workers of which Ray takes the smaller one without a word."""
    most = file.content.get("max_workers")
    highs = {name: kind.get("max_workers") for name, kind in file.node_types.items() if name != file.head}
    numbers = {name: high for name, high in highs.items() if isinstance(high, int)}
    if most is None and sum(numbers.values()) > RAYS_MOST:
        yield (
            f"max_workers: missing; Ray starts {RAYS_MOST} workers at most, although the node types have "
            f"{sum(numbers.values())}; write max_workers: {sum(numbers.values())}"
        )
    for name, high in numbers.items():
        if isinstance(most, int) and high > most:
            yield (
                f"available_node_types.{name}.max_workers: {high} is more than the file's max_workers of {most}, "
                "which is the one that counts"
            )


def _key(file: ClusterFile) -> Iterator[str]:
    key = mapping(file.content.get("auth")).get("ssh_private_key")
    if is_filled(key) and not Path(key).expanduser().is_file():
        yield f"auth.ssh_private_key: '{key}' is not there"


def address(file: ClusterFile) -> Iterator[str]:
    """What makes the storage's address one that no node can open; nothing is asked of it."""
    import fsspec

    storage = file.storage
    scheme, separator, rest = str(storage).partition("://")
    if not is_filled(storage) or not separator or scheme == "file":
        return
    if has_credentials(storage):
        yield "provider.storage: the address holds a user name or password; leave them out"
    try:
        if scheme not in ARROWS:
            fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        yield f"provider.storage: {scheme}:// needs another package: {error}"
    except ValueError:
        yield f"provider.storage: unknown scheme '{scheme}' in '{storage}'; write it like s3://BUCKET/FOLDER"
    else:
        if not rest.partition("/")[0] and scheme != "hdfs":
            yield f"provider.storage: '{storage}' names no bucket; write it like s3://BUCKET/FOLDER"


def _backend(file: ClusterFile) -> Iterator[str]:
    backend = str(file.provider.get("mlflow_backend", "sqlite"))
    without_user = re.sub(r"(?<=://)[^:/@]+@", "", backend, count=1)
    if backend not in ("sqlite", "postgresql") and "://" not in backend:
        yield (
            f"provider.mlflow_backend: '{backend}'; {closest(backend, ('sqlite', 'postgresql'))}, or the address "
            "of a database such as postgresql://USER@HOST/DATABASE"
        )
    elif redact(without_user) != without_user:
        yield "provider.mlflow_backend: holds a password; leave it out and put it into ~/.pgpass on the head"


def _local(file: ClusterFile) -> Iterator[str]:
    provider = file.provider
    if not mapping(file.content.get("auth")).get("ssh_user"):
        yield "auth.ssh_user: missing; name the user that `ray up` logs in as"
    storage = file.storage
    if storage is None:
        yield "provider.storage: missing; a folder that every node has mounted (NFS) at the same path, or s3://..."
    elif is_filled(storage) and "://" not in storage and not storage.startswith("/"):
        yield f"provider.storage: '{storage}' is a relative path; write the whole one, the same on every node"
    head, workers = provider.get("head_ip"), provider.get("worker_ips")
    if head is None:
        yield "provider.head_ip: missing"
    if not listing(workers):
        yield "provider.worker_ips: missing; a list of the workers' addresses"
    addresses = [("provider.head_ip", head)] if head is not None else []
    addresses += [(f"provider.worker_ips[{index}]", address) for index, address in enumerate(listing(workers))]
    seen: dict[Any, str] = {}
    for place, address in addresses:
        if not is_filled(address):
            continue
        if address in seen:
            yield f"{place}: '{address}' is {seen[address]}, too; each node has its own address"
        seen.setdefault(address, place)
        if not is_address(address):
            yield f"{place}: '{address}' is neither an address nor a host name"


def is_address(text: str) -> bool:
    """Whether it is an IP address or can be a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        digits = re.fullmatch(r"[\d.]+", text)
        return not digits and bool(re.fullmatch(r"(?!-)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", text))
    return True
