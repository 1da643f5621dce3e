"""What keeps a cluster file from being used: values left to fill in, Ray's own schema, open ports, secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from platform.schedule.ray_environment import NO_METRICS
from trainables.common.errors import InputError
from trainables.common.redaction import SECRET_NAME, has_credentials

PLACEHOLDER = re.compile(r"FILL IN|(?<![\w$])REGISTRY/|:TAG\b|://BUCKET\b")
"""What our files and pages write in the place of a value."""
ASSIGNED = re.compile(r"""(?<!\$\{)(?<![\w.-])([\w.-]+)["']?[ \t]*[:=][ \t]*["']?(?=[^\s$`"'=])""")
"""A name in a text that gives it a value, not another variable's: NAME=VALUE, NAME: VALUE, "NAME": "VALUE"."""
DATABASE_USER = re.compile(r"(?<=postgresql://)[^:/@]+@")
"""A user without a password, which stands in ~/.pgpass."""
TOKEN_MODE = "RAY_AUTH_MODE=token"
OTHER_NETWORKS = "opens Ray's ports to other networks; leave it out and use `kubectl port-forward`"


@dataclass(frozen=True)
class ClusterFile:
    """A file of `ray up` or of KubeRay with its content, or a batch script for Slurm, whose content is empty."""

    path: Path
    text: str
    content: dict[str, Any]

    @property
    def provider(self) -> dict[str, Any]:
        return _as_mapping(self.content.get("provider"))

    @property
    def is_batch_script(self) -> bool:
        return self.text.startswith("#!") or "\n#SBATCH" in f"\n{self.text}"

    @property
    def is_kubernetes(self) -> bool:
        return "apiVersion" in self.content or "kind" in self.content


def load_cluster_file(path: str) -> ClusterFile:
    """Read a cluster file. Raises InputError where it is missing or not YAML."""
    place = Path(path).expanduser()
    try:
        file = ClusterFile(Path(path), place.read_text(encoding="utf-8"), {})
        content = {} if file.is_batch_script else yaml.safe_load(file.text)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"'{path}': {error.strerror}; name a cluster file, such as cluster.yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is no cluster file: it holds no `name: value` at its top")
    return ClusterFile(file.path, file.text, content)


def find_problems(file: ClusterFile) -> list[str]:
    """Return all that keeps the file from being used, as `place: what is wrong; what to do`."""
    found = [*_unfilled_problems(file)]
    if file.is_batch_script:
        lines = enumerate(file.text.splitlines(), 1)
        secrets = [secret for number, line in lines for secret in find_secrets(line, f"line {number}")]
        return found + [f"{secret}, which Slurm shows with the script; export it before sbatch" for secret in secrets]
    content = {key: value for key, value in file.content.items() if key != "file_mounts"}  # which names token files
    found += [f"{secret}; leave it out, whoever reads the file has it" for secret in find_secrets(content)]
    if file.is_kubernetes:
        return [*found, *_kuberay_port_problems(file)]
    if not file.provider.get("storage"):
        found.append("provider.storage: missing; name the storage that every node sees, such as s3://BUCKET/FOLDER")
    return [*found, *_schema_problems(file), *_port_problems(file)]


def is_filled(value: Any) -> bool:
    """Return whether a value is a text, and not what our files write in the place of one."""
    return isinstance(value, str) and not PLACEHOLDER.search(value)


def _unfilled_problems(file: ClusterFile) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines(), 1):
        written = line.removeprefix("#SBATCH").partition("#")[0].strip()
        if PLACEHOLDER.search(written):
            yield f"line {number}: still to be filled in ({written})"


def _schema_problems(file: ClusterFile) -> Iterator[str]:
    import jsonschema
    import ray.autoscaler

    schema = json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())
    for error in jsonschema.Draft7Validator(schema).iter_errors(file.content):
        place = ".".join(map(str, error.absolute_path))
        yield f"{place or file.path}: {error.message.replace(chr(10), ' ')}"


def _port_problems(file: ClusterFile) -> Iterator[str]:
    """Yield what lets others in at a cluster of `ray up`: no token, a dashboard, metrics or ssh for all."""
    settings = [TOKEN_MODE, *(f"{name}={value}" for name, value in NO_METRICS.items())]
    for section in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [text for text in map(str, _as_list(file.content.get(section))) if "ray start" in text]
        for setting in settings:
            if not starts or any(setting not in text.split() for text in starts):
                yield f"{section}: `ray start` without {setting}; whoever reaches its ports would be answered"
        for host in re.findall(r"--dashboard-host[= ](\S+)", " ".join(starts)):
            if host not in ("127.0.0.1", "localhost"):
                yield f"{section}: --dashboard-host={host} shows the dashboard to others; write 127.0.0.1"
    if file.provider.get("type") == "aws":
        for name, node_type in _as_mapping(file.content.get("available_node_types")).items():
            node = _as_mapping(_as_mapping(node_type).get("node_config"))
            if not {"SecurityGroupIds", "NetworkInterfaces"} & node.keys():
                place = f"available_node_types.{name}.node_config.SecurityGroupIds"
                yield f"{place}: missing; Ray would make a group that opens ssh to the world (0.0.0.0/0)"


def _kuberay_port_problems(file: ClusterFile) -> Iterator[str]:
    """Yield what lets others in at a cluster of KubeRay."""
    cluster = _as_mapping(_as_mapping(file.content.get("spec")).get("rayClusterSpec"))
    if _as_mapping(cluster.get("authOptions")).get("mode") != "token":
        yield "spec.rayClusterSpec.authOptions.mode: not token; whoever reaches Ray's ports could run code as you"
    for name in NO_METRICS:
        if name not in file.text:
            yield f"{name}: not set in any `env`; metrics would be served to all who reach a pod"
    for place, value in _walk(file.content):
        key = place.rpartition(".")[2]
        if (key in ("hostNetwork", "enableIngress", "hostPort", "externalIPs") and value) or (
            key in ("serviceType", "type") and value in ("LoadBalancer", "NodePort")
        ):
            yield f"{place}: {OTHER_NETWORKS}"


def find_secrets(content: Any, place: str = "") -> Iterator[str]:
    """Yield, as `place: what it is`, each secret that stands plainly in a text or in what was read from a file."""
    for where, value in _walk(content, place):
        if not isinstance(value, str):
            continue
        name = where.rpartition(".")[2] if value[:1] not in ("", "$") else ""
        for each in dict.fromkeys([name, *ASSIGNED.findall(value)]):
            if SECRET_NAME.search(each):
                yield f"{where}: {each} is a secret"
        if has_credentials(DATABASE_USER.sub("", value)):
            yield f"{where}: an address with a user name, password or token"


def _walk(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its place; in a pair of `name` and `value` the value is called by the name."""
    yield place, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _walk(value, f"{place}.{node.get('name', key) if key == 'value' else key}".lstrip("."))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _walk(value, f"{place}.{number}".lstrip("."))


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
