"""What can be wrong in a cluster file for AWS; nothing is asked of AWS, the names are those of botocore's own model."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform.cluster.checks import address, strangers
from platform.cluster.file import OURS, ClusterFile, is_filled, listing, mapping
from trainables.common.errors import InputError, closest

RAYS = (
    "type",
    "region",
    "availability_zone",
    "cache_stopped_nodes",
    "use_internal_ips",
    "security_group",
    "key_pair",
    "aws_credentials",
    "cloudwatch",
)
KEYS = (*RAYS, *OURS, "ssh_from", "security_group_id", "head_profile", "worker_profile")
WIDEST = {4: 8, 6: 16}
"""The shortest prefix of addresses that may be let in, by the version of IP."""
ARM = re.compile(r"a1\.|[a-z]+\d+g|(?:u-)?p6e-gb")
"""Instance types with processors of AWS's own; all others but some Macs have those of Intel or AMD."""
SUBNETS = "SubnetIds"
"""The one name in a node_config that is Ray's and not EC2's."""
FULL = {12: 4, 24: 4, 48: 8}
GPUS: dict[str, dict[int, int]] = {
    "g4dn": {12: 4},
    "g5": FULL,
    "g6": FULL,
    "g6e": FULL,
    "g7": {12: 2, 24: 4, 48: 8},
    "g7e": {12: 2, 24: 4, 48: 8},
    "p3dn": {24: 8},
    "p4d": {24: 8},
    "p4de": {24: 8},
    "p5": {48: 8},
    "p5e": {48: 8},
    "p5en": {48: 8},
    "p6-b200": {48: 8},
    "p6-b300": {48: 8},
}
"""GPUs by family and size (24 is `24xlarge`); every other size of these families has one."""


def problems(file: ClusterFile) -> Iterator[str]:
    """All that keeps the file from being used on AWS."""
    yield from strangers(file.provider, KEYS, "provider.")
    yield from _region(file)
    yield from _storage(file)
    yield from _ssh(file)
    yield from _open(file)
    if not file.node_types:
        yield "available_node_types: missing; Ray's own have neither GPUs nor a closed security group"
    for name, kind in file.node_types.items():
        place = f"available_node_types.{name}"
        node = mapping(kind.get("node_config"))
        yield from _request(node, f"{place}.node_config")
        yield from _needed(file, name, node, f"{place}.node_config")
        yield from _processor(node, f"{place}.node_config")
        yield from _resources(kind, place)


def account_problems(file: ClusterFile) -> Iterator[str]:
    """Those of the values that `platform.cluster account` goes by."""
    yield from _region(file)
    yield from address(file)
    yield from _storage(file)
    yield from _ssh(file)


