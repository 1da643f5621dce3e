"""A cluster file as it was written, before Ray's defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from trainables.common.errors import InputError

FILL_IN = "FILL IN"
OURS = ("storage", "mlflow_backend")
"""Keys under `provider` that this project reads, whatever the provider is."""
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
SET_STORAGE = re.compile(r"\bUNLEARN_STORAGE=['\"]?([^\s'\"$]+)")


@dataclass(frozen=True)
class ClusterFile:
    """A cluster file as it was written, before Ray's defaults."""

    path: Path
    content: dict[str, Any]

    @property
    def provider(self) -> dict[str, Any]:
        return mapping(self.content.get("provider"))

    @property
    def node_types(self) -> dict[str, dict[str, Any]]:
        return {str(name): mapping(kind) for name, kind in mapping(self.content.get("available_node_types")).items()}

    @property
    def head(self) -> str | None:
        return self.content.get("head_node_type")

    @property
    def storage(self) -> str | None:
        """Of the results: `provider.storage`, else what a command of the head sets UNLEARN_STORAGE to."""
        found = (SET_STORAGE.search(command) for _, command in self.commands("setup_commands", "head_setup_commands"))
        return self.provider.get("storage") or next((place[1] for place in found if place), None)

    def commands(self, *kinds: str) -> Iterator[tuple[str, str]]:
        """Every shell command of these kinds with its path in the file."""
        for kind in kinds or COMMANDS:
            for index, command in enumerate(listing(self.content.get(kind))):
                yield f"{kind}[{index}]", str(command)


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read(path: str) -> ClusterFile:
    """Raises InputError where the file is not there or not YAML."""
    try:
        content = yaml.safe_load(Path(path).expanduser().read_text())
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"'{path}': {error.strerror}; name a cluster file, such as cluster.yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is no cluster file: it holds no `name: value` at its top")
    return ClusterFile(Path(path), content)


def is_filled(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and FILL_IN not in value
