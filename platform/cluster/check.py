"""What keeps a cluster file from being used: values left to fill in, Ray's own schema, open ports, secrets."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from platform.schedule.ray_environment import METRICS_DISABLED
from trainables.common.errors import InputError
from trainables.common.redaction import SECRET_NAME_PATTERN, has_credentials
from trainables.common.regular_files import parse_yaml, read_text

PLACEHOLDER_PATTERN = re.compile(r"FILL IN|(?<![\w$])REGISTRY/|:TAG\b|://BUCKET\b")
"""What our files and pages write in the place of a value."""
ASSIGNMENT_PATTERN = re.compile(r"""(?<!\$\{)(?<![\w.-])([\w.-]+)["']?[ \t]*[:=][ \t]*["']?(?=[^\s$`"'=~./{\[&*|>])""")
"""A name that a line gives a value, not another variable's and no path: NAME=VALUE, NAME: VALUE, "NAME": "VALUE"."""
NAME_VALUE_PATTERN = re.compile(r"""["']?name["']?: *["']?([\w.-]+)["']?,?\s+["']?value["']?: *["']?(?=[^\s$"'])""")
"""A variable of a container: {name: NAME, value: VALUE}, on one line or on two."""
DATABASE_USER_PATTERN = re.compile(r"(?<=postgresql://)[^:/@]+@")
"""A user without a password, which stands in ~/.pgpass."""
PORT_OPENING_PATTERN = re.compile(
    r"\b((hostNetwork|enableIngress|hostPort|externalIPs):(?! *false)|(serviceType|type): *(LoadBalancer|NodePort))"
)


@dataclass(frozen=True)
class ClusterFile:
    """A file of `ray up` or of KubeRay with its content, or a batch script for Slurm, whose content is empty."""

    path: Path
    text: str
    is_batch_script: bool
    content: dict[str, Any]

    @property
    def provider(self) -> dict[str, Any]:
        return _as_mapping(self.content.get("provider"))

    @property
    def is_kubernetes(self) -> bool:
        return "apiVersion" in self.content or "kind" in self.content


def load_cluster_file(path: str) -> ClusterFile:
    """Read a cluster file. Raises InputError where it is missing or not YAML."""
    try:
        text = read_text(Path(path).expanduser())
        is_batch_script = text.startswith("#!") or "\n#SBATCH" in f"\n{text}"
        content = {} if is_batch_script else parse_yaml(text, yaml.SafeLoader)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"'{path}': {error.strerror}; name a cluster file, such as cluster.yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"'{path}' is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is no cluster file: it holds no `name: value` at its top")
    return ClusterFile(Path(path), text, is_batch_script, content)


def find_cluster_file_problems(file: ClusterFile) -> list[str]:
    """Return all that keeps the file from being used, as `place: what is wrong; what to do`."""
    lines = [line.removeprefix("#SBATCH").partition("#")[0].strip() for line in file.text.splitlines()]
    found = [f"line {number}: {problem}" for number, line in enumerate(lines, 1) for problem in _line_problems(line)]
    if file.is_batch_script:
        return found
    names = filter(SECRET_NAME_PATTERN.search, NAME_VALUE_PATTERN.findall("\n".join(lines)))
    found += [f"env: {name} is a secret; leave it out" for name in names]
    if file.is_kubernetes:
        return [*found, *_kuberay_problems(file, lines)]
    if not file.provider.get("storage"):
        found.append("provider.storage: missing; name the storage that every node sees, such as s3://BUCKET/FOLDER")
    import jsonschema
    import ray.autoscaler

    schema = json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())
    for error in jsonschema.Draft7Validator(schema).iter_errors(file.content):
        place = ".".join(map(str, error.absolute_path))
        found.append(f"{place or file.path}: {error.message.replace(chr(10), ' ')}")
    return [*found, *_port_problems(file)]


def _line_problems(line: str) -> Iterator[str]:
    """Yield the placeholders and secrets of a line without its comment."""
    if PLACEHOLDER_PATTERN.search(line):
        yield f"still to be filled in ({line})"
    for name in filter(SECRET_NAME_PATTERN.search, ASSIGNMENT_PATTERN.findall(line)):
        yield f"{name} is a secret; leave it out, whoever reads the file has it (Slurm: export it before sbatch)"
    if has_credentials(DATABASE_USER_PATTERN.sub("", line)):
        yield "an address with a user name, password or token; leave that out, whoever reads the file has it"


def _port_problems(file: ClusterFile) -> Iterator[str]:
    """Yield what lets others in at a cluster of `ray up`: no token, a dashboard, metrics or ssh for all."""
    settings = ["RAY_AUTH_MODE=token", *(f"{name}={value}" for name, value in METRICS_DISABLED.items())]
    for section in ("head_start_ray_commands", "worker_start_ray_commands"):
        commands = file.content.get(section)
        starts = [str(text) for text in commands if "ray start" in str(text)] if isinstance(commands, list) else []
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


def _kuberay_problems(file: ClusterFile, lines: list[str]) -> Iterator[str]:
    cluster = _as_mapping(_as_mapping(file.content.get("spec")).get("rayClusterSpec"))
    if _as_mapping(cluster.get("authOptions")).get("mode") != "token":
        yield "spec.rayClusterSpec.authOptions.mode: not token; whoever reaches Ray's ports could run code as you"
    for name in METRICS_DISABLED:
        if name not in file.text:
            yield f"{name}: not set in any `env`; metrics would be served to all who reach a pod"
    for number, line in enumerate(lines, 1):
        if PORT_OPENING_PATTERN.search(line):
            yield f"line {number}: {line} opens Ray's ports to other networks; use `kubectl port-forward` instead"


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
