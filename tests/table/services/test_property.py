"""Whatever base file and logs hold, early and late versions of rows and deletes: a compaction changes no row."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.table.file_group.names import new_file_id, write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ, MergeMode, TableConfig
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext
from tests.support.table_version import table_version
from tests.table.services.compaction_compacting import ALL, plan_and_compact, rows, slices_with_logs
from tests.table.writer import SCHEMA, START_MS, Writer, delete_rows, row

WITH_FLAG = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
GROUP = ("p0", new_file_id("the", "group"))
FIELDS = {MergeMode.EVENT_TIME: ("ver",), MergeMode.COMMIT_TIME: ()}

change = st.tuples(
    st.integers(0, 7),  # key
    st.integers(0, 4),  # ordering value
    st.sampled_from(["upsert", "upsert", "upsert", "flagged", "delete", "natural"]),
)
batch = st.lists(change, min_size=1, max_size=8, unique_by=lambda c: c[0])


def new_table(folder: Path, mode: MergeMode) -> Writer:
    config = TableConfig(
        name="t",
        table_type=MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=FIELDS[mode],
        create_schema=json.dumps(arrow_to_avro(WITH_FLAG, "t")),
        version=table_version(),
        merge_mode=mode,
    )
    return Writer(HoodieTable.create(str(folder / "t"), config, START_MS), schema=WITH_FLAG)


def write(writer: Writer, changes: list[tuple[int, int, str]], number: int) -> None:
    """The changes as they are, whether they are late or not: what wins is decided when they are read."""
    table, timeline = writer.table, writer.table.timeline()
    found = table.view(timeline).latest_slice(*GROUP)
    changes = [c for c in changes if found is not None or c[2] in ("upsert", "flagged")]
    upserts: list[dict[str, Any]] = [
        {**row(key, GROUP[0], ver, f"n{number}"), "_hoodie_is_deleted": kind == "flagged", "_is_insert": found is None}
        for key, ver, kind in changes
        if kind in ("upsert", "flagged")
    ]
    if found is None:  # a base file takes no deletes
        upserts = [{**each, "_hoodie_is_deleted": False} for each in upserts]
    gone = [
        (f"k{key}", ver if kind == "delete" else None) for key, ver, kind in changes if kind in ("delete", "natural")
    ]
    instant = writer.instant()
    commit.request(table, instant, writer.action)
    commit.inflight(table, instant, writer.action)
    avro = json.dumps(arrow_to_avro(WITH_FLAG, "t"))
    token = write_token(0, 1, number)
    context = WriteContext(
        instant, writer.action, 0, token, WITH_FLAG, avro, timeline.newest_completed, timeline, writer.options
    )
    statuses = write_file_group(table, context, *GROUP, found, writer.rows(upserts), delete_rows(gone))
    commit.publish_files(table, instant, statuses)
    metadata = CommitMetadata.build(statuses, {}, avro)
    commit.complete(table, instant, writer.action, metadata, clock_ms=lambda: writer.now_ms)


@pytest.mark.extended("longer random histories")
@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("mode", list(FIELDS))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(batch, min_size=1, max_size=5),
    more=st.lists(batch, max_size=2),
    base=st.booleans(),
    spills=st.booleans(),
)
def test_rows_are_the_same_before_and_after(
    version: int, mode: MergeMode, history: list[Any], more: list[Any], base: bool, spills: bool
) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        writer = new_table(folder, mode).with_options(inserts_to_base_files=base)
        assert writer.table.reload().config.merge_mode is mode
        options = replace(ALL, max_memory=1) if spills else ALL
        numbers = iter(range(1, 100))
        for part in (history, more):
            for changes in part:
                write(writer, changes, next(numbers))
            if not slices_with_logs(writer.table):
                continue
            before = rows(writer.table)
            result = plan_and_compact(writer, options)
            assert rows(writer.table) == before
            assert slices_with_logs(writer.table) == []
            assert [s.stat.num_writes for s in result.statuses] == [len(before)]
    finally:
        shutil.rmtree(folder)
