"""The schema of a Protobuf message: as Avro, and as a message without recursion that is decoded to columns.

The Avro schema is that of Hudi's ``ProtoClassBasedSchemaProvider`` (``ProtoConversionUtil`` in hudi-utilities 1.x): a
message is a record, an enum an enum, a map an array of entries. A field of a ``oneof`` or an ``optional`` field may be
null, a single message too; other fields have Protobuf's default. A uint64 is a decimal of 21 digits, a timestamp
microseconds, a wrapper (of a string, for example) its value or null. A message that contains itself is unrolled
some times; the rest is a record of its bytes.

The message that is decoded has the same field numbers and compatible types, so it reads the same bytes: an unrolled
message is another type, the rest has type ``bytes``, an enum is its number, and a map is its entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tagstream.streaming.source.decode.proto_rules import ProtoRules
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.log_format import zigzag

OVERFLOW_NAME, OVERFLOW_BYTES = "descriptor_full_name", "proto_bytes"
ROOT: Final = "tagstream.M0"
_PACKAGE: Final = "tagstream"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("String", "Int32", "UInt32", "Int64", "UInt64", "Bool", "Bytes", "Double", "Float")
)
_MOST_MESSAGES: Final = 5_000
_F = FieldDescriptor
_SCALARS: Final[Mapping[int, tuple[str, Any]]] = {
    _F.TYPE_BOOL: ("boolean", False),
    _F.TYPE_FLOAT: ("float", 0.0),
    _F.TYPE_DOUBLE: ("double", 0.0),
    _F.TYPE_STRING: ("string", ""),
    _F.TYPE_BYTES: ("bytes", ""),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), ("int", 0)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), ("long", 0)),
}
Kind = Literal["value", "enum", "timestamp", "wrapper", "record", "rest"]


@dataclass(frozen=True)
class Node:
    """A field as it is decoded. ``symbols``: of an enum by number. ``default``: of a field of Protobuf's version 2 that
    names one. ``message``: the name of the message whose bytes are the rest.
    """

    name: str
    kind: Kind
    repeated: bool = False
    required: bool = False
    default: Any = None
    symbols: Mapping[int, str] = field(default_factory=dict)
    children: tuple[Node, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class ProtoMessage:
    """``avro_json``: Hudi's schema of the message. ``wire``: the file with the messages that are decoded, the first of
    which is ``ROOT``. ``fields``: of the message. ``index``: its place in its file, in Confluent's frame.
    """

    full_name: str
    avro_json: str
    wire: bytes
    fields: tuple[Node, ...]
    index: bytes


def proto_message(rules: ProtoRules) -> ProtoMessage:
    """The message that ``rules`` name. ConfigError where the descriptors do not have it, or it cannot be a row."""
    found = _find(rules)
    unrolled = _Unrolled(rules)
    avro, fields = unrolled.record(found, {}, _space(found.full_name), found.name)
    return ProtoMessage(
        found.full_name, json.dumps(avro), unrolled.file.SerializeToString(deterministic=True), fields, _index(found)
    )


def descriptor_set(files: Sequence[bytes]) -> bytes:
    """See ``proto_rules.descriptor_set``."""
    made = descriptor_pb2.FileDescriptorSet()
    for data in files:
        made.file.add().ParseFromString(data)
    return made.SerializeToString(deterministic=True)


def _find(rules: ProtoRules) -> Descriptor:
    files, pool = descriptor_pb2.FileDescriptorSet(), descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(rules.descriptors or b"")
    except DecodeError as e:
        raise ConfigError(f"the descriptors of message {rules.name} are not a FileDescriptorSet: {e}") from None
    for file in _in_order(files, rules.name):
        try:
            pool.Add(file)
        except TypeError as e:
            raise ConfigError(f"the descriptors of message {rules.name}: file {file.name}: {e}") from None
    messages = [
        m for file in files.file for m in _messages(pool.FindFileByName(file.name).message_types_by_name.values())
    ]
    wanted = rules.name.replace("$", ".")
    for message in messages:
        if message.full_name == wanted:
            return message
    of_class = [m for m in messages if m.full_name in _by_class(files, wanted)]
    if len(of_class) == 1:
        return of_class[0]
    known = ", ".join(m.full_name for m in messages if not m.GetOptions().map_entry)
    raise ConfigError(f"no message or Java class {rules.name} in the descriptors; they have {known or 'no messages'}")


def _in_order(files: descriptor_pb2.FileDescriptorSet, name: str) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """The files, each after those that it imports."""
    by_name, done = {file.name: file for file in files.file}, set[str]()

    def visit(file: descriptor_pb2.FileDescriptorProto) -> Iterator[descriptor_pb2.FileDescriptorProto]:
        if file.name in done:
            return
        done.add(file.name)
        for other in file.dependency:
            if other not in by_name:
                raise ConfigError(
                    f"the descriptors of message {name} lack {other}, which {file.name} imports: make the file with "
                    "protoc --include_imports --descriptor_set_out"
                )
            yield from visit(by_name[other])
        yield file

    for file in files.file:
        yield from visit(file)


def _messages(found: Any) -> Iterator[Descriptor]:
    for message in found:
        yield message
        yield from _messages(message.nested_types)


def _by_class(files: descriptor_pb2.FileDescriptorSet, wanted: str) -> set[str]:
    """Full names of the messages whose Java class has this name (with dots for its nesting)."""
    found = set()
    for file in files.file:
        package = file.options.java_package or file.package
        outer = "" if file.options.java_multiple_files else _outer_class(file)
        prefix = ".".join(part for part in (package, outer) if part)
        for rest in _nested_names(file.message_type, ""):
            if ".".join(part for part in (prefix, rest) if part) == wanted:
                found.add(".".join(part for part in (file.package, rest) if part))
    return found


def _nested_names(messages: Any, around: str) -> Iterator[str]:
    for message in messages:
        name = f"{around}.{message.name}" if around else message.name
        yield name
        yield from _nested_names(message.nested_type, name)


def _outer_class(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The outer class that protoc makes for a file."""
    if file.options.java_outer_classname:
        return file.options.java_outer_classname
    base = file.name.rpartition("/")[2].removesuffix(".proto")
    name = "".join(part[:1].upper() + part[1:] for part in base.replace("-", "_").split("_"))
    taken = {each.name for part in (file.message_type, file.enum_type, file.service) for each in part}
    return f"{name}OuterClass" if name in taken else name


