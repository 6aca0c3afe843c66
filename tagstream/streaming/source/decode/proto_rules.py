"""What a job says about Protobuf records, and the way to their decoder, whose packages are an optional part."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.decode.connect_json import Body
from tagstream.streaming.source.decode.record_format import DecodeRules, Facts
from tagstream.table.errors import ConfigError


@dataclass(frozen=True)
class ProtoRules:
    """``descriptors``: a FileDescriptorSet with the message and all that it uses; None until it is read from a Java
    class. ``name``: of the message, or of its Java class. ``framed``: values have Confluent's frame.
    ``wrappers_as_records``, ``timestamps_as_records``, ``max_depth``: as in Hudi's schema provider.
    """

    name: str
    descriptors: bytes | None = None
    framed: bool = False
    wrappers_as_records: bool = False
    timestamps_as_records: bool = False
    max_depth: int = 5


def message_schema(rules: ProtoRules) -> tuple[str, str]:
    """(full name of the message, Avro schema of its records). ConfigError where it has none."""
    found = _module("proto_schema").proto_message(rules)
    return found.full_name, found.avro_json


def descriptor_set(files: Sequence[bytes]) -> bytes:
    """A FileDescriptorSet of files, each a FileDescriptorProto."""
    made: bytes = _module("proto_schema").descriptor_set(files)
    return made


def proto_body(
    schema: pa.Schema, names: Mapping[str, str], facts: Mapping[str, Facts], proto: ProtoRules, rules: DecodeRules
) -> Body:
    """The decoder (``protobuf.ProtoBody``). ConfigError where its packages are not installed."""
    body: Body = _module("protobuf").ProtoBody(schema, names, facts, proto, rules)
    return body


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"tagstream.streaming.source.decode.{name}")
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("google", "ptars"):
            raise
        raise ConfigError("reading Protobuf needs ptars: pip install 'tagstream[protobuf]'") from None
