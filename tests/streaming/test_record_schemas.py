"""Schemas that records bring, captured ones and made ones, through every step of a batch but Spark's own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode.record_schemas import SchemaWatch, connect_row, row_schema
from tagstream.streaming.source.decode.row_messages import SourceTables
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tagstream.table.errors import SchemaRefusedError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tagstream.table.schema.schema import avro_to_arrow
from tests.streaming.pipeline import Pipeline
from tests.streaming.schema_history import change
from tests.support import cdc, schema_registry
from tests.support.hudi_rs import read_table

BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
RULES = EvolutionRules({"id": "record key"})
# Rows that no event came for since: `grade` is the default of the source, `colour` was `color`, and a widened float is
# read by its shortest digits.
APART = ["grade", "colour", "weight"]
FIRST = json.dumps(cdc.schema_by_id(4))
WANTED = {
    "id": "int32", "name": "string", "price": "decimal128(14, 2)", "count": "int64", "weight": "double",
    "color": "string", "grade": "int32", "colour": "string",
}  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as running:
        yield running


def following(folder: Path, table_type: str, rules: FormatRules, schema: str = FIRST) -> Pipeline:
    """A table that begins with the first schema, and follows those of records as the job does."""
    run = Pipeline.create(folder, table_type, schema, ["id"], [], rules)
    run.spec = replace(run.spec, evolution=RULES)

    def on_news(noticed: list[Noticed]) -> None:
        for item in noticed:
            own = avro_to_arrow(run.spec.avro_json)
            made = evolve(own, row_schema(item.avro_json, own.names), RULES, item.source)
            if made.changes:
                change(run, made.schema, item.avro_json)

    run.on_news = on_news
    return run


def rules_of(folder: str, registry: schema_registry.Registry) -> FormatRules:
    tables = SourceTables(pinned="postgres.shop.items")  # as from the second start of a query on
    if folder == "avro":
        return FormatRules("debezium-avro", registry=RegistryPlace(registry.url), tables=tables)
    return FormatRules("debezium-json", tables=tables)


def check(run: Pipeline, phase: str) -> None:
    """Row 8 is left out: its price has four digits behind the point from then on, and the table's scale stays two."""
    wanted = [row for row in cdc.truth("shop.items", phase) if row["id"] != 8]
    for rows in (run.rows(), read_table(run.table.base_path, meta_columns=False).to_pylist()):
        wrong = cdc.differences([row for row in rows if row["id"] != 8], wanted, ["id"], APART)
        assert not wrong, (phase, wrong[:5])
    assert all("field price: 0.1234 does not fit decimal128(14, 2)" in note for note in run.bad), run.bad


@pytest.mark.extended("more kinds of tables", first=("avro-COPY", "jsonschema-MERGE"))
@BOTH
@pytest.mark.parametrize("folder", ["avro", "jsonschema"])
def test_captured_schemas_at_each_phase(
    tmp_path: Path, table_type: str, folder: str, registry: schema_registry.Registry
) -> None:
    run = following(tmp_path, table_type, rules_of(folder, registry))
    for phase, messages in cdc.phases(folder, "shop.items"):
        run.batch(messages)
        if run.batch_id and phase != "resnapshot":
            check(run, phase)
    assert len(run.bad) == 1
    assert {f.name: str(f.type) for f in run.spec.schema} == WANTED


@pytest.mark.extended("longer random histories", first=("-0-",))
@BOTH
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("folder", ["avro", "jsonschema"])
def test_captured_schemas_in_batches_cut_anywhere(
    tmp_path: Path, table_type: str, seed: int, folder: str, registry: schema_registry.Registry
) -> None:
    """Records of several schemas in a batch, newer ones before older ones; the decoder begins anew in between."""
    r = random.Random(seed)
    run = following(tmp_path, table_type, rules_of(folder, registry))
    found = [m for phase, ms in cdc.phases(folder, "shop.items") if phase != "resnapshot" for m in ms]
    left = [[m for m in found if m.partition == p] for p in (0, 1)]
    while any(left):
        taken = []
        for n, mine in enumerate(left):
            count = r.randint(0, 12)
            taken += mine[:count]
            left[n] = mine[count:]
        run.batch(taken)
    check(run, "rename_column")
    assert {f.name: str(f.type) for f in run.spec.schema} == WANTED


