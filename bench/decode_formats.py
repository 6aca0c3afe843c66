"""What each format costs to decode: `python -m bench.decode_formats --records 20000`.

One process, processor time. Prints records and megabytes per second of the whole decoder, from raw bytes in memory, or from
a file of the source, to the input of the tag step. The same rows of 8, 24 and 100 columns in each format; Protobuf and Avro
if the extras `protobuf` and `avro` are installed.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.inputs.source_files import SourceFileCase, write_source_files
from tagstream.streaming.source.decode.confluent_avro import ConfluentAvro
from tagstream.streaming.source.decode.connect_json import Body
from tagstream.streaming.source.decode.debezium import DebeziumEvents, DebeziumRules
from tagstream.streaming.source.decode.debezium_envelope import FlatBody, envelope_fields, flat_fields
from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.streaming.source.decode.make_format import FormatRules, TableFacts, json_keys, make_format
from tagstream.streaming.source.decode.proto_rules import ProtoRules
from tagstream.streaming.source.decode.record_format import STRICT
from tagstream.streaming.source.decode.row_messages import SourceTables
from tagstream.streaming.source.decode.schema_registry import RegistryPlace, SchemaRegistry
from tagstream.streaming.source.file_plans import Split
from tagstream.streaming.source.file_reader import FilesSpec, split_lines
from tagstream.streaming.source.source import in_blocks
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.posix import PosixStorage

_KINDS = ("string", "long", "double", "string", "boolean", "int", "string")


@dataclass(frozen=True)
class Case:
    """One format: its values, message keys, and its decoder."""

    name: str
    values: list[bytes]
    decoder: KeyDecoder


class _OneSchema(SchemaRegistry):
    """A registry with one schema, so that no network is measured."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(RegistryPlace("http://localhost"))
        self._schema = schema

    def by_id(self, number: int) -> dict[str, Any]:  # noqa: ARG002 (one schema, whatever the id)
        """The schema, whatever the id."""
        return self._schema


def row_schema(columns: int) -> dict[str, Any]:
    """Avro schema of rows with this many columns."""
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
    for i in range(columns - 1):
        fields.append({"name": f"c{i}", "type": ["null", _KINDS[i % len(_KINDS)]], "default": None})
    return {"type": "record", "name": "Value", "fields": fields}


def rows(columns: int, count: int) -> list[dict[str, Any]]:
    """Rows of :func:`row_schema`."""
    make: dict[str, Callable[[int], Any]] = {
        "string": lambda n: f"text {n % 977}", "long": lambda n: n * 1_000_003, "double": lambda n: n / 8,
        "boolean": lambda n: n % 2 == 0, "int": lambda n: n % 1_000_000,
    }  # fmt: skip
    kinds = [_KINDS[i % len(_KINDS)] for i in range(columns - 1)]
    return [{"id": n, **{f"c{i}": make[kind](n + i) for i, kind in enumerate(kinds)}} for n in range(count)]


def cases(columns: int, count: int) -> list[Case]:
    """The same rows in every format."""
    schema, data = row_schema(columns), rows(columns, count)
    source = {
        "version": "3.6.3.Final", "connector": "postgresql", "name": "json", "ts_ms": 1795337732216, "snapshot": "false",
        "db": "postgres", "sequence": '["22551696","22551760"]', "schema": "shop", "table": "orders", "txId": 786,
    }  # fmt: skip
    envelopes = [{"before": None, "after": row, "source": {**source, "lsn": 1000 + n}, "op": "u", "ts_ms": 1}
                 for n, row in enumerate(data)]  # fmt: skip
    types = {"long": "int64", "int": "int32"}
    fields = [{"type": types.get(k, k), "field": n, "optional": True} for n, k in
              (("id", "long"), *((f"c{i}", _KINDS[i % len(_KINDS)]) for i in range(columns - 1)))]  # fmt: skip
    connect = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "optional": True, "field": "after"}]}
    text = [json.dumps(e).encode() for e in envelopes]
    flat = [
        json.dumps({**row, "__deleted": "false", "__op": "u", "__source_lsn": n}).encode() for n, row in enumerate(data)
    ]
    with_schema = [b'{"schema":' + json.dumps(connect).encode() + b',"payload":' + value + b"}" for value in text]
    out = [
        Case("json", [json.dumps(row).encode() for row in data], _decoder(schema, FormatRules())),
        Case("debezium-json", text, _decoder(schema, FormatRules("debezium-json"))),
        Case("debezium-json, schema", with_schema, _decoder(schema, FormatRules("debezium-json"))),
        Case("debezium-flat-json", flat, _decoder(schema, FormatRules("debezium-flat-json"))),
    ]
    if find_spec("ptars") is not None:
        out.append(_protobuf(schema, data))
    if find_spec("polars_avro") is None:
        return out
    return [*out, _avro_rows(schema, data), _avro_envelopes(schema, envelopes)]


def _protobuf(schema: dict[str, Any], data: list[dict[str, Any]]) -> Case:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = {"string": 9, "long": 3, "double": 1, "boolean": 8, "int": 5}  # FieldDescriptorProto.Type
    file = descriptor_pb2.FileDescriptorProto(name="value.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Value")
    for number, field in enumerate(schema["fields"], 1):
        kind = field["type"] if isinstance(field["type"], str) else field["type"][1]
        message.field.add(name=field["name"], number=number, label=1, type=kinds[kind])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Value"))
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    rules = FormatRules("protobuf", proto=ProtoRules("bench.Value", descriptors))
    return Case("protobuf", [make(**row).SerializeToString() for row in data], _decoder(schema, rules))


