"""Tables that real Hudi wrote are written on: updates, deletes and inserts into their own file groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tagstream.table.file_group.names import new_file_id, next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS, avro_to_arrow
from tagstream.table.services.rollback import rollback
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.support.hudi_rs import read_table
from tests.table.reference import NAMES, unpack
from tests.table.writer import SMALL_BLOOM

CONTINUED = list(NAMES)
NOW = 1_893_456_000_000  # 2030
LATER = 1_000_000


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=(
        "cow_v6_global_bloom_moves",
        "mor_v6_compaction_pending",
        "cow_v9_record_index",
        "mor_v9_services",
        "flink_mor_moves",
    ),
)
@pytest.mark.parametrize("name", CONTINUED)
def test_upsert_delete_and_insert(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table, before = prepared(base_path)
    after = write_on(table, before)
    table = table.reload()
    assert validate(table) == []
    found = read_snapshot(table)
    assert by_key(found) == after
    assert found.num_rows == len(after)
    if name != "mor_v6_compaction_pending":  # hudi-rs does not see deltas behind a compaction's plan
        theirs = read_table(base_path)
        assert theirs.num_rows == len(after)
        assert by_key(theirs.select(found.column_names).cast(found.schema)) == after


def prepared(base_path: Path) -> tuple[HoodieTable, pa.Table]:
    """The table as a new writer makes it ready: no metadata table, no unfinished writes."""
    table = HoodieTable.open(str(base_path))
    table.drop_metadata_table(NOW)
    table = table.reload()
    table.check_writable()
    for failed in table.timeline().pending_writes:
        rollback(table, failed.time, next_instant(NOW, table.timeline().newest))
    return table, read_snapshot(table)


def write_on(table: HoodieTable, before: pa.Table) -> dict[Any, dict[str, Any]]:
    """One commit into every file group: every third row is updated, every seventh deleted; one insert a partition.

    Returns the rows that ought to be there, by (partition path, record key).
    """
    timeline = table.timeline()
    instant = next_instant(NOW + 1000, timeline.newest)
    action = "deltacommit" if table.config.is_merge_on_read else "commit"
    avro = table.schema_json(timeline) or ""
    schema = avro_to_arrow(avro)
    ordering = next(iter(table.config.ordering_fields), "")
    live = by_key(before)
    commit.request(table, instant, action)
    commit.inflight(table, instant, action)
    statuses = []
    ids = pc.list_element(pc.split_pattern(before.column("_hoodie_file_name"), "_"), 0)
    groups = pa.table({"p": before.column("_hoodie_partition_path"), "f": ids})
    for n, group in enumerate(groups.group_by(["p", "f"]).aggregate([]).sort_by([("p", "ascending")]).to_pylist()):
        mask = pc.and_(pc.equal(groups.column("p"), group["p"]), pc.equal(groups.column("f"), group["f"]))
        rows = before.filter(mask).sort_by("_hoodie_record_key")
        number = pa.array(range(rows.num_rows))
        updated, deleted = rows.filter(every(number, 3)), rows.filter(pc.and_not(every(number, 7), every(number, 3)))
        ctx = WriteContext(instant, action, n, f"{n}-0-1", schema, avro, timeline.newest_completed, timeline,
                           WriterOptions(bloom=SMALL_BLOOM))  # fmt: skip
        changed = raised(updated, ordering)
        at = table.view(timeline).latest_slice(group["p"], group["f"])
        statuses += write_file_group(
            table, ctx, group["p"], group["f"], at, upserts(changed, schema, False), deletes(deleted, ordering)
        )
        new = raised(rows.slice(0, 1), ordering).set_column(2, "_hoodie_record_key", pa.array([f"new{n}"]))
        statuses += write_file_group(
            table,
            ctx,
            group["p"],
            new_file_id("t", n),
            None,
            upserts(new, schema, True),
            deletes(deleted.slice(0, 0), ordering),
        )
        live |= by_key(pa.concat_tables([changed, new]))
        for row in deleted.to_pylist():
            del live[row["_hoodie_partition_path"], row["_hoodie_record_key"]]
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, action, CommitMetadata.build(statuses, {}, avro))
    assert len({s.stat.path for s in statuses}) == len(statuses)
    return live


def every(number: pa.Array, step: int) -> pa.Array:
    return pc.equal(pc.subtract(number, pc.multiply(pc.divide(number, step), step)), 0)


def raised(rows: pa.Table, ordering: str) -> pa.Table:
    """The rows with a greater ordering value."""
    index = rows.schema.get_field_index(ordering)
    return rows.set_column(
        index, rows.schema.field(index), pc.add(rows.column(ordering), LATER).cast(rows.schema.field(index).type)
    )


def upserts(rows: pa.Table, schema: pa.Schema, is_insert: bool) -> pa.Table:
    table = rows.select(schema.names).append_column("_hoodie_record_key", rows.column("_hoodie_record_key"))
    return table.append_column("_is_insert", pa.array([is_insert] * rows.num_rows, pa.bool_()))


def deletes(rows: pa.Table, ordering: str) -> pa.Table:
    return pa.table({"_hoodie_record_key": rows.column("_hoodie_record_key"), "_ordering": rows.column(ordering)})


def by_key(rows: pa.Table) -> dict[Any, dict[str, Any]]:
    """User columns by (partition path, record key), in a form that compares."""
    return {
        (row["_hoodie_partition_path"], row["_hoodie_record_key"]): json.loads(
            json.dumps(
                {name: value for name, value in row.items() if name not in META_COLUMNS}, default=str, sort_keys=True
            )
        )
        for row in rows.to_pylist(maps_as_pydicts="strict")
    }