def notes() -> list[str]:
    """What `ray up` needs of this machine, beside the file."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    files = (
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")),
        Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")),
    )
    if any(os.environ.get(name) for name in names) or any(path.expanduser().is_file() for path in files):
        return []
    return ["no AWS credentials found; `ray up` needs AWS_PROFILE, ~/.aws/credentials or AWS_ACCESS_KEY_ID"]


def _region(file: ClusterFile) -> Iterator[str]:
    import botocore.loaders
    import botocore.regions

    region, zones = file.provider.get("region"), file.provider.get("availability_zone")
    if region is None:
        yield "provider.region: missing; such as us-east-1"
    if not is_filled(region):
        return
    resolver = botocore.regions.EndpointResolver(botocore.loaders.Loader().load_data("endpoints"))
    partitions = resolver.get_available_partitions()  # AWS's own, GovCloud, China, ...
    known = [name for partition in partitions for name in resolver.get_available_endpoints("ec2", partition)]
    if region not in known:
        yield f"provider.region: unknown region '{region}'; {closest(str(region), known)}"
    for zone in str(zones).split(",") if zones else ():
        if not zone.strip().startswith(str(region)):
            yield f"provider.availability_zone: '{zone.strip()}' is not in {region}"


def _storage(file: ClusterFile) -> Iterator[str]:
    storage = file.storage
    if storage is None:
        yield "provider.storage: missing; s3://BUCKET/FOLDER, which every node sees"
    if not is_filled(storage) or (not str(storage).startswith("file:") and "://" in str(storage)):
        return
    folder = str(storage).removeprefix("file://")
    if not any(re.search(r"\bmount\b", command) and folder in command for _, command in file.commands()):
        yield (
            f"provider.storage: '{storage}' is a folder of each node by itself, no node would see another's results; "
            "give s3://BUCKET/FOLDER, or mount EFS there in setup_commands"
        )


def ssh_source(file: ClusterFile) -> str:
    """Who may log in, as EC2 takes it: `203.0.113.7` is 203.0.113.7/32. Raises InputError for what is no network, and
    for one that is as good as open.
    """
    source = file.provider.get("ssh_from")
    try:
        network = ipaddress.ip_network(str(source))
    except ValueError as error:
        raise InputError(f"provider.ssh_from: {error}; write it like 203.0.113.7/32") from error
    if _is_wide(network):
        raise InputError(
            f"provider.ssh_from: {source} is the whole world or much of it (wider than /{WIDEST[network.version]}); "
            "name your own address, like 203.0.113.7/32"
        )
    return str(network)


def _is_wide(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    return network.prefixlen < WIDEST[network.version]


def _ssh(file: ClusterFile) -> Iterator[str]:
    source = file.provider.get("ssh_from")
    if source is not None and (not isinstance(source, str) or is_filled(source)):
        try:
            ssh_source(file)
        except InputError as error:
            yield str(error)


def _open(file: ClusterFile) -> Iterator[str]:
    """Rules for Ray's own group that let anybody in."""
    rules = mapping(file.provider.get("security_group")).get("IpPermissions")
    for index, rule in enumerate(listing(rules)):
        ranges = [*listing(mapping(rule).get("IpRanges")), *listing(mapping(rule).get("Ipv6Ranges"))]
        for item in ranges:
            source = str(mapping(item).get("CidrIp", mapping(item).get("CidrIpv6")))
            with contextlib.suppress(ValueError):  # what is no network EC2 refuses
                if _is_wide(ipaddress.ip_network(source, strict=False)):
                    yield f"provider.security_group.IpPermissions[{index}]: opens its ports to the world ({source})"


def _needed(file: ClusterFile, name: str, node: dict[str, Any], place: str) -> Iterator[str]:
    """What Ray would put something bad in for, where it is left out."""
    image = node.get("ImageId")
    if not image or str(image).lower() == "latest_dlami":
        yield f"{place}.ImageId: missing; Ray's own image is Ubuntu 18.04, whose Python is too old for this project"
    elif is_filled(image) and not re.match(r"ami-[0-9a-f]+$|resolve:ssm:/?\S+$", image):
        yield f"{place}.ImageId: '{image}' is neither ami-... nor resolve:ssm:/aws/service/..."
    groups = listing(node.get("SecurityGroupIds"))
    if not groups and "NetworkInterfaces" not in node:
        yield f"{place}.SecurityGroupIds: missing; Ray would make a group that opens ssh to the world (0.0.0.0/0)"
    for group in groups:
        if is_filled(group) and not re.match(r"sg-[0-9a-f]+$", group):
            yield f"{place}.SecurityGroupIds: '{group}' is no id of a security group (sg-...)"
    if "IamInstanceProfile" not in node:
        yield f"{place}.IamInstanceProfile: missing; without it this node may not read the storage"
    if "ssh_private_key" in mapping(file.content.get("auth")) and not {"KeyName", "UserData"} & node.keys():
        yield f"{place}.KeyName: missing; with auth.ssh_private_key each node type names the key's pair in EC2"
    if name == file.head and "InstanceMarketOptions" in node:
        yield f"{place}.InstanceMarketOptions: a head on spot takes the whole cluster with it when it is reclaimed"


