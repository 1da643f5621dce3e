"""clusters/kuberay.yaml as a person would fill it in."""

from __future__ import annotations

from tests.support.cluster_files import changed

IMAGE, STORAGE = "image: FILL IN", "value: FILL IN"


def fill_rayjob(text: str) -> str:
    return changed(changed(text, IMAGE, "image: registry.test/unlearning:1"), STORAGE, "value: s3://bucket/runs")