def envelope(row: dict[str, Any], fields: list[dict[str, Any]], lsn: int) -> cdc.Message:
    """Debezium's JSON with its schema."""
    after = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    schema = {"type": "struct", "fields": [{**after, "field": "before"}, after], "optional": False}
    payload = {"before": None, "after": row, "op": "c", "source": {"lsn": lsn, "snapshot": "false"}}
    value = json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))
    return cdc.Message(0, lsn, json.dumps({"id": row["id"]}).encode(), value.encode(), {})


ID = {"type": "int32", "optional": False, "field": "id"}
N = {"type": "int64", "optional": True, "field": "n"}
START = json.dumps({"type": "record", "name": "t", "fields": [
    {"name": "id", "type": "int"}, {"name": "n", "type": ["null", "long"], "default": None},
]})  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "row", "words"),
    [
        ([ID, {**N, "type": "string"}], {"id": 1, "n": "x"}, "column 'n' is string, in the table it is long"),
        ([{**ID, "type": "int64"}, N], {"id": 1, "n": 2}, "column 'id' is long.*record key field, whose type never"),
        ([{**ID, "field": "key"}, N], {"id": 1, "key": 1, "n": 2}, "lacks the table's column 'id'"),
        ([ID, N, {**N, "field": "N"}], {"id": 1, "n": 2, "N": 3}, "differs from the table's 'n' only in case"),
    ],
)
def test_refused_schemas_keep_the_batch(
    tmp_path: Path, fields: list[dict[str, Any]], row: dict[str, Any], words: str
) -> None:
    run = following(tmp_path, MERGE_ON_READ, FormatRules("debezium-json"), START)
    run.batch([envelope({"id": 1, "n": 1}, [ID, N], 1)])
    with pytest.raises(SchemaRefusedError, match=words):
        run.batch([envelope({"id": 2, "n": 5}, [ID, N], 2), envelope(row, fields, 3)])
    assert [(r["id"], r["n"]) for r in run.rows()] == [(1, 1)]
    assert run.batch_id == 1
    run.batch([envelope({"id": 2, "n": 5}, [ID, N], 2)])  # the source was mended: the batch is done from its beginning
    assert sorted((r["id"], r["n"]) for r in run.rows()) == [(1, 1), (2, 5)]


def test_a_narrower_type_of_a_record_is_widened(tmp_path: Path) -> None:
    run = following(tmp_path, COPY_ON_WRITE, FormatRules("debezium-json"), START)
    run.batch([envelope({"id": 1, "n": 7}, [ID, {**N, "type": "int32"}], 1), envelope({"id": 2}, [ID], 2)])
    assert sorted((r["id"], r["n"]) for r in run.rows()) == [(1, 7), (2, None)]
    assert str(run.spec.schema.field("n").type) == "int64"


def test_a_writer_s_alias_names_the_column(tmp_path: Path, registry: schema_registry.Registry) -> None:
    own = avro_to_arrow(START)
    writer = {"type": "record", "name": "t", "fields": [
        {"name": "id", "type": "int"}, {"name": "count", "aliases": ["n"], "type": ["null", "long"], "default": None},
    ]}  # fmt: skip
    assert row_schema(json.dumps(writer), own.names).equals(own)
    watch = SchemaWatch(own, RULES)
    watch.saw_avro(7, writer)
    assert watch.take() == []
    writer["fields"][1]["aliases"] = []
    watch.saw_avro(8, writer)
    (found,) = watch.take()
    assert (found.rank, found.source) == (8, "schema 8 of the registry")
    assert watch.take() == [], "told once"
    watch.saw_avro(8, {})
    assert watch.take() == [found], "judged once, told whenever records of it come"


def test_connect_s_types() -> None:
    fields = {
        "a": {"type": "int16", "optional": False},
        "b": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
              "parameters": {"scale": "2", "connect.decimal.precision": "9"}, "optional": True},
        "c": {"type": "int32", "name": "io.debezium.time.Date", "optional": True},
        "d": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
        "e": {"type": "array", "items": {"type": "string", "optional": True}, "optional": True},
        "f": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "optional": True,
              "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]},
        "g": {"type": "int32", "default": 5, "optional": False},
        "h": {"type": "struct", "optional": True, "fields": [{"type": "double", "field": "x", "optional": True}]},
    }  # fmt: skip
    found = {f.name: str(f.type) for f in row_schema(connect_row(fields), [])}
    assert found == {
        "a": "int32", "b": "decimal128(9, 2)", "c": "date32[day]", "d": "timestamp[us, tz=UTC]",
        "e": "list<element: string>", "f": "string", "g": "int32", "h": "struct<x: double>",
    }  # fmt: skip
