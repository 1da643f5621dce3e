"""What `platform.cluster account` makes on a pretended AWS."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platform.cluster import __main__ as cluster
from platform.cluster import account
from tests.support.cluster_files import fill
from tests.support.starts import invoke


@dataclass
class Account:
    """moto's AWS for this process, shared by the tests of this module: each works in a region of its own."""

    shipped: str
    path: Path

    def client(self, service: str, region: str = "us-east-1") -> Any:
        import boto3

        return boto3.client(service, region_name=region)  # type: ignore[call-overload]

    def prepare(self, **values: str) -> str:
        """Make what the shipped file with these values needs; return the group's id, which the command says last."""
        self.path.write_text(fill(self.shipped, **values))
        done = invoke(cluster.main, "account", self.path)
        return done.stdout.split()[-1] if done.exit_code == 0 else done.stderr

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
def moto_account(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An AWS with the managed policy of the shipped file's roles, and a home."""
    from moto import mock_aws
    from moto.iam import aws_managed_policies, models

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        # of 1,400 policies, which take most of a minute
        policies = json.loads(aws_managed_policies.aws_managed_policies_data)
        patch.setattr(
            models, "aws_managed_policies_data", json.dumps({account.EC2_POLICY: policies[account.EC2_POLICY]})
        )
        keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {"HOME": str(home), **keys}.items():
            patch.setenv(name, value)
        with mock_aws():
            yield Account((root / "cluster.yaml").read_text(), home / "cluster.yaml")


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


def test_an_account_is_not_made_of_what_is_too_wide_or_not_filled_in(moto_account: Account) -> None:
    """Above all, nothing is opened to the world."""
    region = "eu-west-1"
    for bad in ("0.0.0.0/0", "0.0.0.0/1", "::/0", "2000::/3", "203.0.113.7/33", "home"):
        assert re.match(r"error: .*provider\.ssh_from: .*like", moto_account.prepare(region=region, ssh_from=bad))
    assert "provider.region: fill it in first" in moto_account.prepare(region="FILL IN")
    groups = moto_account.client("ec2", region).describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
