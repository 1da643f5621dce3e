"""Files of `ray up`, KubeRay and Slurm: what `platform.cluster check` says of them, and the environment of a head."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster.check import find_cluster_file_problems, load_cluster_file
from tests.support.cluster_files import VALUES, changed, fill
from tests.support.starts import invoke
from trainables.common.errors import InputError

AWS, KUBERAY, SLURM = "cluster.yaml", "clusters/kuberay.yaml", "clusters/slurm.sbatch"
UNFILLED = {
    AWS: [f"({name}: " for name in VALUES],
    SLURM: ["(--partition=FILL IN)", '(export UNLEARN_STORAGE="FILL IN")', "platform.sweep FILL IN --resume)"],
}


def run_command(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and error of `python -m platform.cluster`."""
    done = invoke(cluster.main, *arguments)
    return done.exit_code, done.stdout, done.stderr


def filled(root: Path, name: str) -> str:
    """Return the text of a shipped file, filled in as a person would."""
    text = fill((root / name).read_text())
    for old, new in (("partition=FILL IN", "partition=gpu"), ("sweep FILL IN", "sweep tofu_llama")):
        text = text.replace(old, new)
    return text.replace("FILL IN", "/scratch/me/runs") if name == SLURM else text


def find_problems(folder: Path, text: str) -> list[str]:
    """Return what `check` says about a file with this text."""
    (folder / "cluster.yaml").write_text(text)
    return find_cluster_file_problems(load_cluster_file(str(folder / "cluster.yaml")))


