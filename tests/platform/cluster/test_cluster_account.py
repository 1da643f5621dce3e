"""What `platform.cluster account` makes on a pretended AWS, and what Ray starts there of the shipped file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster import account, aws
from platform.cluster import file as cluster_file
from tests.support.cluster_files import fill
from trainables.common.errors import InputError


@pytest.mark.usefixtures("pretended")
def test_ray_starts_what_the_file_says(
    shipped: str, tmp_path: Path, problems: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Account, check, Ray's bootstrap, one head and one worker: types, spot, GPUs, profiles, and what is open."""
    import boto3
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config

    path = tmp_path / "cluster.yaml"
    path.write_text(fill(shipped, security_group_id="FILL IN"))
    assert cluster.account(cluster_file.read(str(path))) == 0
    group = capsys.readouterr().out.split()[-1]
    filled = fill(path.read_text(), security_group_id=group)
    assert problems(filled) == []

    config = AWSNodeProvider.fillout_available_node_types_resources(prepare_config(yaml.safe_load(filled)))
    validate_config(config)
    config = AWSNodeProvider.bootstrap_config(config)
    kinds = config["available_node_types"]
    assert {"CPU": 96, "GPU": 8, "accelerator_type:A100": 1}.items() <= kinds["a100"]["resources"].items()
    assert "GPU" not in kinds["head"]["resources"]

    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for name, kind in kinds.items():
        provider.create_node(kind["node_config"], {"ray-node-type": name}, 1)
    ec2 = boto3.client("ec2", region_name="us-east-1")
    found = [item["Instances"][0] for item in ec2.describe_instances()["Reservations"]]
    head, worker = sorted(found, key=lambda item: item["InstanceType"])
    assert (head["InstanceType"], worker["InstanceType"]) == ("m7i.2xlarge", "p4de.24xlarge")
    assert (head.get("InstanceLifecycle"), worker["InstanceLifecycle"]) == (None, "spot")
    assert [item["IamInstanceProfile"]["Arn"].split("/")[-1] for item in (head, worker)] == [
        "unlearning-head",
        "unlearning-worker",
    ]
    for item in found:
        assert [held["GroupId"] for held in item["SecurityGroups"]] == [group]
    only_ssh_from_one_address(ec2.describe_security_groups()["SecurityGroups"], group)


def only_ssh_from_one_address(opened: list[dict[str, Any]], group: str) -> None:
    """Beside what hosts of the group say to each other."""
    assert {held["GroupName"] for held in opened} == {"default", "unlearning"}  # Ray made none
    rules = next(held["IpPermissions"] for held in opened if held["GroupId"] == group)
    assert "0.0.0.0/0" not in json.dumps(rules)
    assert [(rule["IpProtocol"], rule.get("FromPort"), rule["IpRanges"]) for rule in rules] == [
        ("tcp", 22, [{"CidrIp": "203.0.113.7/32"}]),
        ("-1", None, []),
    ]
    assert [pair["GroupId"] for pair in rules[1]["UserIdGroupPairs"]] == [group]


@pytest.fixture
def prepared(shipped: str, tmp_path: Path, pretended: None) -> Callable[..., str]:
    """Return `prepared(**values)`: what `account` makes of the shipped file with these values; the group's id."""
    path = tmp_path / "cluster.yaml"

    def prepare(**values: str) -> str:
        path.write_text(fill(shipped, **values))
        return account.prepare(cluster_file.read(str(path)))

    return prepare


def sources(group: str) -> list[tuple[str, int | None, list[str]]]:
    """Protocol, first port and sources of every rule of a group."""
    import boto3

    (held,) = boto3.client("ec2", region_name="us-east-1").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    found = []
    for rule in held["IpPermissions"]:
        ranges = [item["CidrIp"] for item in rule["IpRanges"]] + [item["CidrIpv6"] for item in rule["Ipv6Ranges"]]
        pairs = [item["GroupId"] for item in rule["UserIdGroupPairs"]]
        found.append((rule["IpProtocol"], rule.get("FromPort"), ranges + pairs))
    return sorted(found, key=str)


