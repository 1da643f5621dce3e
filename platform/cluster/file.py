"""A cluster file as it was written, of `ray up` before Ray's defaults or of KubeRay."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from trainables.common.errors import InputError, closest
from trainables.common.redaction import VARIABLES, has_credentials

FILL_IN = "FILL IN"
PLACEHOLDER = re.compile(rf"{FILL_IN}|(?<![\w$])REGISTRY/|:TAG\b|://BUCKET\b")
"""What our files and pages write in the place of a value."""
OWN_KEYS = ("storage", "mlflow_backend")
"""Keys under `provider` that this project reads, whatever the provider is."""
PYARROW_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
"""Schemes of storages that pyarrow opens by itself; for others there is fsspec."""

SECRET = re.compile(r"(?i)(token|secret|password|passwd|credential|(access|account|api)[_-]?key(_id)?)$")
ASSIGNED = re.compile(r"""(?<!\$\{)(?<![\w.-])([\w.-]+)["']?[ \t]*[:=][ \t]*["']?(?=[^\s$`"'=])""")
"""A name in a text that gives it a value, not another variable's: NAME=VALUE, NAME: VALUE, "NAME": "VALUE"."""


@dataclass(frozen=True)
class ClusterFile:
    """The content of a cluster file, with sections of the wrong type read as empty."""

    path: Path
    content: dict[str, Any]
    provider: dict[str, Any]
    auth: dict[str, Any]
    node_types: dict[str, dict[str, Any]]

    @property
    def storage(self) -> str | None:
        return self.provider.get("storage")

    @property
    def is_kubernetes(self) -> bool:
        return "apiVersion" in self.content or "kind" in self.content

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """The node types other than the head's."""
        return {name: node for name, node in self.node_types.items() if name != self.content.get("head_node_type")}

    def commands(self, section: str) -> list[str]:
        """Return the shell commands of a section, such as `setup_commands`."""
        return [str(command) for command in as_list(self.content.get(section))]


def as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def is_batch_script(text: str) -> bool:
    """Return whether a file's text is a script for Slurm."""
    return text.startswith("#!") or "\n#SBATCH" in f"\n{text}"


def load_cluster_file(path: str) -> ClusterFile:
    """Read a cluster file. Raises InputError where it is missing or not YAML."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        if is_batch_script(text):
            raise InputError(f"'{path}' is a batch script for Slurm; submit it with: sbatch {shlex.quote(path)}")
        content = yaml.safe_load(text)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"'{path}': {error.strerror}; name a cluster file, such as cluster.yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is no cluster file: it holds no `name: value` at its top")
    nodes = as_mapping(content.get("available_node_types")).items()
    node_types = {str(name): as_mapping(node) for name, node in nodes}
    return ClusterFile(
        Path(path), content, as_mapping(content.get("provider")), as_mapping(content.get("auth")), node_types
    )


def is_filled(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and not PLACEHOLDER.search(value)


def unknown_keys(node: dict[str, Any], known: Collection[str], place: str) -> Iterator[str]:
    """Yield a line for every key of `node` that is not known."""
    for name in node:
        if name not in known:
            yield f"{place}{name}: unknown key; {closest(str(name), known)}"


def storage_address_problems(storage: str | None, place: str = "provider.storage") -> Iterator[str]:
    """Yield why no node could open the address that stands at `place`. The storage itself is not asked."""
    import fsspec

    scheme, separator, rest = str(storage).partition("://")
    if not is_filled(storage) or not separator or scheme == "file":
        return
    if has_credentials(storage):
        yield f"{place}: the address holds a user name or password; leave them out"
    if scheme not in (*PYARROW_SCHEMES, *fsspec.available_protocols()):
        yield f"{place}: unknown scheme '{scheme}' in '{storage}'; write it like s3://BUCKET/FOLDER"
    elif not rest.partition("/")[0] and scheme != "hdfs":
        yield f"{place}: '{storage}' names no bucket; write it like s3://BUCKET/FOLDER"


def find_secrets(content: Any, place: str = "", name: str = "") -> Iterator[str]:
    """Yield, as `place: what it is`, each secret that stands plainly in what was read from a file.

    `name`: what the file calls a text: its key, or, of a pair of `name` and `value`, the name.
    """
    if isinstance(content, dict):
        for key, value in content.items():
            called = content.get("name", name) if key == "value" else key
            yield from find_secrets(value, f"{place}.{key}".lstrip("."), str(called))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from find_secrets(value, f"{place}.{number}", name)
    elif isinstance(content, str):
        names = [name] if content[:1] not in ("", "$") else []
        for each in dict.fromkeys([*names, *ASSIGNED.findall(content)]):
            if each in VARIABLES or SECRET.search(each):
                yield f"{place}: {each} is a secret"
        if has_credentials(content):
            yield f"{place}: an address with a user name, password or token"