def _request(node: dict[str, Any], place: str) -> Iterator[str]:
    """A node_config against the request that Ray makes of it."""
    import botocore.validate

    shape = _run_instances()
    wanted = {name: value for name, value in node.items() if name != SUBNETS}
    yield from _fields(wanted, shape, place)
    report = botocore.validate.ParamValidator().validate({**wanted, "MinCount": 1, "MaxCount": 1}, shape)
    for line in report.generate_report().splitlines():
        if not line.startswith("Unknown parameter"):
            yield f"{place}: {line}"
    if "InstanceType" not in node:
        yield f"{place}.InstanceType: missing; such as p4de.24xlarge"


@functools.cache
def _run_instances() -> Any:
    """The shape of EC2's request for machines, as botocore has it; without a session, which would want a profile."""
    import botocore.loaders
    import botocore.model

    model = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("ec2", "service-2"), "ec2")
    return model.operation_model("RunInstances").input_shape


def _fields(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Names that the request does not have, and words that a field does not take."""
    if shape.type_name == "structure":
        known = [*shape.members, SUBNETS] if shape.name == "RunInstancesRequest" else list(shape.members)
        for name, inner in mapping(value).items():
            if name in shape.members:
                yield from _fields(inner, shape.members[name], f"{place}.{name}")
            else:
                yield f"{place}.{name}: unknown key; {_near(str(name), known)}"
    elif shape.type_name == "list":
        for index, inner in enumerate(listing(value)):
            yield from _fields(inner, shape.member, f"{place}[{index}]")
    elif shape.type_name == "string" and shape.enum and is_filled(value) and value not in shape.enum:
        yield f"{place}: '{value}' is none that EC2 knows; {_near(value, shape.enum)}"


def _near(name: str, known: list[str]) -> str:
    """The closest alone where there is one: EC2 has 1,400 instance types."""
    told = closest(name, known)
    return told.split(" known:")[0] if told.startswith("did you mean") else "see EC2's RunInstances"


def _processor(node: dict[str, Any], place: str) -> Iterator[str]:
    """An image for processors that the machine does not have, as far as the two names tell."""
    instance, image = str(node.get("InstanceType")), re.search(r"arm64|amd64|x86_64", str(node.get("ImageId")))
    has = "arm64" if ARM.match(instance) else "amd64"
    if image and (image[0] == "arm64") != (has == "arm64"):
        yield f"{place}.ImageId: an image for {image[0]}, but {instance} is {has}; change one of the two"


def _resources(kind: dict[str, Any], place: str) -> Iterator[str]:
    instance = mapping(kind.get("node_config")).get("InstanceType")
    there = capacity(str(instance))
    for name, amount in there.items():
        wanted = mapping(kind.get("resources")).get(name)
        if isinstance(wanted, int) and wanted > amount:
            yield f"{place}.resources.{name}: {wanted}, but {instance} has {amount}"
        elif name == "GPU" and amount and wanted == 0:
            yield f"{place}.resources.GPU: 0, but {instance} has {amount}, which would idle"


def capacity(instance: str) -> dict[str, int]:
    """CPUs and GPUs of an instance type as far as its name tells them; empty where it does not.

    A size `Nxlarge` has 4 N virtual CPUs, but for hpc and some old families.
    """
    found = re.fullmatch(r"([a-z][\w-]*)\.(\d*)xlarge", instance)
    if found is None or re.match(r"hpc|c1|c4|d2|m2", found[1]):
        return {}
    family, size = found[1], int(found[2] or 1)
    if family in GPUS:
        return {"CPU": 4 * size, "GPU": GPUS[family].get(size, 1)}
    return {"CPU": 4 * size} | ({} if family[0] in "gp" else {"GPU": 0})
