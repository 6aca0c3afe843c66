"""Where the type of Protobuf messages is, and what it becomes (Hudi's ``ProtoKafkaSource`` and its schema provider)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.streaming.options.source_options import FirstSchema
from tagstream.streaming.source.decode.proto_rules import ProtoRules, message_schema
from tagstream.streaming.source.decode.schema_names import without_field
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import derived, option, read

PREFIX = "hoodie.streamer.schemaprovider.proto."
_CLASS, _FILE = PREFIX + "class.name", "tagstream.proto.descriptor.file"
_DESERIALIZER = "hoodie.streamer.source.kafka.proto.value.deserializer.class"
_BYTES, _CONFLUENT = "ByteArrayDeserializer", "KafkaProtobufDeserializer"


@dataclass(frozen=True, kw_only=True)
class ProtoOptions:
    """``framed``: values have Confluent's frame."""

    name: str | None = option(
        _CLASS,
        Kind.STRING,
        "Java class of the messages of ProtoKafkaSource, which must be in one of the job's jars; or, with "
        "`tagstream.proto.descriptor.file`, the full name of the message, or that of its class.",
        default_note="required with ProtoKafkaSource",
    )
    file: str | None = option(
        _FILE,
        Kind.PATH,
        "File with the descriptors of the messages, made by `protoc --include_imports --descriptor_set_out=FILE`. The job "
        "then needs no Java class.",
        default_note="none: the descriptors are those of the Java class",
    )
    wrappers_as_records: bool = option(
        PREFIX + "flatten.wrappers",
        Kind.BOOL,
        "Wrappers such as `google.protobuf.Int64Value` become records with a field `value`; with false, the value or null. "
        "(The name says the opposite; this is Hudi's meaning.)",
        default=False,
    )
    timestamps_as_records: bool = option(
        PREFIX + "timestamps.as.records",
        Kind.BOOL,
        "`google.protobuf.Timestamp` becomes a record with seconds and nanos; with false, a timestamp in microseconds "
        "(see `tagstream.decode.times`).",
        default=False,
    )
    max_depth: int = option(
        PREFIX + "max.recursion.depth",
        Kind.INT,
        "How many times a message that contains itself is unrolled. The rest is stored as bytes.",
        default=5,
        minimum=1,
        maximum=100,
    )
    framed: bool = derived(
        ConfigKey(
            _DESERIALIZER,
            Kind.CHOICE,
            "Form of the values of ProtoKafkaSource: the bytes of a message (`ByteArrayDeserializer`), or a message after "
            "the id of its schema, as Confluent's serializer writes it (`KafkaProtobufDeserializer`).",
            default=_BYTES,
            values={
                prefix.upper() + name.upper(): name
                for name, package in (
                    (_BYTES, "org.apache.kafka.common.serialization."),
                    (_CONFLUENT, "io.confluent.kafka.serializers.protobuf."),
                )
                for prefix in ("", package)
            },
        ),
        default=False,
    )


def proto_options(r: Resolved, source_class: str) -> ProtoRules | None:
    """The type of the messages, if the source has Protobuf; problems are noted in ``r``."""
    if source_class != "ProtoKafkaSource":
        given = [name for name in r.entries if name.startswith(PREFIX) or name in (_FILE, _DESERIALIZER)]
        r.warnings += [f"{r.said(name)}: without effect, only ProtoKafkaSource reads it" for name in given]
        return None
    found = read(ProtoOptions, r, framed=r.text(_DESERIALIZER) == _CONFLUENT)
    if found.name is None:
        r.problems.append(Problem(f"{_CLASS} is missing; set it to the class, or the full name, of the messages"))
        return None
    rules = ProtoRules(
        name=found.name,
        framed=found.framed,
        wrappers_as_records=found.wrappers_as_records,
        timestamps_as_records=found.timestamps_as_records,
        max_depth=found.max_depth,
    )
    return rules if found.file is None else r.attempt(lambda: _with_file(rules, str(found.file)), None, _FILE, _CLASS)


def _with_file(rules: ProtoRules, path: str) -> ProtoRules:
    try:
        made = replace(rules, descriptors=Path(path.removeprefix("file://")).read_bytes())
    except OSError as e:
        raise ConfigError(
            f"{_FILE}={path}: {e.strerror}; name a file that protoc --descriptor_set_out has made"
        ) from None
    message_schema(made)
    return made


def first_schema(rules: ProtoRules | None, schema_file: str | None, delete_field: str) -> FirstSchema | None:
    """The schema of the records, without the column that marks deletes; None where a file has another one, or the
    descriptors are not known yet. ConfigError as for ``message_schema``.
    """
    if rules is None or rules.descriptors is None or schema_file is not None:
        return None
    name, avro_json = message_schema(rules)
    return FirstSchema(without_field(avro_json, delete_field), f"message {name}", None)