def _space(full_name: str) -> str:
    return full_name.rpartition(".")[0]


def _index(message: Descriptor) -> bytes:
    """The place of a message in its file, as Confluent's serializer writes it: a count and the numbers, as varints with
    zigzag; one zero byte for the first message.
    """
    numbers: list[int] = []
    at: Descriptor | None = message
    while at is not None:
        around = at.containing_type
        siblings = list(at.file.message_types_by_name.values()) if around is None else list(around.nested_types)
        numbers.insert(0, [m.full_name for m in siblings].index(at.full_name))
        at = around
    return b"\0" if numbers == [0] else b"".join(zigzag(n) for n in (len(numbers), *numbers))


class _Unrolled:
    """Makes the Avro schema and the decoded messages at the same time. ``file``: the messages so far."""

    def __init__(self, rules: ProtoRules) -> None:
        self._rules = rules
        self._named: set[str] = set()
        self.file = descriptor_pb2.FileDescriptorProto(name="tagstream.proto", package=_PACKAGE, syntax="proto3")

    def record(
        self, message: Descriptor, depths: Mapping[str, int], path: str, where: str
    ) -> tuple[dict[str, Any], tuple[Node, ...]]:
        """(Avro record, fields). ``depths``: how often each message contains this one. ``path``: its namespace."""
        if len(self.file.message_type) >= _MOST_MESSAGES:
            raise ConfigError(
                f"message {self._rules.name} has more than {_MOST_MESSAGES:,} nested messages when it is unrolled: set a "
                "lower hoodie.streamer.schemaprovider.proto.max.recursion.depth"
            )
        made = self.file.message_type.add(name=f"M{len(self.file.message_type)}")
        depths = {**depths, message.full_name: depths.get(message.full_name, 0) + 1}
        for oneof in message.oneofs:
            if not _is_synthetic(oneof):
                made.oneof_decl.add(name=oneof.name)
        places = {oneof.name: i for i, oneof in enumerate(made.oneof_decl)}
        fields, nodes = [], []
        for each in message.fields:
            wire = made.field.add(name=each.name, number=each.number, json_name=each.name)
            kind, node = self._field(each, wire, depths, path, f"{where}.{each.name}")
            is_list = each.is_repeated
            wire.label = _F.LABEL_REPEATED if is_list else _F.LABEL_OPTIONAL  # type: ignore[assignment]
            if each.containing_oneof is not None and each.containing_oneof.name in places:
                wire.oneof_index = places[each.containing_oneof.name]
            elif _may_be_absent(each, node, wire) and not is_list:
                wire.proto3_optional = True
            fields.append({"name": each.name, "type": kind, "default": _default(each)})
            nodes.append(node)
        for wire in made.field:
            if wire.proto3_optional:
                wire.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{wire.name}_{wire.number}")
        return {"type": "record", "name": message.name, "namespace": path, "fields": fields}, tuple(nodes)

    def _field(
        self, each: FieldDescriptor, wire: Any, depths: Mapping[str, int], path: str, where: str
    ) -> tuple[Any, Node]:
        repeated = each.is_repeated
        kind, node = self._one(each, wire, depths, path, where)
        if each.containing_oneof is not None and not isinstance(kind, list):
            kind = ["null", kind]
        if repeated:
            kind = {"type": "array", "items": kind}
        return kind, node

    def _one(
        self, each: FieldDescriptor, wire: Any, depths: Mapping[str, int], path: str, where: str
    ) -> tuple[Any, Node]:
        """(Avro type of one value, node); sets the type of ``wire``."""
        repeated, required = each.is_repeated, each.is_required
        default = each.default_value if _has_own_default(each) else None
        wire.type = each.type
        if each.type in _SCALARS:
            return _SCALARS[each.type][0], Node(each.name, "value", repeated, required, default)
        if each.type == _F.TYPE_UINT64:
            return self._once("org.apache.hudi.protos.unsigned_long", _unsigned_long()), Node(
                each.name, "value", repeated, required, default
            )
        if each.enum_type is not None:
            wire.type = _F.TYPE_INT32
            symbols = _symbols(each.enum_type)
            return self._once(each.enum_type.full_name, _enum(each.enum_type)), Node(
                each.name, "enum", repeated, required, default, symbols
            )
        if each.type != _F.TYPE_MESSAGE or each.message_type is None:
            raise ConfigError(f"field {where} is a group, which Hudi's schema provider refuses too; use a message")
        return self._message(each, each.message_type, wire, depths, f"{path}.{each.name}" if path else each.name, where)

    def _message(
        self, each: FieldDescriptor, message: Descriptor, wire: Any, depths: Mapping[str, int], path: str, where: str
    ) -> tuple[Any, Node]:
        repeated, required = each.is_repeated, each.is_required
        if message.full_name in _WRAPPERS and not self._rules.wrappers_as_records:
            inner = self.file.message_type.add(name=f"M{len(self.file.message_type)}")
            kind, node = self._one(
                message.fields[0], inner.field.add(name="value", number=1, label=1), depths, path, where
            )
            wire.type_name = f".{_PACKAGE}.{inner.name}"
            return ["null", kind], Node(each.name, "wrapper", repeated, required, children=(node,))
        if message.full_name == _TIMESTAMP and not self._rules.timestamps_as_records:
            _, children = self._nested(message, wire, depths, path, where)
            micros = {"type": "long", "logicalType": "timestamp-micros"}
            return ["null", micros], Node(each.name, "timestamp", repeated, required, children=children)
        if depths.get(message.full_name, 0) >= self._rules.max_depth:
            wire.type = _F.TYPE_BYTES
            rest = self._once("org.apache.hudi.proto.recursion_overflow", _overflow())
            node = Node(each.name, "rest", repeated, required, message=message.full_name)
            return (rest if repeated else ["null", rest]), node
        record, children = self._nested(message, wire, depths, path, where)
        node = Node(each.name, "record", repeated, required, children=children)
        return (record if repeated else ["null", record]), node

    def _nested(
        self, message: Descriptor, wire: Any, depths: Mapping[str, int], path: str, where: str
    ) -> tuple[dict[str, Any], tuple[Node, ...]]:
        wire.type_name = f".{_PACKAGE}.M{len(self.file.message_type)}"
        return self.record(message, depths, path, where)

    def _once(self, full_name: str, definition: dict[str, Any]) -> Any:
        """A named type: its definition the first time, its name after that."""
        if full_name in self._named:
            return full_name
        self._named.add(full_name)
        return definition


