"""What is wrong in a cluster file for AWS. Nothing is asked of AWS: the names are those of botocore's own model."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from platform.cluster.file import (
    FILL_IN,
    OWN_KEYS,
    ClusterFile,
    as_list,
    as_mapping,
    is_filled,
    storage_address_problems,
    unknown_keys,
)
from trainables.common.errors import InputError, closest

RAY_KEYS = ("type", "region", "availability_zone", "cache_stopped_nodes", "use_internal_ips", "key_pair")
RAY_KEYS += ("aws_credentials", "cloudwatch")
"""Not `security_group`: it adds to a group that Ray makes, which opens ssh to the world."""
KEYS = (*RAY_KEYS, *OWN_KEYS, "ssh_from", "security_group_id", "head_profile", "worker_profile")
SHORTEST_PREFIX = {4: 8, 6: 16}
"""Of a network that may be let in, by the version of IP."""


def find_problems(file: ClusterFile) -> Iterator[str]:
    """Yield all that keeps the file from being used on AWS."""
    yield from unknown_keys(file.provider, KEYS, "provider.")
    yield from account_problems(file)
    if not file.node_types:
        yield "available_node_types: missing; Ray's own have neither GPUs nor a closed security group"
    for name, node_type in file.node_types.items():
        place = f"available_node_types.{name}.node_config"
        node = as_mapping(node_type.get("node_config"))
        yield from _request_problems(node, place)
        yield from _bad_defaults(file, name, node, place)


def account_problems(file: ClusterFile) -> Iterator[str]:
    """Yield the problems of the values that `platform.cluster account` goes by."""
    yield from _region_problems(file)
    yield from storage_address_problems(file.storage)
    yield from _storage_problems(file)
    if file.provider.get("ssh_from") not in (None, FILL_IN):
        try:
            ssh_source(file)
        except InputError as error:
            yield str(error)


def _region_problems(file: ClusterFile) -> Iterator[str]:
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


def _storage_problems(file: ClusterFile) -> Iterator[str]:
    storage = file.storage
    if storage is None:
        yield "provider.storage: missing; s3://BUCKET/FOLDER, which every node sees"
    if not is_filled(storage) or ("://" in storage and not storage.startswith("file:")):
        return
    folder = storage.removeprefix("file://")
    if not any(folder in command for command in file.commands("setup_commands")):
        yield (
            f"provider.storage: '{storage}' is a folder of each node by itself, no node would see another's results; "
            "give s3://BUCKET/FOLDER, or mount EFS there in setup_commands"
        )


def ssh_source(file: ClusterFile) -> str:
    """Return the network that may log in: `203.0.113.7` is 203.0.113.7/32. Raises InputError if none or too wide."""
    source = file.provider.get("ssh_from")
    try:
        network = ipaddress.ip_network(str(source))
    except ValueError as error:
        raise InputError(f"provider.ssh_from: {error}; write it like 203.0.113.7/32") from error
    shortest = SHORTEST_PREFIX[network.version]
    if network.prefixlen < shortest:
        raise InputError(
            f"provider.ssh_from: {source} is the whole world or much of it (wider than /{shortest}); name your own "
            "address, like 203.0.113.7/32"
        )
    return str(network)


def _bad_defaults(file: ClusterFile, name: str, node: dict[str, Any], place: str) -> Iterator[str]:
    """Yield fields for which Ray takes a bad default, and names that EC2 would refuse after minutes."""
    image = node.get("ImageId")
    if not image or str(image).lower() == "latest_dlami":
        yield f"{place}.ImageId: missing; Ray's own image is Ubuntu 18.04, whose Python is too old for this project"
    elif is_filled(image) and not re.match(r"ami-[0-9a-f]+$|resolve:ssm:/?\S+$", image):
        yield f"{place}.ImageId: '{image}' is neither ami-... nor resolve:ssm:/aws/service/..."
    groups = as_list(node.get("SecurityGroupIds"))
    if not groups and "NetworkInterfaces" not in node:
        yield f"{place}.SecurityGroupIds: missing; Ray would make a group that opens ssh to the world (0.0.0.0/0)"
    for group in groups:
        if is_filled(group) and not re.match(r"sg-[0-9a-f]+$", group):
            yield f"{place}.SecurityGroupIds: '{group}' is no id of a security group (sg-...)"
    if "IamInstanceProfile" not in node:
        yield f"{place}.IamInstanceProfile: missing; without it this node may not read the storage"
    if "ssh_private_key" in file.auth and not {"KeyName", "UserData"} & node.keys():
        yield f"{place}.KeyName: missing; with auth.ssh_private_key each node type names the key's pair in EC2"
    if name not in file.workers and "InstanceMarketOptions" in node:
        yield f"{place}.InstanceMarketOptions: a head on spot takes the whole cluster with it when it is reclaimed"


def _request_problems(node: dict[str, Any], place: str) -> Iterator[str]:
    """Compare a node_config with the request that Ray makes of it."""
    import botocore.validate

    shape, instance = _run_instances(), node.get("InstanceType")
    yield from unknown_keys(node, [*shape.members, "SubnetIds"], f"{place}.")  # SubnetIds is Ray's own
    known = {name: value for name, value in node.items() if name in shape.members}
    report = botocore.validate.ParamValidator().validate({**known, "MinCount": 1, "MaxCount": 1}, shape)
    yield from (f"{place}: {line}" for line in report.generate_report().splitlines())
    if instance is None:
        yield f"{place}.InstanceType: missing; such as p4de.24xlarge"
    elif is_filled(instance) and instance not in (types := shape.members["InstanceType"].enum):
        hint = closest(instance, types).partition(" known:")[0]  # there are 1,400
        yield f"{place}.InstanceType: '{instance}' is none that EC2 knows; {hint}"


@functools.cache
def _run_instances() -> Any:
    """Return botocore's shape of EC2's request for machines. A session would want a profile."""
    import botocore.loaders
    import botocore.model

    model = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("ec2", "service-2"), "ec2")
    return model.operation_model("RunInstances").input_shape
