"""What an AWS account needs once per region before `ray up`: a closed security group and two instance profiles.

Ray's own group opens ssh to the world, and Ray's own profile may not start workers that have one.
"""

import contextlib
import ipaddress
import json
from typing import Any
from urllib.parse import urlsplit

from platform.cluster.check import PLACEHOLDER_PATTERN, load_cluster_file
from trainables.common.cli import print_line
from trainables.common.errors import InputError

SECURITY_GROUP = "unlearning"
EC2_TRUST_STATEMENT = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
EC2_POLICY = "AmazonEC2FullAccess"  # as Ray's own head has: it starts, tags and ends machines


def prepare_aws_account(path: str) -> int:
    """Make what a cluster file names and an account lacks; print the group. Raises InputError with what AWS refuses."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    provider = load_cluster_file(path).provider
    for name in ("region", "storage", "ssh_from", "head_profile", "worker_profile"):
        value = provider.get(name)
        if not isinstance(value, str) or PLACEHOLDER_PATTERN.search(value):
            raise InputError(f"provider.{name}: fill it in first")
    try:
        source = ipaddress.ip_network(provider["ssh_from"])
    except ValueError as error:
        raise InputError(f"provider.ssh_from: {error}; write it like 203.0.113.7/32") from error
    if source.prefixlen < 8:
        raise InputError(f"provider.ssh_from: {source} is much of the world; name your own, like 203.0.113.7/32")
    try:
        iam = boto3.client("iam", region_name=provider["region"])
        arn = f"arn:{iam.meta.partition}"  # aws, aws-us-gov, aws-cn
        rights: dict[str, list[Any]] = {}  # by the name of an inline policy of their own: other files use the role, too
        if provider["storage"].startswith("s3://"):
            bucket = urlsplit(provider["storage"]).netloc
            actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
            objects = {"Effect": "Allow", "Action": actions, "Resource": f"{arn}:s3:::{bucket}/*"}
            listed = ["s3:ListBucket", "s3:GetBucketLocation"]
            whole = {"Effect": "Allow", "Action": listed, "Resource": f"{arn}:s3:::{bucket}"}
            rights[f"storage-{bucket}"] = [objects, whole]
        worker = _ensure_profile(iam, provider["worker_profile"], rights)
        image = {"Effect": "Allow", "Action": "ssm:GetParameters", "Resource": f"{arn}:ssm:*::parameter/aws/service/*"}
        pass_role = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": worker}
        start = {f"start-{provider['worker_profile']}": [image, pass_role]}
        _ensure_profile(iam, provider["head_profile"], rights | start, managed=f"{arn}:iam::aws:policy/{EC2_POLICY}")
        group = _ensure_group(boto3.client("ec2", region_name=provider["region"]), str(source))
    except (BotoCoreError, ClientError) as error:
        raise InputError(f"AWS: {error}") from error
    print_line(f"fill in {path}: security_group_id: &group {group}")
    return 0


def _ensure_profile(iam: Any, name: str, rights: dict[str, list[Any]], managed: str | None = None) -> str:
    """Make a role and an instance profile of one name, add these rights to those it has, and return the role's ARN."""
    exists = iam.exceptions.EntityAlreadyExistsException
    with contextlib.suppress(exists):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy([EC2_TRUST_STATEMENT]))
    if managed:
        iam.attach_role_policy(RoleName=name, PolicyArn=managed)
    for policy, statements in rights.items():
        iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=_policy(statements))
    with contextlib.suppress(exists):
        iam.create_instance_profile(InstanceProfileName=name)
    if not iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return iam.get_role(RoleName=name)["Role"]["Arn"]


def _policy(statements: list[dict[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _ensure_group(ec2: Any, source: str) -> str:
    """Return the group in the region's default VPC; let in ssh from `source`, and its own nodes."""
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if not vpcs:
        raise InputError("provider.region: it has no default VPC; make a security group by hand and fill in its id")
    wanted = [{"Name": "group-name", "Values": [SECURITY_GROUP]}, {"Name": "vpc-id", "Values": [vpcs[0]["VpcId"]]}]
    groups = ec2.describe_security_groups(Filters=wanted)["SecurityGroups"]
    about = "Nodes of unlearning clusters: ssh from one place, everything among themselves"
    found = groups or [ec2.create_security_group(GroupName=SECURITY_GROUP, Description=about, VpcId=vpcs[0]["VpcId"])]
    group = found[0]["GroupId"]
    family = ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, family[0]: [{family[1]: source}]}
    for rule in (ssh, {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}):
        try:
            ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
        except ec2.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "InvalidPermission.Duplicate":  # it is there already
                raise
    return group
