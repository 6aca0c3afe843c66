"""Any history of commits, failures and rollbacks reads as a dict says, by our reader and by hudi-rs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.support.hudi_rs import read_table
from tests.support.table_version import metadata_wanted
from tests.table.writer import SCHEMA, CrashError, Writer, row

PARTITIONS = ["p0", "p1", "deep/er"]
event = st.tuples(st.integers(0, 11), st.sampled_from(PARTITIONS), st.booleans())
batch = st.tuples(
    st.lists(event, min_size=1, max_size=12, unique_by=lambda e: e[0]),
    st.sampled_from([None, None, None, "request", "inflight", "files"]),
    st.booleans(),
)


def apply(writer: Writer, events: list[tuple[int, str, bool]], version: int, crash: str | None, ordered: bool) -> None:
    upserts = [row(key, part, version) for key, part, is_delete in events if not is_delete]
    deletes = [f"k{key}" for key, _, is_delete in events if is_delete and f"k{key}" in writer.live]
    orderings = dict.fromkeys(deletes, version) if ordered else None
    try:
        writer.write(upserts, deletes, orderings, crash)
    except CrashError:
        writer.rollback_pending()


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ-False", "COPY_ON_WRITE-True"))
@pytest.mark.parametrize("inserts_to_base_files", [False, True])
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(batch, min_size=1, max_size=6))
def test_any_history(table_type: str, inserts_to_base_files: bool, history: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        writer = Writer.create(folder, table_type).with_options(
            inserts_to_base_files=inserts_to_base_files,
            groups_begin_with_base_files=bool(metadata_wanted()),  # others hudi-rs passes over, from version 8 on
        )
        states = []
        for version, (events, crash, ordered) in enumerate(history, start=1):
            apply(writer, events, version, crash, ordered)
            newest = writer.table.timeline().newest_completed
            if newest is not None:
                states.append((newest, dict(writer.live)))
        assert validate(writer.table) == []
        for rows in (read_snapshot(writer.table, SCHEMA.names), read_table(writer.table.base_path, meta_columns=False)):
            assert {r["id"]: r for r in rows.to_pylist()} == writer.live
            assert rows.num_rows == len(writer.live)
        for instant, live in states:
            past = read_snapshot(writer.table, SCHEMA.names, as_of=instant)
            assert {r["id"]: r for r in past.to_pylist()} == live
    finally:
        shutil.rmtree(folder)
