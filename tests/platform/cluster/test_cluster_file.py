"""Cluster files: what `platform.cluster check` refuses, notes and lets by."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster import checks
from platform.cluster.checks import generate_commands
from platform.cluster.file import load_cluster_file
from platform.schedule.ray_environment import make_token
from tests.support.cluster_files import VALUES, changed, fill
from tests.support.starts import invoke
from trainables.common.errors import InputError

Find = Callable[[str], list[str]]
ADDRESSES = {"head_ip": "192.0.2.1", "worker_ips": "[192.0.2.2, node3]", "storage": "/srv/unlearning", "ssh_user": "me"}


def run_command(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and error of `python -m platform.cluster`."""
    done = invoke(cluster.main, *arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def own_machines(root: Path) -> str:
    """Return the text of clusters/onprem.yaml, filled in."""
    text = (root / "clusters" / "onprem.yaml").read_text().replace("[FILL IN]", "FILL IN")
    return changed(fill(text, **ADDRESSES), "  ssh_private_key: ~/.ssh/id_ed25519\n", "")


def test_the_shipped_file_names_all_that_is_to_be_filled_in_and_works_then(
    shipped: str, root: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    status, _, err = run_command("check", "cluster.yaml")
    errors = [f"still to be filled in ({name}: " for name in VALUES]
    assert status == 2
    assert [part for part, line in zip(errors, err.splitlines(), strict=False) if part not in line] == []
    assert err.endswith("\ncluster.yaml: 4 to mend before `ray up`\n")

    path = tmp_path / "mine.yaml"
    path.write_text(fill(shipped))
    token = home / ".ray" / "auth_token"
    assert (token.stat().st_mode & 0o777, len(token.read_text())) == (0o600, 64)
    before = token.read_text()
    token.chmod(0o644)  # as Ray leaves it
    assert run_command("check", path) == (0, f"{path}: can be used; start it with: ray up {path}\n", "")
    assert (token.stat().st_mode & 0o777, token.read_text()) == (0o600, before)


def test_a_token_is_whole_when_it_appears_and_stays_where_another_start_was_quicker(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, seen = home / ".ray" / "auth_token", []

    def make_theirs(size: int) -> str:
        seen.append(token.exists())
        token.write_text("theirs")
        return "ours"

    monkeypatch.setattr(secrets, "token_hex", make_theirs)
    make_token()
    make_token()
    assert (seen, token.read_text(), [path.name for path in token.parent.iterdir()]) == (
        [False],
        "theirs",
        [token.name],
    )


def test_ray_takes_the_shipped_file(shipped: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(fill(shipped)))
    validate_config(config)
    assert (config["max_workers"], config["idle_timeout_minutes"]) == (4, 10)
    without = prepare_config(yaml.safe_load(changed(fill(shipped), "\nmax_workers: 4", "")))
    assert without["max_workers"] == checks.RAY_MAX_WORKERS


@pytest.mark.parametrize("name", ["cluster", "clusters/onprem", "clusters/rehearsal"])
def test_the_files_hold_the_generated_commands_which_listen_on_loopback(name: str, root: Path) -> None:
    """The rehearsal's hosts are smaller; nothing here asks for another address or leaves the autoscaler out."""
    file = load_cluster_file(str(root / f"{name}.yaml"))
    for section, commands in generate_commands(file.provider["type"]).items():
        small = " --num-cpus=1 --object-store-memory=200000000"
        found = [" ".join(command.split()).replace(small, "") for command in file.commands(section)]
        assert found == commands
        for command in commands:
            assert ("--dashboard-host=127.0.0.1" in command) == ("ray start --head" in command)
            assert "0.0.0.0" not in command
    script = (root / "clusters" / "mlflow.sh").read_text()
    assert re.findall(r"--(?:host|port|uvicorn-opts) (.*) --workers", script) == ['"--uds $place/socket"']


A100 = "available_node_types.a100"
NODE = f"{A100}.node_config"
SPOT = "\n      InstanceMarketOptions: {MarketType: spot}"
KEY = "\n  ssh_private_key: ~/no-such.pem"
ENVIRONMENT = "python -m platform.cluster environment"
PROBLEMS = [  # what is written, what stands there instead, what `check` says
    ("idle_timeout_minutes", "idle_timeout_minute", "idle_timeout_minute: unknown key; did you mean 'idle_timeout_min"),
    ("region: us-east-1", "region: us-east1", "unknown region 'us-east1'; did you mean 'us-east-1'?"),
    ("p4de.24xlarge", "p4de.24xlarg", "'p4de.24xlarg' is none that EC2 knows; did you mean 'p4de.24xlarge'?"),
    ("MarketType: spot}", "MarktType: spot}", f'{NODE}: Unknown parameter in InstanceMarketOptions: "MarktType", must'),
    ("VolumeSize: 300", "VolumeSize: lots", "Invalid type for parameter BlockDeviceMappings[0].Ebs.VolumeSize"),
    ("min_workers: 0", "min_workers: 5", f"{A100}.min_workers: 5 is more than its max_workers of 4"),
    ("    max_workers: 4", "    max_workers: 0", "max_workers: 0; no worker would ever start"),
    ("head_node_type: head", "head_node_type: haed", "'haed' is no node type; did you mean 'head'?"),
    ("s3://bucket/runs", "/home/ubuntu/runs", "'/home/ubuntu/runs' is a folder of each node by itself"),
    ("s3://bucket/runs", "s3://", "provider.storage: 's3://' names no bucket; write it like s3://BUCKET/FOLDER"),
    ("s3://bucket/runs", "s3://key:word@bucket/x", "provider.storage: the address holds a user name or password"),
    ("203.0.113.7/32", "0.0.0.0/0", "provider.ssh_from: 0.0.0.0/0 is the whole world"),
    ("203.0.113.7/32", "2000::/3", "provider.ssh_from: 2000::/3 is the whole world or much of it (wider than /16)"),
    ("203.0.113.7/32", "203.0.113.7/33", "provider.ssh_from: '203.0.113.7/33' does not appear to be an IPv4"),
    ("host=127.0.0.1", "host=0.0.0.0", "head_start_ray_commands: lacks `unset OMP_NUM_THREADS; ulimit -n 65536; RAY"),
    ("$RAY_HEAD_IP:6379", "10.0.0.1:6379", "worker_start_ray_commands: lacks `unset OMP_NUM_THREADS; ulimit -n 65"),
    (ENVIRONMENT, "python -m platform.cluster check", "head_setup_commands: lacks `cd ~/unlearning && .venv/bin/pyth"),
    ("  ~/.ray/auth_token: ~/.ray/auth_token", "  # ", "file_mounts: lacks `~/.ray/auth_token: ~/.ray/auth_token`"),
    ("  ~/unlearning: .\n", "", "file_mounts: puts nothing at ~/unlearning, where the commands go; add"),
    ("~/unlearning: .", "~/unlearning: ./no-such", "file_mounts.~/unlearning: './no-such' is not there"),
    ("      ImageId: resolve:ssm:/aws/service/deep", "      # ", f"{NODE}.ImageId: missing; Ray's own image is Ubuntu"),
    ("      SecurityGroupIds: [*group]\n", "", f"{NODE}.SecurityGroupIds: missing; Ray would make a group that opens"),
    ("[*group]\n", "[default]\n", f"{NODE}.SecurityGroupIds: 'default' is no id of a security group"),
    ("      IamInstanceProfile: {Name: *worker_profile}\n", "", f"{NODE}.IamInstanceProfile: missing"),
    ("m7i.2xlarge", f"m7i.2xlarge{SPOT}", "a head on spot takes the whole cluster with it"),
    ("user: ubuntu", f"user: ubuntu{KEY}", "auth.ssh_private_key: '~/no-such.pem' is not there"),
    ("backend: sqlite ", "backend: postgres ", "provider.mlflow_backend: 'postgres'; did you mean 'postgresql'?"),
    ("backend: sqlite ", "backend: postgresql://me:word@host/mlflow ", "provider.mlflow_backend: holds a password"),
    ("backend: sqlite ", "backend: postgresql://h/db?user=u&password=word ", "provider.mlflow_backend: holds a passw"),
]


@pytest.mark.parametrize(("old", "new", "message"), PROBLEMS)
def test_problems(shipped: str, find_problems: Find, old: str, new: str, message: str) -> None:
    """Each beside another one, for `check` names all at once."""
    found = "\n".join(find_problems(changed(changed(fill(shipped), old, new), "cluster_name", "cluster_nam")))
    assert message in found
    assert "cluster_nam: unknown key; did you mean 'cluster_name'?" in found


MAKE = "  - cd ~/unlearning && make setup\n"
ALLOWED = [  # what Ray takes and works, and what a note says of it
    ("~/unlearning: .", "/home/ubuntu/unlearning: .", ""),
    (MAKE, "  - ln -sfn /efs/venv ~/unlearning/.venv\n", "setup_commands: lacks `cd ~/unlearning && make setup`; some"),
    ("us-east-1", "cn-north-1", ""),
    ("203.0.113.7/32", "2001:db8::/32", ""),
    ("s3://bucket/runs", "gs://bucket/runs", ""),
    ("backend: sqlite ", "backend: postgresql://me@host/mlflow ", ""),
    ("=$RAY_HEAD_IP:6379", "=$RAY_HEAD_IP:6379 --num-gpus=4", ""),
    ("    max_workers: 4", "    max_workers: 10", "max_workers: Ray starts 4 workers at most, although the node types"),
    ("\nmax_workers: 4", "", "max_workers: Ray starts 2 workers at most, although the node types have 4 together"),
]


@pytest.mark.parametrize(("old", "new", "note"), ALLOWED)
def test_what_works_can_be_used(
    shipped: str, find_problems: Find, tmp_path: Path, old: str, new: str, note: str
) -> None:
    assert find_problems(changed(fill(shipped), old, new)) == []
    notes = list(checks.find_notes(load_cluster_file(str(tmp_path / "cluster.yaml"))))
    assert all(found.startswith(note) for found in notes)
    assert len(notes) == bool(note)


def test_a_folder_on_efs_is_a_storage(shipped: str, find_problems: Find) -> None:
    mount = "setup_commands:\n  - sudo mount fs-1:/ /efs/runs\n"
    assert find_problems(changed(fill(shipped, storage="/efs/runs"), "setup_commands:\n", mount)) == []


def test_what_is_no_cluster_file(find_problems: Find) -> None:
    for text, message in (("a: [", "is not YAML"), ("- a", "is no cluster file"), ("", "is no cluster file")):
        with pytest.raises(InputError, match=message):
            find_problems(text)
    with pytest.raises(InputError, match="No such file"):
        load_cluster_file("no-such.yaml")
    assert find_problems("provider: [aws]\navailable_node_types: 3\nsetup_commands: none\nauth:\n")  # and no traceback


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cluster_name", "cluster_name", ""),
        ("192.0.2.2", "192.0.2.1", "provider.worker_ips[0]: '192.0.2.1' is provider.head_ip, too"),
        ("  head_ip: 192.0.2.1", "  ", "provider.head_ip: missing"),
        ("  ssh_user: me", "  ssh_user:", "auth.ssh_user: missing"),
        ("/srv/unlearning", "runs", "provider.storage: 'runs' is a relative path"),
        ("RAY_enable_autoscaler_v2=0 ", "", "lacks `unset OMP_NUM_THREADS; RAY_enable_autoscaler_v2=0 RAY_enable_me"),
        ("DASHBOARD_METRIC_PORT=-1", "", "worker_start_ray_commands: lacks `unset OMP_NUM_THREADS; RAY_enable_metrics"),
    ],
)
def test_clusters_of_own_machines(own_machines: str, find_problems: Find, old: str, new: str, message: str) -> None:
    found = find_problems(changed(own_machines, old, new))
    assert any(message in problem for problem in found) or not message, found
    assert bool(found) == bool(message), found


def test_environment_of_the_head(tmp_path: Path, shipped: str, home: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(fill(shipped, storage="'s3://bucket/a b'"))
    status, out, _ = run_command("environment", path)
    echo = 'echo "$UNLEARN_STORAGE|$MLFLOW_TRACKING_URI|$RAY_ADDRESS|$RAY_AUTH_MODE"'
    printed = subprocess.run(["bash", "-c", out + echo], capture_output=True, text=True, check=True).stdout
    assert (status, printed) == (0, f"s3://bucket/a b|sqlite:///{home}/mlflow/mlflow.db|auto|token\n")
    message = "error: unknown action 'chekc'; did you mean 'check'? known: check, environment, account\n"
    assert run_command("chekc", "cluster.yaml") == (2, "", message)


@pytest.mark.parametrize("action", ["account", "environment"])
def test_a_file_for_kuberay_has_no_account_and_no_environment(root: Path, action: str) -> None:
    status, out, err = run_command(action, root / "clusters" / "kuberay.yaml")
    assert (status, out) == (2, "")
    assert f"kuberay.yaml' is a file for KubeRay, which needs no `{action}`; only `check` takes it" in err
