"""RayJobs of KubeRay: what `platform.cluster check` names, what it lets by, and whether its schema is KubeRay's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from platform.cluster import __main__ as cluster
from platform.cluster import kuberay_checks
from platform.cluster.file import load_cluster_file
from tests.support.cluster_files import changed
from tests.support.rayjob_files import fill_rayjob
from tests.support.starts import invoke

Find = Callable[[str], list[str]]


@pytest.fixture
def text(root: Path) -> str:
    """Return clusters/kuberay.yaml, filled in."""
    return fill_rayjob((root / "clusters" / "kuberay.yaml").read_text())


@pytest.fixture
def find(tmp_path: Path) -> Find:
    def find_problems(text: str) -> list[str]:
        (tmp_path / "job.yaml").write_text(text)
        return kuberay_checks.find_problems(load_cluster_file(str(tmp_path / "job.yaml")))

    return find_problems


def test_the_shipped_file_names_what_is_to_be_filled_in_and_works_then(root: Path, tmp_path: Path, text: str) -> None:
    shipped = root / "clusters" / "kuberay.yaml"
    done = invoke(cluster.main, "check", shipped)
    assert (done.exit_code, done.stderr.count("still to be filled in")) == (2, 2)
    assert "still to be filled in (image: FILL IN)\n" in done.stderr
    assert "still to be filled in (value: FILL IN)\n" in done.stderr
    assert done.stderr.endswith("kuberay.yaml: 2 to mend before `python -m platform.sweep`\n")
    (tmp_path / "job.yaml").write_text(text)
    done = invoke(cluster.main, "check", tmp_path / "job.yaml")
    start = f"python -m platform.sweep NAME --cluster {tmp_path}/job.yaml"
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/job.yaml: can be used; start it with: {start}\n"


CLUSTER = "spec.rayClusterSpec"
GROUP = f"{CLUSTER}.workerGroupSpecs.0"
POD = "      template:\n        spec: &pod\n"
EXTERNAL = "      headService: {spec: {externalIPs: [203.0.113.7]}}\n"
MISTAKES = [  # what is written, what stands there instead, what `check` says
    ("  backoffLimit:", "  backofLimit:", "spec.backofLimit: unknown key; did you mean 'backoffLimit'?"),
    ("maxReplicas: 4 ", "maxReplica: 4 ", f"{GROUP}.maxReplica: unknown key; did you mean 'maxReplicas'?"),
    ("tolerations:", "toleration:", f"{GROUP}.template.spec.toleration: unknown key; did you mean 'tolerations'?"),
    ("replicas: 0\n        m", "replicas: some\n        m", f"{GROUP}.replicas: 'some' is not of type 'integer'"),
    ("Autoscaling: true", 'Autoscaling: "true"', f"{CLUSTER}.enableInTreeAutoscaling: 'true' is not of type 'boolean'"),
    ("apiVersion: ray.io/v1", "apiVersion: ray.io/v2", "apiVersion: 'ray.io/v2' is not one of ['ray.io/v1']"),
    ("mode: token", "mode: tokens", f"{CLUSTER}.authOptions.mode: 'tokens' is not one of ['disabled', 'token']"),
    ("Mode: SidecarMode", "Mode: SideCarMode", "unknown mode 'SideCarMode'; did you mean 'SidecarMode'?"),
    ("Mode: SidecarMode", "Mode: HTTPMode", "spec.submissionMode: HTTPMode; write SidecarMode"),
    ("  shutdownAfterJobFinishes: true", "", "spec.shutdownAfterJobFinishes: not true; nodes with GPUs would stay"),
    ("  preRunningDeadlineSeconds: 3600", "", "spec.preRunningDeadlineSeconds: missing; an image that cannot be"),
    ("llama --resume", "llama", "spec.entrypoint: lacks --resume; a retry (backoffLimit) starts it anew"),
    (
        "spec:\n  entry",
        "spec:\n  entrypointNumGpus: 1\n  entry",
        "spec.entrypointNumGpus: may put the driver on a worker",
    ),
    ("spec:\n  entry", "spec:\n  clusterSelector: {a: b}\n  entry", "spec.clusterSelector: not in SidecarMode; leave"),
    ('rayVersion: "2.60.0"', 'rayVersion: "2.47.0"', f"{CLUSTER}.rayVersion: 2.47.0; the lock file, and so the image,"),
    ("mode: token", "mode: disabled", f"{CLUSTER}.authOptions.mode: not token; whoever reaches Ray's ports could run"),
    ("version: v2", "version: v1", f"{CLUSTER}.autoscalerOptions.version: not v2; the first autoscaler dies"),
    (
        "RAY_enable_metrics_collection",
        "RAY_enable_metrics",
        "headGroupSpec: env RAY_enable_metrics_collection is not '0'",
    ),
    (
        "{name: DASHBOARD_METRIC_PORT, value",
        "{name: OTHER, value",
        "headGroupSpec: env DASHBOARD_METRIC_PORT is not '-1'",
    ),
    (
        "      env: [{name: AUTOSCALER",
        "      # [{name: AUTOSCALER",
        "autoscalerOptions: env AUTOSCALER_METRIC_PORT is not '-1'",
    ),
    ("RAY_enable_metrics_collection", "RAY_AUTH_MODE", "RAY_AUTH_MODE takes the token away that authOptions asks for"),
    ("serviceType: ClusterIP", "serviceType: LoadBalancer", "serviceType: LoadBalancer opens the dashboard to other"),
    ("serviceType: ClusterIP", "enableIngress: true", "enableIngress: opens the dashboard to other networks; leave it"),
    (POD, f"{POD}          hostNetwork: true\n", "template.spec.hostNetwork: opens Ray's ports to the nodes' network"),
    ("restartPolicy: Never", "restartPolicy: Always", "spec.restartPolicy: Always; SidecarMode and autoscaler v2 want"),
    ("HF_HOME", "HF_TOKEN", "containers.0.env.1.value: HF_TOKEN is a secret; put it into a Secret and name that by"),
    ("AUTOSCALER_METRIC_PORT", "MY_TOKEN", "autoscalerOptions.env.0.value: MY_TOKEN is a secret"),
    ("  name: unlearning\n", "  name: u\n  annotations: {api-key: a}\n", "metadata.annotations.api-key: api-key is"),
    ("spec:\n  e", "spec:\n  runtimeEnvYAML: '{env_vars: {HF_TOKEN: a}}'\n  e", "spec.runtimeEnvYAML: HF_TOKEN is a"),
    (
        POD,
        f"{POD}          initContainers: [{{name: i, env: [{{name: PASSWORD, value: a}}]}}]\n",
        "env.0.value: PASSWORD",
    ),
    ("llama --resume", "llama --resume --storage s3://me:word@b", "spec.entrypoint: an address with a user name, pass"),
    ("llama --resume", "llama --resume --retry-failed", "spec.entrypoint: a retry (backoffLimit) does --retry-failed"),
    ("      serviceType: ClusterIP\n", EXTERNAL, "headService.spec.externalIPs: opens the dashboard to other networks"),
    ('num-cpus: "0" ', "dashboard-host: 127.0.0.1 ", "dashboard-host: 127.0.0.1; KubeRay could not ask the dashboard"),
    ("s3://bucket/runs", "/cache/runs", f"'/cache/runs' is on a volume of {GROUP} alone (emptyDir); give s3://BUCKET"),
    (
        "s3://bucket/runs",
        "file:///cache/runs",
        "'file:///cache/runs' is on a volume of spec.rayClusterSpec.headGroupSp",
    ),
    ("s3://bucket/runs", "s3://key:word@bucket/runs", "UNLEARN_STORAGE: the address holds a user name or password"),
    (
        "s3://bucket/runs",
        "s4://bucket/runs",
        "env UNLEARN_STORAGE: unknown scheme 's4' in 's4://bucket/runs'; write it",
    ),
    ("s3://bucket/runs", "/nfs/runs", f"'/nfs/runs' is not mounted in {GROUP}; give s3://BUCKET/FOLDER, or mount it"),
    ("UNLEARN_STORAGE", "UNLEARN_STORE", "env UNLEARN_STORAGE: missing; s3://BUCKET/FOLDER, which every node sees"),
    ("s3://bucket", "s3://BUCKET", "still to be filled in (value: s3://BUCKET/runs)"),
    ("registry.test/", "REGISTRY/", "still to be filled in (image: REGISTRY/unlearning:1)"),
    ("unlearning:1", "unlearning:TAG", "still to be filled in (image: registry.test/unlearning:TAG)"),
    ("maxReplicas: 4 ", "maxReplicas: 2147483647 ", f"{GROUP}.maxReplicas: 2147483647 is no bound; write how many"),
    ("maxReplicas: 4 ", "maxReplicas: 0 ", f"{CLUSTER}.workerGroupSpecs: no worker would ever start; add a group"),
    (
        ', nvidia.com/gpu: "8"',
        "",
        f"{CLUSTER}.workerGroupSpecs: no GPU in any group's resources.limits; add nvidia.com",
    ),
    (
        'limits: {cpu: "90", memory: 900Gi, nvidia.com/gpu: "8"}',
        "limits: {}",
        f"{GROUP}: requests 8 of nvidia.com/gpu, l",
    ),
    (
        "name: ray-worker",
        "name: ray-worker\n                image: other",
        "its container's image is not the head's; bo",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_mistakes(text: str, find: Find, old: str, new: str, message: str) -> None:
    """Each beside another one, for `check` names all at once."""
    found = "\n".join(find(changed(changed(text, old, new), "ttlSecondsAfterFinished", "ttlSecondAfterFinished")))
    assert message in found
    assert "spec.ttlSecondAfterFinished: unknown key; did you mean 'ttlSecondsAfterFinished'?" in found


def test_what_works_can_be_used(text: str, find: Find) -> None:
    claim = "      persistentVolumeClaim: {claimName: runs}"
    assert find(text.replace("cpu: 500m", "cpu: 0.5").replace('"8"', "8")) == []
    assert find(text.replace("s3://bucket/runs", "/cache/runs").replace("      emptyDir: {}", claim)) == []
    by_name = "initContainers: [{name: i, env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: token}}}]}]"
    assert find(changed(text, POD, f"{POD}          {by_name}\n")) == []


def test_kubernetes_gives_up_a_silent_head_before_kuberay_does(text: str) -> None:
    """KubeRay ends a job whose head is silent for 300 s and does not retry it; it retries where the head is gone."""
    head = yaml.safe_load(text)["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    seconds = {each["key"]: each["tolerationSeconds"] for each in head["tolerations"] if each["effect"] == "NoExecute"}
    assert seconds == {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}


def test_what_is_no_rayjob_is_no_traceback(find: Find) -> None:
    for odd in ("kind: RayJob", "kind: 3\nspec: 4", "apiVersion: v1\nspec: {rayClusterSpec: {workerGroupSpecs: [1]}}"):
        assert find(odd)


def list_fields(schema: dict[str, Any], all_: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield place and type of every field, as far as a schema describes it; a type by what it takes."""
    schema = all_[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for name, each in schema.get("properties", {}).items():
        yield f"{place}.{name}", each
        yield from list_fields(each, all_, f"{place}.{name}")
    for inside in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inside, dict):
            yield from list_fields(inside, all_, f"{place}.*")