@pytest.mark.parametrize(("name", "start"), [(AWS, "ray up"), (SLURM, "sbatch")])
def test_a_shipped_file_names_all_that_is_to_be_filled_in_and_works_then(
    name: str, start: str, root: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    status, _, err = run_command("check", name)
    *errors, last = err.splitlines()
    assert (status, last) == (2, f"{name}: {len(UNFILLED[name])} to mend before `{start}`")
    for part, line in zip(UNFILLED[name], errors, strict=True):
        assert "still to be filled in" in line
        assert part in line
    path = tmp_path / Path(name).name
    path.write_text(filled(root, name))
    assert run_command("check", path) == (0, f"{path}: can be used; start it with: {start} {path}\n", "")
    if name == AWS:
        token = home / ".ray" / "auth_token"
        assert (token.stat().st_mode & 0o777, len(token.read_text())) == (0o600, 64)


@pytest.mark.parametrize("name", [AWS, "clusters/onprem.yaml", "clusters/rehearsal.yaml", KUBERAY])
def test_the_files_open_nothing_and_lack_only_what_a_person_fills_in(name: str, root: Path, tmp_path: Path) -> None:
    text = (root / name).read_text()
    assert [problem for problem in find_problems(tmp_path, text) if "still to be filled in" not in problem] == []
    assert "0.0.0.0" not in text
    script = (root / "clusters" / "mlflow.sh").read_text()
    assert re.findall(r"--(?:host|port|uvicorn-opts) (.*) --workers", script) == ['"--uds $place/socket"']


NODE = "available_node_types.a100.node_config"
ADDRESS = "an address with a user name, password or token; leave that out"
PROBLEMS = [  # the file, what is written, what stands there instead, what `check` says
    (AWS, "idle_timeout_minutes", "idle_timeout_minute", "'idle_timeout_minute' were unexpected)"),
    (AWS, "min_workers: 0", "min_workers: some", "available_node_types.a100.min_workers: 'some' is not of type 'integ"),
    (AWS, "  storage: s3://bucket/runs", "", "provider.storage: missing; name the storage that every node sees"),
    (AWS, "s3://bucket/runs", "s3://key:word@bucket/x", f"line 20: {ADDRESS}"),
    (AWS, "host=127.0.0.1", "host=0.0.0.0", "--dashboard-host=0.0.0.0 shows the dashboard to others"),
    (AWS, "AUTH_MODE=token ray start --address", "X= ray start --address", "worker_start_ray_commands: `ray start` wi"),
    (AWS, "DASHBOARD_METRIC_PORT=-1", "", "head_start_ray_commands: `ray start` without DASHBOARD_METRIC_PORT=-1"),
    (AWS, "worker_start_ray_commands:", "worker_setup_commands:", "worker_start_ray_commands: `ray start` without RA"),
    (AWS, "      SecurityGroupIds: [*group]\n", "", f"{NODE}.SecurityGroupIds: missing; Ray would make a group that"),
    (AWS, "setup_commands:", "setup_commands:\n  - export HF_TOKEN=hf_word", ": HF_TOKEN is a secret; leave it out"),
    (AWS, "backend: sqlite ", "backend: postgresql://me:word@host/mlflow ", f": {ADDRESS}"),
    (KUBERAY, "mode: token", "mode: disabled", "spec.rayClusterSpec.authOptions.mode: not token; whoever reaches"),
    (KUBERAY, "DASHBOARD_METRIC_PORT", "OTHER", "DASHBOARD_METRIC_PORT: not set in any `env`; metrics would be"),
    (KUBERAY, "serviceType: ClusterIP", "serviceType: LoadBalancer", ": serviceType: LoadBalancer opens Ray's ports"),
    (KUBERAY, "restartPolicy: Never", "hostNetwork: true", ": hostNetwork: true opens Ray's ports to"),
    (KUBERAY, "name: UNLEARN_CACHE, value: /", "name: HF_TOKEN, value: hf_", "env: HF_TOKEN is a secret; leave it"),
    (SLURM, "/scratch/me/runs", "s3://BUCKET/FOLDER", "line 23: still to be filled in (export UNLEARN_STORAGE="),
    (SLURM, "#SBATCH --requeue", "#SBATCH --export=ALL,MY_TOKEN=a", "line 20: MY_TOKEN is a secret; leave it out"),
]
ANOTHER = {
    AWS: ("cluster_name", "cluster_nam", "'cluster_nam'"),
    KUBERAY: ("image: FILL IN", "image: FILL IN", "still to be filled in (image: FILL IN)"),
    SLURM: ("--partition=gpu", "--partition=FILL IN", "line 11: still to be filled in"),
}
"""A second problem of each file."""


@pytest.mark.parametrize(("name", "old", "new", "message"), PROBLEMS)
def test_all_problems_are_named_at_once(
    name: str, old: str, new: str, message: str, root: Path, tmp_path: Path
) -> None:
    before, after, another = ANOTHER[name]
    found = "\n".join(find_problems(tmp_path, changed(changed(filled(root, name), old, new), before, after)))
    assert message in found
    assert another in found


def test_what_is_no_cluster_file(tmp_path: Path) -> None:
    for text, message in (("a: [", "is not YAML"), ("- a", "is no cluster file"), ("", "is no cluster file")):
        with pytest.raises(InputError, match=message):
            find_problems(tmp_path, text)
    with pytest.raises(InputError, match="No such file"):
        load_cluster_file("no-such.yaml")
    no_traceback = "provider: [aws]\navailable_node_types: 3\nhead_start_ray_commands: none\n"
    assert find_problems(tmp_path, no_traceback)


def test_environment_of_the_head(tmp_path: Path, root: Path, home: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(fill((root / AWS).read_text(), storage="'s3://bucket/a b'"))
    status, out, _ = run_command("environment", path)
    echo = 'echo "$UNLEARN_STORAGE|$MLFLOW_TRACKING_URI|$RAY_ADDRESS|$RAY_AUTH_MODE"'
    printed = subprocess.run(["bash", "-c", out + echo], capture_output=True, text=True, check=True).stdout
    assert (status, printed) == (0, f"s3://bucket/a b|sqlite:///{home}/mlflow/mlflow.db|auto|token\n")
    message = "error: unknown action 'chekc'; did you mean 'check'? known: check, environment, account\n"
    assert run_command("chekc", "cluster.yaml") == (2, "", message)


def test_the_image_is_what_clusters_expect(root: Path) -> None:
    """The code at one place, which is the working directory; the user of the pods; nothing that git ignores."""
    job = yaml.safe_load((root / "clusters" / "kuberay.yaml").read_text())
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    places = re.findall("^WORKDIR (.*)$", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert (places[-1], 1000) == (head["containers"][0]["workingDir"], head["securityContext"]["runAsUser"])
    ignored = {line.strip("/*") for line in (root / ".dockerignore").read_text().splitlines()}
    lines = (root / ".gitignore").read_text().splitlines()
    assert {line.strip("/*") for line in lines if line and line[0] != "#"} - {".py[cod]"} <= ignored


def test_the_image_holds_no_key(root: Path) -> None:
    """Of .git nothing goes along that may hold an address with a token."""
    lines = (root / ".dockerignore").read_text().splitlines()
    assert {"**/.env*", "**/*.pem", "**/*.key", ".git/*"} <= set(lines)
    sent = {line.removeprefix("!.git/") for line in lines if line.startswith("!")}
    assert sent.isdisjoint({"config", "logs", "hooks", "FETCH_HEAD", "info"})
    assert "--from-env-file=.env " in (root / "docs" / "cluster.md").read_text()
