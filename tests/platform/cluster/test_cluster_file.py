"""Files of `ray up` and KubeRay: what `platform.cluster check` refuses and lets by, and the environment of a head."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster.check import load_cluster_file
from tests.support.cluster_files import VALUES, changed, fill
from tests.support.starts import invoke
from trainables.common.errors import InputError

Find = Callable[[str], list[str]]


def run_command(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and error of `python -m platform.cluster`."""
    done = invoke(cluster.main, *arguments)
    return done.exit_code, done.stdout, done.stderr


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


def test_ray_takes_the_shipped_file(shipped: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(fill(shipped)))
    validate_config(config)
    assert (config["max_workers"], config["idle_timeout_minutes"]) == (4, 10)


@pytest.mark.parametrize("name", ["cluster", "clusters/onprem", "clusters/rehearsal", "clusters/kuberay"])
def test_the_files_open_nothing_and_lack_only_what_a_person_fills_in(
    name: str, root: Path, find_problems: Find
) -> None:
    text = (root / f"{name}.yaml").read_text()
    assert [problem for problem in find_problems(text) if "still to be filled in" not in problem] == []
    assert "0.0.0.0" not in text
    script = (root / "clusters" / "mlflow.sh").read_text()
    assert re.findall(r"--(?:host|port|uvicorn-opts) (.*) --workers", script) == ['"--uds $place/socket"']


NODE = "available_node_types.a100.node_config"
PROBLEMS = [  # what is written, what stands there instead, what `check` says
    ("idle_timeout_minutes", "idle_timeout_minute", "'idle_timeout_minute' were unexpected)"),
    ("min_workers: 0", "min_workers: some", "available_node_types.a100.min_workers: 'some' is not of type 'integer'"),
    ("  storage: s3://bucket/runs", "", "provider.storage: missing; name the storage that every node sees"),
    ("s3://bucket/runs", "s3://key:word@bucket/x", "line 20: an address with a user name, password or token"),
    ("s3://bucket/runs", "s3://BUCKET/FOLDER", "line 20: still to be filled in (storage: s3://BUCKET/FOLDER)"),
    ("host=127.0.0.1", "host=0.0.0.0", "--dashboard-host=0.0.0.0 shows the dashboard to others"),
    (
        "RAY_AUTH_MODE=token ray start --address",
        "ray start --address",
        "worker_start_ray_commands: `ray start` without",
    ),
    ("DASHBOARD_METRIC_PORT=-1", "", "head_start_ray_commands: `ray start` without DASHBOARD_METRIC_PORT=-1"),
    ("worker_start_ray_commands:", "worker_setup_commands:", "worker_start_ray_commands: `ray start` without RAY_AUTH"),
    ("      SecurityGroupIds: [*group]\n", "", f"{NODE}.SecurityGroupIds: missing; Ray would make a group that opens"),
    (
        "setup_commands:",
        "setup_commands:\n  - export HF_TOKEN=hf_word",
        ": HF_TOKEN is a secret; leave it out, whoever reads",
    ),
    ("backend: sqlite ", "backend: postgresql://me:word@host/mlflow ", ": an address with a user name, pass"),
    ("backend: sqlite ", "backend: postgresql://h/db?user=u&password=word ", ": an address with a user name, pass"),
]


@pytest.mark.parametrize(("old", "new", "message"), PROBLEMS)
def test_problems(shipped: str, find_problems: Find, old: str, new: str, message: str) -> None:
    """Each beside another one, for `check` names all at once."""
    found = "\n".join(find_problems(changed(changed(fill(shipped), old, new), "cluster_name", "cluster_nam")))
    assert message in found
    assert "'cluster_nam'" in found


def test_a_database_is_named_with_its_user(shipped: str, find_problems: Find) -> None:
    assert find_problems(changed(fill(shipped), "backend: sqlite ", "backend: postgresql://me@host/mlflow ")) == []


RAYJOB_PROBLEMS = [
    ("mode: token", "mode: disabled", "spec.rayClusterSpec.authOptions.mode: not token; whoever reaches Ray's ports"),
    ("DASHBOARD_METRIC_PORT", "OTHER", "DASHBOARD_METRIC_PORT: not set in any `env`; metrics would be served"),
    ("serviceType: ClusterIP", "serviceType: LoadBalancer", ": serviceType: LoadBalancer opens Ray's ports to other"),
    ("serviceType: ClusterIP", "enableIngress: true", ": enableIngress: true opens Ray's ports to other"),
    ("restartPolicy: Never", "hostNetwork: true", ": hostNetwork: true opens Ray's ports to"),
    (
        "name: UNLEARN_CACHE, value: /",
        "name: HF_TOKEN, value: hf_",
        "env: HF_TOKEN is a secret; leave it out",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), RAYJOB_PROBLEMS)
def test_problems_of_a_rayjob(root: Path, find_problems: Find, old: str, new: str, message: str) -> None:
    found = find_problems(changed((root / "clusters" / "kuberay.yaml").read_text(), old, new))
    assert message in "\n".join(found)
    assert any("still to be filled in (image: FILL IN)" in problem for problem in found)


def test_what_is_no_cluster_file(find_problems: Find) -> None:
    for text, message in (("a: [", "is not YAML"), ("- a", "is no cluster file"), ("", "is no cluster file")):
        with pytest.raises(InputError, match=message):
            find_problems(text)
    with pytest.raises(InputError, match="No such file"):
        load_cluster_file("no-such.yaml")
    assert find_problems(
        "provider: [aws]\navailable_node_types: 3\nhead_start_ray_commands: none\n"
    )  # and no traceback


def test_environment_of_the_head(tmp_path: Path, shipped: str, home: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(fill(shipped, storage="'s3://bucket/a b'"))
    status, out, _ = run_command("environment", path)
    echo = 'echo "$UNLEARN_STORAGE|$MLFLOW_TRACKING_URI|$RAY_ADDRESS|$RAY_AUTH_MODE"'
    printed = subprocess.run(["bash", "-c", out + echo], capture_output=True, text=True, check=True).stdout
    assert (status, printed) == (0, f"s3://bucket/a b|sqlite:///{home}/mlflow/mlflow.db|auto|token\n")
    message = "error: unknown action 'chekc'; did you mean 'check'? known: check, environment, account\n"
    assert run_command("chekc", "cluster.yaml") == (2, "", message)