def _has_own_default(each: FieldDescriptor) -> bool:
    return bool(each.has_default_value) and not each.is_repeated


def _is_synthetic(oneof: Any) -> bool:
    """Whether a oneof only marks an ``optional`` field."""
    fields = oneof.fields
    if len(fields) != 1 or not oneof.name.startswith("_"):
        return False
    proto = descriptor_pb2.DescriptorProto()
    fields[0].containing_type.CopyToProto(proto)
    return any(f.name == fields[0].name and f.proto3_optional for f in proto.field)


def _may_be_absent(each: FieldDescriptor, node: Node, wire: Any) -> bool:
    """Whether the decoder must say that a field is absent. It does so for messages without being asked."""
    if wire.type == _F.TYPE_MESSAGE:
        return False
    return each.containing_oneof is not None or node.kind == "rest" or node.required or node.default is not None


def _default(each: FieldDescriptor) -> Any:
    if each.is_repeated:
        return []
    if each.containing_oneof is not None or each.type == _F.TYPE_MESSAGE:
        return None
    if each.enum_type is not None:
        return _symbols(each.enum_type)[each.enum_type.values[0].number]
    return "\0" if each.type == _F.TYPE_UINT64 else _SCALARS[each.type][1]


def _symbols(enum: EnumDescriptor) -> dict[int, str]:
    """The name of each number; the first one, where a number has several."""
    found: dict[int, str] = {}
    for value in enum.values:
        found.setdefault(value.number, value.name)
    return found


def _enum(enum: EnumDescriptor) -> dict[str, Any]:
    symbols = [value.name for value in enum.values]
    return {"type": "enum", "name": enum.name, "namespace": _space(enum.full_name), "symbols": symbols}


def _unsigned_long() -> dict[str, Any]:
    decimal = {"logicalType": "decimal", "precision": 21, "scale": 0}
    return {"type": "fixed", "name": "unsigned_long", "namespace": "org.apache.hudi.protos", "size": 9, **decimal}


def _overflow() -> dict[str, Any]:
    fields = [
        {"name": OVERFLOW_NAME, "type": "string", "default": ""},
        {"name": OVERFLOW_BYTES, "type": "bytes", "default": ""},
    ]
    return {"type": "record", "name": "recursion_overflow", "namespace": "org.apache.hudi.proto", "fields": fields}
