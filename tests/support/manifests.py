"""Kubernetes manifests, read and checked by the classes of the Kubernetes client that Spark itself brings.

The client's classes take fields that they do not know, so each field is looked up in them here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway

from tests.support.paths import ROOT

_MODEL = "io.fabric8.kubernetes.api.model"
KINDS = {
    "ConfigMap": f"{_MODEL}.ConfigMap",
    "PersistentVolumeClaim": f"{_MODEL}.PersistentVolumeClaim",
    "Deployment": f"{_MODEL}.apps.Deployment",
}
# What the client has a form of its own for: it is read by the client, and not looked into here.
_VALUES = ("Quantity", "IntOrString")


class Manifests:
    """A JVM with Spark's jars."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm

    def read(self, name: str) -> list[dict[str, Any]]:
        """The documents of a file of ``conf/run/``."""
        text = (ROOT / "conf" / "run" / name).read_text("utf-8")
        # Loaded by SnakeYAML, since Jackson does not follow an alias.
        options = self._jvm.org.yaml.snakeyaml.LoaderOptions()
        load = self._jvm.org.yaml.snakeyaml.Yaml(options)
        mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
        return [json.loads(mapper.writeValueAsString(load.load(part))) for part in text.split("\n---\n")]

    def java_options(self) -> list[str]:
        """What Spark gives each JVM of an executor."""
        return str(self._jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions()).split()

    def problems(self, document: Mapping[str, Any], kind: str | None = None) -> list[str]:
        """Fields that the class of the kind lacks, and what it does not take, in words. ``kind``: a class of the model."""
        name = f"{_MODEL}.{kind}" if kind else KINDS[document["kind"]]
        found = self._jvm.java.lang.Class.forName(name)
        try:
            self._jvm.io.fabric8.kubernetes.client.utils.Serialization.unmarshal(json.dumps(document), found)
        except Py4JJavaError as e:
            return [str(e.java_exception.getCause() or e.java_exception)]
        return list(self._unknown(document, name, document.get("kind") or kind or ""))

    def _unknown(self, value: Any, kind: str, at: str) -> Iterator[str]:
        """``kind``: as Java writes a type."""
        inner = kind.partition("<")[2].removesuffix(">")
        if isinstance(value, list):
            for index, each in enumerate(value):
                yield from self._unknown(each, inner, f"{at}[{index}]")
        elif isinstance(value, dict) and not kind.startswith("java.util.Map") and not kind.endswith(_VALUES):
            for key, each in value.items():
                field = self._field(kind, key)
                if field is None:
                    yield f"{at}.{key}: {kind.rpartition('.')[2]} has no such field"
                else:
                    yield from self._unknown(each, field, f"{at}.{key}")

    def _field(self, kind: str, name: str) -> str | None:
        """The type of a field of a class; None where it has none of that name."""
        try:
            said = self._jvm.java.lang.Class.forName(kind).getDeclaredField(name).toGenericString()
        except Py4JJavaError:
            return None
        return re.sub(r"^(?:private |protected |public |static |final )*(.*) \S+$", r"\1", said)


@contextmanager
def reader() -> Iterator[Manifests]:
    """Starts the JVM, and ends it."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        yield Manifests(gateway)
    finally:
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()
        process.wait()


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only document of that kind."""
    (found,) = [each for each in documents if each["kind"] == kind]
    return found


def written(config: Mapping[str, Any], folder: Path) -> Path:
    """A ConfigMap as the folder that a Pod sees."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in config["data"].items():
        (folder / name).write_text(text, "utf-8")
    return folder
