"""What is wrong in a RayJob of KubeRay: its fields, and rules of its operator, which reports them late or never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform.cluster.checks import schema_problems, unfilled_problems
from platform.cluster.file import ClusterFile, as_list, as_mapping, find_secrets, is_filled, storage_address_problems
from platform.schedule.ray_environment import NO_METRICS
from trainables.common.errors import closest

SCHEMA = Path(__file__).with_name("rayjob_schema.json")
HEAD_GROUP = "spec.rayClusterSpec.headGroupSpec"
MODES = ("SidecarMode", "K8sJobMode", "HTTPMode", "InteractiveMode")
UNBOUNDED = 2**31 - 1
"""KubeRay's default of maxReplicas."""
ON_WORKERS = ("entrypointNumCpus", "entrypointNumGpus", "entrypointResources")
ONCE = ("--new", "--retry-failed")
"""Options of a sweep that set aside what it has done: a retry would do so again."""
NOT_IN_SIDECAR_MODE = ("clusterSelector", "submitterPodTemplate", "submitterConfig")
GPU, GPU_LIMIT = "nvidia.com/gpu", re.compile(r"gpu$")
SAME_AS_HEAD = ("image", "workingDir", "env", "envFrom")
"""Fields of a worker's container that are the head's: the code, the storage and its keys."""
NOT_SHARED = {"emptyDir", "ephemeral", "hostPath"}
"""Kinds of volumes that a pod or a node has for itself."""

Group = tuple[str, dict[str, Any]]
"""A group of pods, and where it stands in the file."""


def find_problems(file: ClusterFile) -> list[str]:
    """Return all that keeps the file from being used, as `place: what is wrong; what to do`."""
    spec = as_mapping(file.content.get("spec"))
    cluster = as_mapping(spec.get("rayClusterSpec"))
    head: Group = (HEAD_GROUP, as_mapping(cluster.get("headGroupSpec")))
    items = enumerate(as_list(cluster.get("workerGroupSpecs")))
    workers = [(f"spec.rayClusterSpec.workerGroupSpecs.{k}", as_mapping(worker)) for k, worker in items]
    found = [*unfilled_problems(file), *schema_problems(file, SCHEMA)]
    found += [f"{secret}; put it into a Secret and name that by envFrom" for secret in find_secrets(file.content)]
    found += [*_job_problems(spec), *_cluster_problems(cluster, head), *_exposure_problems(head)]
    for group in (head, *workers):
        found += _pod_problems(group)
    return [*found, *_storage_problems(head, workers), *_worker_problems(cluster, head, workers)]


def read_container(group: dict[str, Any]) -> dict[str, Any]:
    """Return the container of a group's pods in which Ray runs: the first."""
    containers = as_list(_read_pod(group).get("containers"))
    return as_mapping(containers[0]) if containers else {}


def read_variables(container: dict[str, Any]) -> dict[str, Any]:
    """Return the environment variables that a container has by value."""
    return {str(each.get("name")): each.get("value") for each in map(as_mapping, as_list(container.get("env")))}


def _read_pod(group: dict[str, Any]) -> dict[str, Any]:
    return as_mapping(as_mapping(group.get("template")).get("spec"))


def _job_problems(spec: dict[str, Any]) -> Iterator[str]:
    mode = spec.get("submissionMode", "K8sJobMode")
    if mode not in MODES:
        yield f"spec.submissionMode: unknown mode '{mode}'; {closest(str(mode), MODES)}"
    elif mode != MODES[0]:
        yield f"spec.submissionMode: {mode}; write {MODES[0]}, whose container's log --cluster shows"
    for name in NOT_IN_SIDECAR_MODE:
        if name in spec:
            yield f"spec.{name}: not in SidecarMode; leave it out"
    for name in ON_WORKERS:
        if spec.get(name):
            yield f"spec.{name}: may put the driver on a worker, which does not see what nodes may start; leave it out"
    if spec.get("shutdownAfterJobFinishes") is not True and "deletionStrategy" not in spec:
        yield "spec.shutdownAfterJobFinishes: not true; nodes with GPUs would stay when the sweep has ended"
    if "preRunningDeadlineSeconds" not in spec:
        yield "spec.preRunningDeadlineSeconds: missing; an image that cannot be pulled would be tried for ever"
    words = str(spec.get("entrypoint")).split()
    if spec.get("backoffLimit") and "--resume" not in words:
        yield "spec.entrypoint: lacks --resume; a retry (backoffLimit) starts it anew, and an unfinished sweep refuses"
    for word in (word for word in ONCE if spec.get("backoffLimit") and word in words):
        yield f"spec.entrypoint: a retry (backoffLimit) does {word} once more; leave one of the two out"


def _cluster_problems(cluster: dict[str, Any], head: Group) -> Iterator[str]:
    import ray

    place, version = "spec.rayClusterSpec", cluster.get("rayVersion")
    if version != ray.__version__:
        yield f"{place}.rayVersion: {version}; the lock file, and so the image, has {ray.__version__}"
    if as_mapping(cluster.get("authOptions")).get("mode") != "token":
        yield f"{place}.authOptions.mode: not token; whoever reaches Ray's ports could run code as you"
    scaling = cluster.get("enableInTreeAutoscaling") is True
    if scaling and as_mapping(cluster.get("autoscalerOptions")).get("version") != "v2":
        yield f"{place}.autoscalerOptions.version: not v2; the first autoscaler dies of trials larger than the cluster"
    for name, wanted in NO_METRICS.items():
        in_head = not (scaling and name.startswith("AUTOSCALER"))  # else it has a container of its own
        container = read_container(head[1]) if in_head else as_mapping(cluster.get("autoscalerOptions"))
        if read_variables(container).get(name) != wanted:
            where = HEAD_GROUP if in_head else f"{place}.autoscalerOptions"
            yield f"{where}: env {name} is not '{wanted}'; metrics would be served to all who reach the pod"


