"""Batches on an index loaded from a table: what is known, what moves, what is deleted, what comes too late."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.state.layout import StateLayout
from tagstream.state.tag_batch import OP_DELETE, OP_INSERT, OP_UPDATE
from tagstream.state.tag_group import tag_key_group
from tagstream.table.errors import CorruptFileError
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COMMIT_TIME_PAYLOAD, COPY_ON_WRITE, MERGE_ON_READ, MergeMode
from tagstream.table.read.stored_keys import names_single_key
from tests.bootstrap.index_content import LABELS, content, load, make_layout
from tests.state.tagging import Event, make_batch, make_profile
from tests.table.reference import expected, unpack
from tests.table.writer import Writer, row

Located = set[tuple[str, int, str, str]]


def tag(layout: StateLayout, events: list[Event]) -> tuple[Located, int]:
    """First batch on generation 1: (record key, op, partition path, file id) of what it would write, and late events."""
    written: Located = set()
    late = 0
    for i, label in enumerate(LABELS):
        mine = [e for e in events if zlib.crc32(e.key.encode()) % len(LABELS) == i]
        profile = make_profile(0, index_load=1, labels=LABELS)
        result = tag_key_group(label, None, make_batch(mine, layout), profile, layout)
        names = [key[1:].decode() for key in result.skey]
        written |= set(zip(names, result.op.tolist(), result.partition, result.file_id, strict=True))
        late += result.stats["late"]
    return written, late


def test_events_meet_the_rows_that_hudi_wrote(tmp_path: Path) -> None:
    base_path = unpack("mor_v6_global_simple_moves_015", tmp_path)
    layout = make_layout(tmp_path, HoodieTable.open(str(base_path)))
    load(HoodieTable.open(str(base_path)), layout)
    records = sorted(expected(base_path)["records"], key=lambda r: r["_hoodie_record_key"])
    events, wanted, late = [], set[tuple[str, int, str, str]](), 0
    for n, r in enumerate(records):
        key, part, file_id, ver = r["_hoodie_record_key"], r["_hoodie_partition_path"], r["file_id"], r["row"]["ver"]
        match n % 4:
            case 0:
                events.append(Event(key, part, ver))  # equal ordering: the later one counts
                wanted.add((key, OP_UPDATE, part, file_id))
            case 1:
                events.append(Event(key, "part=elsewhere", ver + 1))
                wanted.add((key, OP_DELETE, part, file_id))
            case 2:
                events.append(Event(key, None, ver + 1, delete=True))
                wanted.add((key, OP_DELETE, part, file_id))
            case 3:
                events.append(Event(key, "part=elsewhere", ver - 1))
                late += 1
    dead = {k: int(e.ordering) for k, e in content(layout).items() if e.partition is None}
    revived = dict(sorted(dead.items())[::2])
    events += [Event(k, "part=back", v + 1 if k in revived else v - 1) for k, v in dead.items()]
    found, found_late = tag(layout, events)
    moved = {r["_hoodie_record_key"] for r in records[1::4]}
    assert {f for f in found if f[1] != OP_INSERT} == wanted
    assert {key for key, op, _, _ in found if op == OP_INSERT} == moved | set(revived)
    assert found_late == late + len(dead) - len(revived)


@pytest.mark.parametrize("named", [True, False])
def test_a_complex_key_of_one_field_is_found_in_the_form_the_table_has(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complex_keys = "org.apache.hudi.keygen.ComplexKeyGenerator"
    settings = {"partition_fields": ("part", "ver"), "key_generator": complex_keys}
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings=settings)
    rows = Writer.rows

    def with_names(self: Writer, found: list[dict[str, object]]) -> pa.Table:
        table = rows(self, found)
        index = table.schema.get_field_index("_hoodie_record_key")
        keys = pa.array([f"id:{k}" if named else k for k in table.column("_hoodie_record_key").to_pylist()])
        return table.set_column(index, "_hoodie_record_key", keys)

    monkeypatch.setattr(Writer, "rows", with_names)
    writer.write([row(i, f"p{i % 2}", 1) for i in range(20)])
    table = writer.table.reload()
    layout = make_layout(tmp_path, table)
    load(table, layout)
    generator = KeyGenerator.create(
        complex_keys, ("id",), ("part", "ver"), False, False, name_single_key=names_single_key(table) or False
    )
    keys = generator.record_keys(pa.table({"id": ["k3", "k4"]})).to_pylist()
    found, _ = tag(layout, [Event(key, "p1" if key.endswith("3") else "p0", 2) for key in keys])
    assert found == {(keys[0], OP_UPDATE, *writer.where["k3"]), (keys[1], OP_UPDATE, *writer.where["k4"])}


def test_orderings_of_deletes_are_kept_where_commit_time_decides(tmp_path: Path) -> None:
    settings = {"merge_mode": MergeMode.COMMIT_TIME, "payload_class": COMMIT_TIME_PAYLOAD}
    writer = Writer.create(tmp_path, MERGE_ON_READ, settings=settings)
    writer.write([row(i, "p0", 5) for i in range(6)])
    writer.write([row(0, "p0", 4)])
    writer.write(deletes=["k1", "k2", "k3"], orderings={"k1": 9, "k2": 2})
    table = writer.table.reload()
    table = replace(table, config=replace(table.config, merge_mode=MergeMode.COMMIT_TIME))
    layout = make_layout(tmp_path, table)
    load(table, layout)
    found = {k: (e.partition, e.ordering) for k, e in content(layout).items()}
    dead = {"k1": (None, 9), "k2": (None, 2), "k3": (None, 5)}
    assert found == dead | {"k0": ("p0", 4), "k4": ("p0", 5), "k5": ("p0", 5)}


@pytest.mark.spark
def test_spark_tasks_load_the_same_index(spark: SparkSession, tmp_path: Path) -> None:
    base_path = unpack("mor_v6_compaction_pending", tmp_path)
    table = HoodieTable.open(str(base_path))
    here, there = make_layout(tmp_path / "here", table), make_layout(tmp_path / "there", table)
    ticks = []
    alone, report = load(table, here), load(table, there, spark=spark, progress=ticks.append)
    assert content(there) == content(here)
    assert replace(report, index_bytes=0) == replace(alone, index_bytes=0)
    assert (ticks[-1].stage, ticks[-1].done) == ("load", len(LABELS))
    for path in base_path.glob("p*/*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptFileError, match=r"base file .* is not a readable Parquet file"):
        load(table, there, 2, spark=spark)
