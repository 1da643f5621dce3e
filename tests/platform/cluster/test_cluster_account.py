"""What `platform.cluster account` makes on a pretended AWS, and what Ray starts there of the shipped file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster import account
from platform.cluster.check import load_cluster_file
from tests.support.cluster_files import fill
from trainables.common.errors import InputError


class Account:
    """moto's AWS for this process, shared by the tests of this module: each works in a region of its own."""

    def __init__(self, shipped: str, path: Path) -> None:
        self.shipped = shipped
        self.path = path

    def client(self, service: str, region: str = "us-east-1") -> Any:
        import boto3

        return boto3.client(service, region_name=region)  # type: ignore[call-overload]

    def prepare(self, **values: str) -> str:
        """Make what the shipped file with these values needs; return the group's id."""
        self.path.write_text(fill(self.shipped, **values))
        return account.prepare_aws_account(load_cluster_file(str(self.path)).provider)

    def sources(self, group: str, region: str) -> list[tuple[str, int | None, list[str]]]:
        """Return protocol, first port and sources of every rule of a group."""
        (found,) = self.client("ec2", region).describe_security_groups(GroupIds=[group])["SecurityGroups"]
        rules = []
        for rule in found["IpPermissions"]:
            ranges = [item["CidrIp"] for item in rule["IpRanges"]] + [item["CidrIpv6"] for item in rule["Ipv6Ranges"]]
            pairs = [item["GroupId"] for item in rule["UserIdGroupPairs"]]
            rules.append((rule["IpProtocol"], rule.get("FromPort"), ranges + pairs))
        return sorted(rules, key=str)

    def rights(self, role: str, region: str = "us-east-1") -> dict[str, set[str]]:
        """Return resources by action, of all inline policies of a role together."""
        iam, found = self.client("iam", region), dict[str, set[str]]()
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            for item in iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]:
                for action in item["Action"] if isinstance(item["Action"], list) else [item["Action"]]:
                    found.setdefault(action, set()).add(item["Resource"])
        return found


@pytest.fixture(scope="module")
def moto_account(shipped: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An AWS with the managed policy and the instance types of the shipped file, and a home where Ray puts its key."""
    from moto import mock_aws
    from moto.ec2.models import instance_types
    from moto.iam import aws_managed_policies, models

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        # of 1,400 policies and 1,000 types, which take most of a minute
        policies = json.loads(aws_managed_policies.aws_managed_policies_data)
        patch.setattr(
            models, "aws_managed_policies_data", json.dumps({account.EC2_POLICY: policies[account.EC2_POLICY]})
        )
        known = instance_types.INSTANCE_TYPES
        types = {name: known[name] for name in ("m7i.2xlarge", "p4de.24xlarge")}
        patch.setattr(instance_types, "INSTANCE_TYPES", types)
        keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {"HOME": str(home), **keys}.items():
            patch.setenv(name, value)
        with mock_aws():
            yield Account(shipped, home / "cluster.yaml")


@pytest.mark.slow
def test_ray_starts_what_the_file_says(
    moto_account: Account, find_problems: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Account, check, Ray's bootstrap, one head and one worker: types, spot, GPUs, profiles, and what is open."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config

    moto_account.path.write_text(fill(moto_account.shipped, security_group_id="FILL IN"))
    assert cluster.prepare_aws_account(str(moto_account.path)) == 0
    group = capsys.readouterr().out.split()[-1]
    filled = fill(moto_account.path.read_text(), security_group_id=group)
    assert find_problems(filled) == []

    config = prepare_config(yaml.safe_load(filled))
    validate_config(config)
    config = AWSNodeProvider.fillout_available_node_types_resources(config)
    validate_config(config)
    config = AWSNodeProvider.bootstrap_config(config)
    node_types = config["available_node_types"]
    assert {"CPU": 96, "GPU": 8, "accelerator_type:A100": 1}.items() <= node_types["a100"]["resources"].items()
    assert node_types["head"]["resources"] == {"CPU": 8}

    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for name, node_type in node_types.items():
        provider.create_node(node_type["node_config"], {"ray-node-type": name}, 1)
    ec2 = moto_account.client("ec2")
    found = [item["Instances"][0] for item in ec2.describe_instances()["Reservations"]]
    head, worker = sorted(found, key=lambda item: item["InstanceType"])
    assert (head["InstanceType"], worker["InstanceType"]) == ("m7i.2xlarge", "p4de.24xlarge")
    assert (head.get("InstanceLifecycle"), worker["InstanceLifecycle"]) == (None, "spot")
    for item, profile in ((head, "unlearning-head"), (worker, "unlearning-worker")):
        assert item["IamInstanceProfile"]["Arn"].endswith(f"/{profile}")
        assert [member["GroupId"] for member in item["SecurityGroups"]] == [group]
    groups = ec2.describe_security_groups()["SecurityGroups"]
    assert {item["GroupName"] for item in groups} == {"default", "unlearning"}  # Ray made none
    assert "0.0.0.0/0" not in json.dumps([item["IpPermissions"] for item in groups if item["GroupId"] == group])
    rules = [("-1", None, [group]), ("tcp", 22, ["203.0.113.7/32"])]
    assert moto_account.sources(group, "us-east-1") == rules


BUCKET = {
    **dict.fromkeys(("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"), "/*"),
    **dict.fromkeys(("s3:ListBucket", "s3:GetBucketLocation"), ""),
}
"""What may be done with a bucket, and what stands behind its name where it is allowed."""


def test_an_account_is_made_once_and_mended(moto_account: Account) -> None:
    """Buckets and addresses of other files stay: clusters may be running with them."""
    region = "us-west-2"
    group = moto_account.prepare(region=region, storage="s3://one/runs")
    for source in ("198.51.100.0/24", "2001:DB8::7", "2001:DB8::7"):
        assert moto_account.prepare(region=region, storage="s3://two/runs", ssh_from=source) == group
    let_in = ["203.0.113.7/32", "198.51.100.0/24", "2001:db8::7/128"]
    assert moto_account.sources(group, region) == [("-1", None, [group]), ("tcp", 22, let_in)]

    iam = moto_account.client("iam")
    arn = iam.get_role(RoleName="unlearning-worker")["Role"]["Arn"]
    assert moto_account.rights("unlearning-head")["iam:PassRole"] == {arn}
    assert moto_account.rights("unlearning-worker").keys() == BUCKET.keys()
    assert iam.list_attached_role_policies(RoleName="unlearning-worker")["AttachedPolicies"] == []
    for role in ("unlearning-head", "unlearning-worker"):
        for action, end in BUCKET.items():
            resources = {f"arn:aws:s3:::{bucket}{end}" for bucket in ("one", "two")}
            assert moto_account.rights(role)[action] >= resources


def test_an_account_is_not_made_of_what_is_too_wide_or_not_filled_in(
    moto_account: Account, shipped: str, tmp_path: Path
) -> None:
    """Above all, nothing is opened to the world."""
    region = "eu-west-1"
    for bad in ("0.0.0.0/0", "0.0.0.0/1", "::/0", "2000::/3", "203.0.113.7/33", "home"):
        with pytest.raises(InputError, match=r"provider\.ssh_from: .*like"):
            moto_account.prepare(region=region, ssh_from=bad)
    (tmp_path / "cluster.yaml").write_text(shipped)
    with pytest.raises(InputError, match=r"provider\.region: fill it in first"):
        account.prepare_aws_account(load_cluster_file(str(tmp_path / "cluster.yaml")).provider)
    groups = moto_account.client("ec2", region).describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