def _exposure_problems(head: Group) -> Iterator[str]:
    """Yield what shows the dashboard, on which code can be run, to other networks, or not even to KubeRay."""
    place, group = head
    service = as_mapping(as_mapping(group.get("headService")).get("spec"))
    for name, kind in (("serviceType", group.get("serviceType")), ("headService.spec.type", service.get("type"))):
        if kind not in (None, "ClusterIP"):
            yield f"{place}.{name}: {kind} opens the dashboard to other networks; write ClusterIP"
    open_by = {"enableIngress": group.get("enableIngress"), "headService.spec.externalIPs": service.get("externalIPs")}
    for name in (name for name, value in open_by.items() if value):
        yield f"{place}.{name}: opens the dashboard to other networks; leave it out, use kubectl port-forward"
    host = as_mapping(group.get("rayStartParams")).get("dashboard-host", "0.0.0.0")
    if host not in ("0.0.0.0", "::"):
        yield f"{place}.rayStartParams.dashboard-host: {host}; KubeRay could not ask the dashboard; leave it out"


def _pod_problems(group: Group) -> Iterator[str]:
    place, content = group
    pod, container = _read_pod(content), read_container(content)
    if pod.get("restartPolicy", "Never") != "Never":
        yield f"{place}.template.spec.restartPolicy: {pod['restartPolicy']}; SidecarMode and autoscaler v2 want Never"
    if pod.get("hostNetwork"):
        yield f"{place}.template.spec.hostNetwork: opens Ray's ports to the nodes' network; leave it out"
    for port in map(as_mapping, as_list(container.get("ports"))):
        if port.get("hostPort"):
            yield f"{place}: hostPort {port['hostPort']} opens a port of Ray to the nodes' network; leave it out"
    if read_variables(container).get("RAY_AUTH_MODE", "token") != "token":
        yield f"{place}: RAY_AUTH_MODE takes the token away that authOptions asks for; leave it out"
    resources = as_mapping(container.get("resources"))
    limits, requests = as_mapping(resources.get("limits")), as_mapping(resources.get("requests"))
    if "cpu" not in limits | requests and "CPU" not in as_mapping(content.get("resources")):
        yield f"{place}: its container asks for no cpu; Ray's autoscaler wants resources.limits.cpu"
    if str(requests.get(GPU, limits.get(GPU))) != str(limits.get(GPU)):
        yield f"{place}: requests {requests[GPU]} of {GPU}, limits {limits.get(GPU)}; both go by the limit"


def _storage_problems(head: Group, workers: list[Group]) -> Iterator[str]:
    place = f"{HEAD_GROUP}: env UNLEARN_STORAGE"
    storage = read_variables(read_container(head[1])).get("UNLEARN_STORAGE")
    if storage is None:
        yield f"{place}: missing; s3://BUCKET/FOLDER, which every node sees"
    yield from storage_address_problems(storage, place)
    if not is_filled(storage) or ("://" in storage and not storage.startswith("file:")):
        return
    folder = storage.removeprefix("file://")
    for name, group in (head, *workers):
        volumes = {str(each.get("name")): each for each in map(as_mapping, as_list(_read_pod(group).get("volumes")))}
        mounts = {
            f"{str(each.get('mountPath')).rstrip('/')}/": volumes.get(str(each.get("name")), {})
            for each in map(as_mapping, as_list(read_container(group).get("volumeMounts")))
        }
        deepest = max((mount for mount in mounts if f"{folder}/".startswith(mount)), key=len, default=None)
        if deepest is None:
            yield f"{place}: '{storage}' is not mounted in {name}; give s3://BUCKET/FOLDER, or mount it"
        elif kind := next(iter(NOT_SHARED & mounts[deepest].keys()), None):
            yield f"{place}: '{storage}' is on a volume of {name} alone ({kind}); give s3://BUCKET/FOLDER, or share it"


def _worker_problems(cluster: dict[str, Any], head: Group, workers: list[Group]) -> Iterator[str]:
    for place, group in workers:
        if group.get("maxReplicas") == UNBOUNDED:
            yield f"{place}.maxReplicas: {UNBOUNDED} is no bound; write how many nodes a sweep may take"
    field = "maxReplicas" if cluster.get("enableInTreeAutoscaling") else "replicas"
    if all(group.get(field) == 0 for _, group in workers):
        yield f"spec.rayClusterSpec.workerGroupSpecs: no worker would ever start; add a group with {field} above 0"
    limits = [as_mapping(as_mapping(read_container(group).get("resources")).get("limits")) for _, group in workers]
    if workers and not any(GPU_LIMIT.search(name) for each in limits for name in each):
        yield f"spec.rayClusterSpec.workerGroupSpecs: no GPU in any group's resources.limits; add {GPU}"
    ours = read_container(head[1])
    for place, group in workers:
        theirs = read_container(group)
        for name in SAME_AS_HEAD:
            if theirs and theirs.get(name) != ours.get(name):
                yield f"{place}: its container's {name} is not the head's; both need the same code, storage and keys"