def _avro_rows(schema: dict[str, Any], data: list[dict[str, Any]]) -> Case:
    table, rules = _facts(schema), FormatRules("avro")
    wanted, paths = flat_fields(table.schema, "arrival")
    body = FlatBody(ConfluentAvro(wanted, paths, {}, _OneSchema(schema)), "arrival")
    return _avro_case("avro", table, body, _wire(schema, data), rules)


def _avro_envelopes(schema: dict[str, Any], envelopes: list[dict[str, Any]]) -> Case:
    names = ("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table")
    source = [
        *({"name": n, "type": "string"} for n in names),
        *({"name": n, "type": "long"} for n in ("ts_ms", "txId", "lsn")),
    ]
    envelope = {"type": "record", "name": "Envelope", "namespace": "bench.orders", "fields": [
        {"name": "before", "type": ["null", schema], "default": None}, {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"},
    ]}  # fmt: skip
    table = _facts(schema)
    wanted, paths = envelope_fields(table.schema, ("id",), "lsn", files=False)
    body = ConfluentAvro(wanted, paths, {}, _OneSchema(envelope))
    return _avro_case("debezium-avro", table, body, _wire(envelope, envelopes), FormatRules("debezium-avro"))


def _wire(schema: dict[str, Any], records: list[dict[str, Any]]) -> list[bytes]:
    """Records in Confluent's wire format."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    values = []
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        values.append(b"\0\0\0\0\1" + stream.getvalue())
    return values


def _avro_case(name: str, table: TableFacts, body: Body, values: list[bytes], rules: FormatRules) -> Case:
    events = DebeziumEvents(
        table.schema, table.generator, body, json_keys({}, rules, table),
        DebeziumRules(order="arrival" if name == "avro" else "lsn"), ordered=False, global_index=True,
        json=None,
    )  # fmt: skip
    return Case(name, values, KeyDecoder(table.schema, table.generator, (), True, record_format=events))


def _facts(schema: dict[str, Any]) -> TableFacts:
    text = json.dumps(schema)
    return TableFacts(
        schema=avro_to_arrow(text), avro_json=text, facts={}, generator=KeyGenerator.create(None, ("id",), ()),
        ordered=False, global_index=True, files=False, rules=STRICT,
    )  # fmt: skip


def _decoder(schema: dict[str, Any], rules: FormatRules) -> KeyDecoder:
    table = _facts(schema)
    known = replace(rules, tables=SourceTables(pinned="postgres.shop.orders"))  # as after a stream's first start
    return KeyDecoder(table.schema, table.generator, (), True, record_format=make_format(known, table))


def measure(case: Case, runs: int) -> dict[str, Any]:
    """Records and megabytes per processor second, the best of some runs."""
    n = len(case.values)
    batch = pa.RecordBatch.from_pydict({
        "key": pa.array([b'{"id":%d}' % i for i in range(n)], pa.binary()), "value": pa.array(case.values, pa.binary()),
        "src": pa.nulls(n, pa.string()), "pos_hi": pa.array(np.zeros(n, np.int64)), "pos_lo": pa.array(np.arange(n)),
    })  # fmt: skip
    best = float("inf")
    for _ in range(runs + 1):  # the first run fills caches
        began = time.process_time()
        found = case.decoder.keys(batch)
        best = min(best, time.process_time() - began)
        if found.column("reason").null_count != n:
            raise RuntimeError(f"{case.name}: {found.column('reason').drop_null()[0]}")
    size = sum(map(len, case.values))
    return {"format": case.name, "bytes": size // n, "records_s": n / best, "mb_s": size / best / 1e6}


def measure_file(
    case: SourceFileCase, decoder: KeyDecoder, columns: pa.Schema, count: int, runs: int
) -> dict[str, Any]:
    """The same for the records of a file. The bytes are those of the file."""
    size = case.path.stat().st_size
    spec = FilesSpec(PosixStorage(str(case.path.parent)), "fail", form=case.form)
    split = Split(case.path.name, 0, size, 0)
    best = float("inf")
    for _ in range(runs + 1):  # the first run fills caches
        began = time.process_time()
        blocks = in_blocks(split_lines(spec, split, {field.name: field.type for field in columns}))
        found = [decoder.keys(batch) for block in blocks for batch in block.combine_chunks().to_batches()]
        best = min(best, time.process_time() - began)
        if sum(batch.column("reason").null_count for batch in found) != count:
            raise RuntimeError(f"{case.name}: not {count:,} good records")
    return {"format": case.name, "bytes": size // count, "records_s": count / best, "mb_s": size / best / 1e6}


def figures(columns: int, records: int, runs: int) -> Iterator[dict[str, Any]]:
    """The measures of all formats, one after the other."""
    for case in cases(columns, records):
        yield measure(case, runs)
    schema = row_schema(columns)
    table = _facts(schema).schema
    with tempfile.TemporaryDirectory() as folder:
        for file in write_source_files(Path(folder), schema, table, rows(columns, records)):
            yield measure_file(file, _decoder(schema, FormatRules(file.format)), table, records, runs)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--runs", type=int, default=3)
    asked = arguments.parse_args()
    table = Table("columns", "format", "bytes a record", "records/s", "MB/s", title="decoders, one core")
    for columns in (8, 24, 100):
        for r in figures(columns, asked.records, asked.runs):
            table.add_row(str(columns), r["format"], str(r["bytes"]), f"{r['records_s']:,.0f}", f"{r['mb_s']:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
