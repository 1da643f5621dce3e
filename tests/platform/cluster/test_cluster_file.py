"""Cluster files: what `platform.cluster check` catches."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster import aws, file
from tests.support.cluster_files import VALUES, changed, fill
from trainables.common.errors import InputError

RunModule = Callable[..., subprocess.CompletedProcess[str]]
LOCAL = """
cluster_name: house
provider:
  type: local
  head_ip: 192.0.2.1
  worker_ips: [192.0.2.2, node3]
  storage: /srv/unlearning
auth: {ssh_user: worker}
head_setup_commands:
  - python -m platform.cluster environment ~/ray_bootstrap_config.yaml >> ~/.bashrc
head_start_ray_commands:
  - RAY_enable_autoscaler_v2=0 ray start --head --autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands:
  - ray start --address=$RAY_HEAD_IP:6379
"""


def test_the_shipped_file_names_all_that_is_to_be_filled_in(run_module: RunModule) -> None:
    done = run_module("platform.cluster", "check", "cluster.yaml")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert errors == [f"error: provider.{name}: still to be filled in ('FILL IN')" for name in VALUES]
    assert "cluster.yaml: 4 to mend before `ray up`" in done.stderr


def test_filled_in_it_can_be_used(shipped: str, tmp_path: Path, run_module: RunModule) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(fill(shipped))
    done = run_module("platform.cluster", "check", path, HOME=str(tmp_path), AWS_PROFILE="", AWS_ACCESS_KEY_ID="")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"can be used; start it with: ray up {path}" in done.stdout
    assert "note: no AWS credentials found" in done.stdout


def test_all_that_a_person_fills_in_stands_under_provider(shipped: str) -> None:
    content = yaml.safe_load(shipped)
    found = [line for line in shipped.splitlines() if re.search(r": (&\w+ )?FILL IN", line)]
    assert len(found) == len(VALUES)
    assert {name for name, value in content["provider"].items() if value == "FILL IN"} == set(VALUES)
    kinds = content["available_node_types"].values()
    assert all(kind["node_config"]["SecurityGroupIds"] == ["FILL IN"] for kind in kinds)


def test_ray_takes_the_shipped_file(shipped: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(fill(shipped)))
    validate_config(config)
    worker = config["available_node_types"]["a100"]
    assert (worker["min_workers"], worker["max_workers"], config["max_workers"]) == (0, 4, 4)
    assert config["idle_timeout_minutes"] == 10


A100 = "available_node_types.a100"
NODE = f"{A100}.node_config"
SPOT = "\n      InstanceMarketOptions: {MarketType: spot}"
KEY = "\n  ssh_private_key: ~/no-such.pem"
MISTAKES = [  # what is written, what stands there instead, what `check` says
    ("idle_timeout_minutes", "idle_timeout_minute", "idle_timeout_minute: unknown key; did you mean 'idle_timeout_min"),
    ("  region:", "  regoin:", "provider.regoin: unknown key; did you mean 'region'?"),
    ("region: us-east-1", "region: us-east1", "unknown region 'us-east1'; did you mean 'us-east-1'?"),
    ("min_workers: 0", "minimum_workers: 0", f"{A100}.minimum_workers: unknown key; did you mean 'min_workers'?"),
    ("InstanceType: p4de", "InstanceTyp: p4de", f"{NODE}.InstanceTyp: unknown key; did you mean 'InstanceType'?"),
    ("p4de.24xlarge", "p4de.24xlarg", "'p4de.24xlarg' is none that EC2 knows; did you mean 'p4de.24xlarge'?"),
    ("MarketType: spot}", "MarketType: spott}", "'spott' is none that EC2 knows; did you mean 'spot'?"),
    ("VolumeSize: 300", "VolumeSize: lots", "Invalid type for parameter BlockDeviceMappings[0].Ebs.VolumeSize"),
    ("GPU: 8", "GPU: 16", f"{A100}.resources.GPU: 16, but p4de.24xlarge has 8"),
    ("GPU: 8", "GPU: 0", f"{A100}.resources.GPU: 0, but p4de.24xlarge has 8, which would idle"),
    ("CPU: 8}", "CPU: 16}", "available_node_types.head.resources.CPU: 16, but m7i.2xlarge has 8"),
    ("min_workers: 0", "min_workers: 5", f"{A100}.min_workers: 5 is more than its max_workers of 4"),
    ("min_workers: 0", "min_workers: none", f"{A100}.min_workers: 'none' is not of type 'integer'"),
    ("head_node_type: head", "head_node_type: haed", "'haed' is no node type; did you mean 'head'?"),
    ("s3://bucket/runs", "/home/ubuntu/runs", "'/home/ubuntu/runs' is a folder of each node by itself"),
    ("203.0.113.7/32", "0.0.0.0/0", "provider.ssh_from: 0.0.0.0/0 is the whole world"),
    ("203.0.113.7/32", "0.0.0.0/1", "provider.ssh_from: 0.0.0.0/1 is the whole world or much of it (wider than /8)"),
    ("203.0.113.7/32", "2000::/3", "provider.ssh_from: 2000::/3 is the whole world or much of it (wider than /16)"),
    ("203.0.113.7/32", "203.0.113.7/24", "provider.ssh_from: 203.0.113.7/24 has host bits set; write it like"),
    ("203.0.113.7/32", "203.0.113.7/33", "provider.ssh_from: '203.0.113.7/33' does not appear to be an IPv4"),
    ("host=127.0.0.1", "host=0.0.0.0", "head_start_ray_commands[1]: listens on every address (0.0.0.0); use 127.0.0.1"),
    ("--autoscaling-config", "--config", "head_start_ray_commands[1]: lacks --autoscaling-config"),
    ("$RAY_HEAD_IP:6379", "10.0.0.1:6379", "worker_start_ray_commands[1]: lacks --address=$RAY_HEAD_IP:6379"),
    ("      SecurityGroupIds: [*group]\n", "", f"{NODE}.SecurityGroupIds: missing; Ray would make a group that opens"),
    ("[*group]\n", "[default]\n", f"{NODE}.SecurityGroupIds: 'default' is no id of a security group"),
    ("      IamInstanceProfile: {Name: *worker_profile}\n", "", f"{NODE}.IamInstanceProfile: missing"),
    ("m7i.2xlarge", f"m7i.2xlarge{SPOT}", "a head on spot takes the whole cluster with it"),
    ("user: ubuntu", f"user: ubuntu{KEY}", "auth.ssh_private_key: '~/no-such.pem' is not there"),
    ("user: ubuntu", f"user: ubuntu{KEY}", f"{NODE}.KeyName: missing"),
    ("make setup\n", "pip install ray==2.9.0\n", "setup_commands[2]: installs ray 2.9.0, here it is"),
    ("backend: sqlite ", "backend: postgres ", "provider.mlflow_backend: 'postgres'; did you mean 'postgresql'?"),
    ("backend: sqlite ", "backend: postgresql://me:word@host/mlflow ", "provider.mlflow_backend: holds a password"),
    ("~/unlearning: .", "~/unlearning: ./no-such", "file_mounts.~/unlearning: './no-such' is not there"),
]


@pytest.mark.parametrize(("old", "new", "told"), MISTAKES)
def test_typical_mistakes(shipped: str, problems: Callable[[str], list[str]], old: str, new: str, told: str) -> None:
    found = problems(changed(fill(shipped), old, new))
    assert any(told in problem for problem in found), found


def test_no_image_of_rays(shipped: str, problems: Callable[[str], list[str]]) -> None:
    found = problems(re.sub(r"      ImageId: resolve.*deeplearning.*\n", "", fill(shipped)))
    (problem,) = found
    assert problem.startswith(f"{NODE}.ImageId: missing; Ray's own image is Ubuntu 18.04")


def test_rules_that_open_a_group(shipped: str, problems: Callable[[str], list[str]]) -> None:
    rule = "{FromPort: 22, ToPort: 22, IpProtocol: tcp, IpRanges: [{CidrIp: 0.0.0.0/0}]}"
    extra = f"  security_group: {{GroupName: g, IpPermissions: [{rule}]}}\n  type: aws"
    found = problems(changed(fill(shipped), "  type: aws", extra))
    assert found == ["provider.security_group.IpPermissions[0]: opens its ports to the world (0.0.0.0/0)"]
    found = problems(changed(fill(shipped), "  type: aws", extra.replace("0.0.0.0/0", "128.0.0.0/1")))
    assert found == ["provider.security_group.IpPermissions[0]: opens its ports to the world (128.0.0.0/1)"]


def test_every_problem_at_once(shipped: str, problems: Callable[[str], list[str]]) -> None:
    text = changed(fill(shipped), "GPU: 8", "GPU: 9")
    text = changed(text, "cluster_name", "cluster_nam")
    text = changed(text, "s3://bucket/runs", "FILL IN")
    found = "\n".join(problems(text))
    assert "provider.storage: still to be filled in" in found
    assert "cluster_nam: unknown key; did you mean 'cluster_name'?" in found
    assert "'cluster_name' is a required property" in found
    assert "resources.GPU: 9, but p4de.24xlarge has 8" in found


def test_a_folder_on_efs_is_a_storage(shipped: str, problems: Callable[[str], list[str]]) -> None:
    text = changed(
        fill(shipped, storage="/efs/runs"), "setup_commands:\n", "setup_commands:\n  - sudo mount fs-1:/ /efs/runs\n"
    )
    assert problems(text) == []


def test_what_is_no_cluster_file(problems: Callable[[str], list[str]]) -> None:
    for text, told in (("a: [", "is not YAML"), ("- a", "is no cluster file"), ("", "is no cluster file")):
        with pytest.raises(InputError, match=told):
            problems(text)
    with pytest.raises(InputError, match="No such file"):
        file.read("no-such.yaml")
    assert problems("provider: [aws]\navailable_node_types: 3\nsetup_commands: none\nauth:\n")  # and no traceback


def test_house_cluster(problems: Callable[[str], list[str]]) -> None:
    assert problems(LOCAL) == []
    without = changed(LOCAL, "  storage: /srv/unlearning\n", "")
    (problem,) = problems(without)
    assert problem.startswith("provider.storage: missing")
    made = "python -m platform.cluster environment ~/ray_bootstrap_config.yaml"
    assert problems(changed(without, made, "echo export UNLEARN_STORAGE=/srv/runs")) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("192.0.2.2", "192.0.2.1", "provider.worker_ips[0]: '192.0.2.1' is provider.head_ip, too"),
        ("192.0.2.2", "192.0.2.256", "provider.worker_ips[0]: '192.0.2.256' is neither an address nor a host name"),
        ("node3", "192.0.2.2", "provider.worker_ips[1]: '192.0.2.2' is provider.worker_ips[0], too"),
        ("  head_ip: 192.0.2.1\n", "", "provider.head_ip: missing"),
        ("worker_ips", "worker_ip", "provider.worker_ip: unknown key; did you mean 'worker_ips'?"),
        ("{ssh_user: worker}", "{}", "auth.ssh_user: missing"),
        ("/srv/unlearning", "runs", "provider.storage: 'runs' is a relative path"),
        ("RAY_enable_autoscaler_v2=0 ", "", "lacks RAY_enable_autoscaler_v2=0 before `ray start`"),
    ],
)
def test_mistakes_of_a_house_cluster(problems: Callable[[str], list[str]], old: str, new: str, told: str) -> None:
    found = problems(changed(LOCAL, old, new))
    assert len(found) == 1 + (new == "worker_ip"), found
    assert any(told in problem for problem in found)


def test_unknown_action(run_module: RunModule) -> None:
    done = run_module("platform.cluster", "chekc", "cluster.yaml")
    assert done.returncode == 2
    assert "unknown action 'chekc'; did you mean 'check'?" in done.stderr


def test_environment_of_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str], shipped: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(fill(shipped, storage="'s3://bucket/a b'"))
    assert cluster.environment(file.read(str(path))) == 0
    shell = capsys.readouterr().out + 'echo "$UNLEARN_STORAGE|$MLFLOW_TRACKING_URI|$RAY_ADDRESS|$MLFLOW_BACKEND"'
    told = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "s3://bucket/a b|http://127.0.0.1:5000|auto|sqlite"


def test_gpus_by_instance_type() -> None:
    import moto

    path = Path(moto.__path__[0]) / "ec2" / "resources" / "instance_types.json.gz"
    known = json.loads(gzip.decompress(path.read_bytes()))
    checked = 0
    for name, kind in known.items():
        told = aws.capacity(name)
        if told:
            assert told["CPU"] == kind["VCpuInfo"]["DefaultVCpus"], name
        assert bool(aws.ARM.match(name)) == ("arm64" in kind["ProcessorInfo"]["SupportedArchitectures"]), name
        if "GPU" in told:
            assert told["GPU"] == sum(gpu["Count"] for gpu in kind.get("GpuInfo", {}).get("Gpus", [])), name
            checked += told["GPU"] > 0
    assert checked > 40
