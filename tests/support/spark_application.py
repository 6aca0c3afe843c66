"""What a ``SparkApplication`` of Kubeflow's Spark operator may have, as far as this project's example uses it.

Names and types are those of ``api/v1beta2/sparkapplication_types.go`` of github.com/kubeflow/spark-operator. Parts that are
Kubernetes' own are named by their class in its client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.manifests import Manifests

_TEXTS = [str]
_POD = {
    "cores": int,
    "memory": str,
    "memoryOverhead": str,
    "env": ["EnvVar"],
    "envFrom": ["EnvFromSource"],
    "podSecurityContext": "PodSecurityContext",
    "securityContext": "SecurityContext",
    "serviceAccount": str,
    "terminationGracePeriodSeconds": int,
    "volumeMounts": ["VolumeMount"],
}
_FIELDS: dict[str, Any] = {
    "apiVersion": ("sparkoperator.k8s.io/v1beta2",),
    "kind": ("SparkApplication",),
    "metadata": "ObjectMeta",
    "spec": {
        "type": ("Java", "Python", "Scala", "R"),
        "mode": ("cluster", "client"),
        "sparkVersion": str,
        "image": str,
        "mainApplicationFile": str,
        "arguments": _TEXTS,
        "restartPolicy": {
            "type": ("Never", "Always", "OnFailure"),
            "onFailureRetries": int,
            "onFailureRetryInterval": int,
            "onSubmissionFailureRetries": int,
            "onSubmissionFailureRetryInterval": int,
        },
        "volumes": ["Volume"],
        "driver": _POD,
        "executor": {**_POD, "instances": int},
    },
}
_NEEDED = {"type", "sparkVersion", "mainApplicationFile", "driver", "executor"}


def problems(document: Mapping[str, Any], manifests: Manifests) -> list[str]:
    """What the operator would not take, in words."""
    missing = sorted(_NEEDED - set(document.get("spec", {})))
    return [f"spec.{name} is missing" for name in missing] + list(_unfit(document, _FIELDS, "", manifests))


def _unfit(value: Any, wanted: Any, at: str, manifests: Manifests) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(value, dict):
        for name, each in value.items():
            if name in wanted:
                yield from _unfit(each, wanted[name], f"{at}.{name}", manifests)
            else:
                yield f"{at}.{name}: not known here"
    elif isinstance(wanted, list) and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unfit(each, wanted[0], f"{at}[{index}]", manifests)
    elif isinstance(wanted, tuple):
        if value not in wanted:
            yield f"{at}: {value} is not one of {', '.join(wanted)}"
    elif isinstance(wanted, str) and isinstance(value, dict):
        yield from (f"{at}: {text}" for text in manifests.problems(value, wanted))
    elif not isinstance(wanted, type) or type(value) is not wanted:
        yield f"{at}: {value!r} is not of the right kind"