@pytest.mark.data
def test_the_schema_is_that_of_kuberay(shared: Path, text: str) -> None:
    """KubeRay's own CRD has no field that ours lacks or has of another type, and takes the shipped file when strict."""
    path = shared / "data" / "kuberay" / "ray.io_rayjobs.yaml"
    if not path.is_file():
        pytest.skip(f"no KubeRay CRD at {path}")
    versions = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    theirs = next(each["schema"]["openAPIV3Schema"] for each in versions if each["name"] == "v1")
    ours = json.loads(kuberay_checks.SCHEMA.read_text())
    theirs["properties"].pop("status")
    mine, found = dict(list_fields(ours, ours["$defs"])), dict(list_fields(theirs, {}))
    free = tuple(f"{place}." for place, each in mine.items() if each == {"type": "object"})
    assert [place for place in found if place not in mine and not place.startswith(free)] == []
    either = {"x-kubernetes-int-or-string", "enum", "$ref"}
    typed = [place for place in found if place in mine and not either & (found[place] | mine[place]).keys()]
    assert len(typed) > 2000
    assert [place for place in typed if mine[place].get("type") != found[place].get("type")] == []
    jsonschema.Draft7Validator(make_strict(theirs)).validate(yaml.safe_load(text))


def make_strict(schema: Any) -> Any:
    """Return an OpenAPI schema of a CRD that refuses the fields which an API server drops."""
    if isinstance(schema, list):
        return [make_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: make_strict(each) for name, each in schema.items()}
    if found.get("x-kubernetes-int-or-string") is True:
        found.pop("type", None)
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found