def test_an_account_is_made_once_and_mended(prepared: Callable[..., str]) -> None:
    import boto3

    group = prepared()
    ec2, iam = (boto3.client(name, region_name="us-east-1") for name in ("ec2", "iam"))
    world = {"IpProtocol": "tcp", "FromPort": 8265, "ToPort": 8265, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[world])
    assert prepared(ssh_from="198.51.100.0/24") == group
    among = ("-1", None, [group])
    assert sources(group) == [among, ("tcp", 22, ["198.51.100.0/24"])]
    assert prepared(ssh_from="198.51.100.7") == prepared(ssh_from="198.51.100.7") == group
    assert sources(group) == [among, ("tcp", 22, ["198.51.100.7/32"])]
    prepared(ssh_from="2001:DB8::7")
    assert sources(group) == [among, ("tcp", 22, ["2001:db8::7/128"])]

    arn = iam.get_role(RoleName="unlearning-worker")["Role"]["Arn"]
    assert rights("unlearning-head")["iam:PassRole"] == {arn}
    assert rights("unlearning-worker").keys() == BUCKET.keys()
    assert iam.list_attached_role_policies(RoleName="unlearning-worker")["AttachedPolicies"] == []


BUCKET = {
    **dict.fromkeys(("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"), "/*"),
    **dict.fromkeys(("s3:ListBucket", "s3:GetBucketLocation"), ""),
}
"""What may be done with a bucket, and what stands behind its name where it is allowed."""


def rights(role: str) -> dict[str, set[str]]:
    """Resources by action, of all inline policies of a role together."""
    import boto3

    iam, found = boto3.client("iam", region_name="us-east-1"), dict[str, set[str]]()
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        for item in iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]:
            for action in item["Action"] if isinstance(item["Action"], list) else [item["Action"]]:
                found.setdefault(action, set()).add(item["Resource"])
    return found


def test_a_second_file_leaves_the_first_its_bucket(prepared: Callable[..., str]) -> None:
    """Roles are the account's, whatever the region: a cluster may be running with them."""
    prepared(storage="s3://one/runs")
    prepared(storage="s3://two/runs")
    prepared(storage="s3://two/other")
    for role in ("unlearning-head", "unlearning-worker"):
        for action, end in BUCKET.items():
            assert rights(role)[action] == {f"arn:aws:s3:::{bucket}{end}" for bucket in ("one", "two")}


def test_a_refused_rule_leaves_the_group_as_it_was(prepared: Callable[..., str], monkeypatch: Any) -> None:
    """What EC2 refuses although we took it: nobody is locked out of a running cluster."""
    group = prepared()
    before = sources(group)
    monkeypatch.setattr(aws, "ssh_source", lambda file: "203.0.113.7/40")
    with pytest.raises(InputError, match="AWS: "):
        prepared(ssh_from="198.51.100.0/24")
    assert sources(group) == before


WRONG = [("ssh_from", source) for source in ("0.0.0.0/0", "0.0.0.0/1", "::/0", "2000::/3", "203.0.113.7/33", "house")]
WRONG += [("storage", "s3://"), ("storage", "s4://bucket/x"), ("region", "us-east1")]


def test_an_account_is_not_made_of_what_check_refuses(prepared: Callable[..., str]) -> None:
    """Above all, nothing is opened to the world."""
    import boto3

    for name, wrong in WRONG:
        with pytest.raises(InputError, match=rf"provider\.{name}: .*(like|did you mean)"):
            prepared(**{name: wrong})
    groups = boto3.client("ec2", region_name="us-east-1").describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]


def test_an_account_in_another_partition(prepared: Callable[..., str]) -> None:
    import boto3

    prepared(region="cn-north-1")
    iam = boto3.client("iam", region_name="cn-north-1")
    (managed,) = iam.list_attached_role_policies(RoleName="unlearning-head")["AttachedPolicies"]
    assert managed["PolicyArn"] == "arn:aws-cn:iam::aws:policy/AmazonEC2FullAccess"
    for role in ("unlearning-head", "unlearning-worker"):
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            assert all(item["Resource"].startswith("arn:aws-cn:") for item in document["Statement"])


def test_an_account_needs_its_values(shipped: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(shipped)
    with pytest.raises(InputError, match=r"provider\.region: fill it in first"):
        account.prepare(cluster_file.read(str(path)))
