"""A client of a schema registry with Confluent's interface. It keeps each schema that it has read, since an id never
changes.

It makes three calls: ``GET /schemas/ids/ID``, at the start ``GET /subjects/SUBJECT/versions/latest``, and for each
schema that another one refers to ``GET /subjects/SUBJECT/versions/VERSION``.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tagstream.streaming.errors import SourceError
from tagstream.table.schema.schema import full_name

# The variable with name and password of the registry. Tasks read it, so these are never in the data sent to tasks.
USER_INFO_ENV = "TAGSTREAM_SCHEMA_REGISTRY_USER_INFO"
TRIES = 4
_FIRST_WAIT_S = 0.5
_TIMEOUT_S = 20.0


class UnknownSchemaError(Exception):
    """The registry has no schema with this id."""


@dataclass(frozen=True)
class RegistryPlace:
    """Location of the registry. ``url``: without name and password. ``ca_file``: PEM file of the authorities to trust."""

    url: str
    ca_file: str | None = None


class SchemaRegistry:
    """Reads schemas from the registry. ``env`` has name and password. ``wait`` sleeps between the tries of a failed
    call.
    """

    def __init__(
        self, place: RegistryPlace, env: Mapping[str, str] = os.environ, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._place = place
        self._env = env
        self._wait = wait
        self._known: dict[int, dict[str, Any]] = {}
        self._types: dict[tuple[str, int], dict[str, Any]] = {}

    def by_id(self, number: int) -> dict[str, Any]:
        """The Avro schema of an id. UnknownSchemaError when it does not exist, SourceError when the registry does not
        answer.
        """
        if number not in self._known:
            answer = self._get(f"/schemas/ids/{number}")
            if answer is None:
                raise UnknownSchemaError(f"the schema registry at {self._place.url} has no schema with id {number}")
            self._known[number] = self._whole(answer, f"schema {number}")
        return self._known[number]

    def latest(self, subject: str) -> str:
        """JSON of the newest schema of a subject. SourceError when it does not exist."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise SourceError(
                f"the schema registry at {self._place.url} has no subject {subject}; correct "
                "hoodie.streamer.schemaprovider.registry.url, or set a file with "
                "hoodie.streamer.schemaprovider.source.schema.file"
            )
        return json.dumps(self._whole(answer, f"subject {subject}"))

    def _whole(self, answer: Mapping[str, Any], what: str) -> dict[str, Any]:
        """The schema of an answer, with the types of the schemas that it refers to."""
        schema = _avro(answer, what)
        try:
            made = whole(schema, self._types_of(answer, what, ()))
        except UnknownTypeError as e:
            raise SourceError(
                f"{what} of the registry at {self._place.url} names type {e}, which neither it nor a schema that it refers "
                "to defines; correct the schema in the registry"
            ) from None
        return made if isinstance(made, dict) else {"type": made}

    def _types_of(self, answer: Mapping[str, Any], what: str, around: tuple[tuple[str, int], ...]) -> dict[str, Any]:
        """The types that the references of an answer define, and those of their references."""
        found: dict[str, Any] = {}
        for reference in answer.get("references") or ():
            place = str(reference["subject"]), int(reference["version"])
            if place in around:
                continue
            if place not in self._types:
                subject, version = place
                other = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
                if other is None:
                    raise SourceError(
                        f"{what} of the registry at {self._place.url} refers to version {version} of subject {subject}, "
                        "which does not exist; correct the schema in the registry"
                    )
                types = types_in(_avro(other, f"subject {subject}"))
                self._types[place] = types | self._types_of(other, f"subject {subject}", (*around, place))
            found |= self._types[place]
        return found

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer as JSON; None for 404. SourceError when the registry does not answer."""
        url, problem = self._place.url.rstrip("/") + path, ""
        for attempt in range(TRIES):
            if attempt:
                self._wait(_FIRST_WAIT_S * 2 ** (attempt - 1))
            try:
                with urllib.request.urlopen(self._request(url), timeout=_TIMEOUT_S, context=self._tls(url)) as answer:
                    found = json.loads(answer.read())
                    return found if isinstance(found, dict) else {}
            except urllib.error.HTTPError as e:
                if e.code == 404:
                    return None
                problem = f"it answered {e.code} {e.reason}"
                if e.code in (401, 403):
                    raise SourceError(f"{url}: {problem}; set name and password of the registry") from None
            except (OSError, ValueError) as e:
                problem = str(getattr(e, "reason", e))
        raise SourceError(
            f"the schema registry does not answer ({url}: {problem}); the batch is not lost: start again when the registry "
            "answers, or correct schema.registry.url"
        )

    def _request(self, url: str) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        user_info = self._env.get(USER_INFO_ENV)
        if user_info:
            headers["Authorization"] = "Basic " + base64.b64encode(user_info.encode()).decode()
        return urllib.request.Request(url, headers=headers)

    def _tls(self, url: str) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self._place.ca_file) if url.startswith("https:") else None


def _avro(answer: Mapping[str, Any], what: str) -> dict[str, Any]:
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise SourceError(f"{what} of the registry has type {answer['schemaType']}; only Avro is supported")
    try:
        schema = json.loads(str(answer.get("schema")))
    except ValueError:
        raise SourceError(f"{what} of the registry is not JSON") from None
    return schema if isinstance(schema, dict) else {"type": schema}


# A schema may name types of other schemas. Each such type is inserted where it is used first. Names are resolved as in
# Avro's specification ("Names"): a name without a dot is in the namespace of the enclosing record.
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})


class UnknownTypeError(Exception):
    """A schema names a type that neither it nor its references define."""


def whole(schema: Any, others: Mapping[str, Any]) -> Any:
    """The schema without references. ``others``: types of the schemas that it refers to, by full name. UnknownTypeError
    for a type that is not among them.
    """
    return _walk(schema, "", others, set())


def types_in(schema: Any, space: str = "") -> dict[str, Any]:
    """The types that a schema defines, by full name, each with its namespace."""
    found: dict[str, Any] = {}
    if isinstance(schema, list):
        for branch in schema:
            found |= types_in(branch, space)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED and "name" in schema:
            space, name = full_name(schema, space)
            found[name] = {**schema, "name": name.rpartition(".")[2], "namespace": space}
        for inner in (kind if not isinstance(kind, str) else None, schema.get("items"), schema.get("values")):
            found |= types_in(inner, space)
        for field in schema.get("fields") or ():
            found |= types_in(field.get("type"), space)
    return found


def _walk(schema: Any, space: str, others: Mapping[str, Any], known: set[str]) -> Any:
    if isinstance(schema, list):
        return [_walk(branch, space, others, known) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _named(schema, space, others, known)
    if not isinstance(schema, dict):
        return schema
    kind, out = schema.get("type"), dict(schema)
    if kind in _NAMED:
        space, name = full_name(schema, space)
        known.add(name)
        if "fields" in schema:
            out["fields"] = [{**f, "type": _walk(f["type"], space, others, known)} for f in schema["fields"]]
        return out
    for part in ("items", "values"):
        if part in schema:
            out[part] = _walk(schema[part], space, others, known)
    if kind not in ("array", "map"):
        out["type"] = _walk(kind, space, others, known)
    return out


def _named(name: str, space: str, others: Mapping[str, Any], known: set[str]) -> Any:
    full = name if "." in name or not space else f"{space}.{name}"
    if full in known:
        return name
    if full in others:
        return _walk(others[full], "", others, known)
    raise UnknownTypeError(full)
