"""Whether a table is bucketed, which only its file ids show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.buckets.hashing_metadata import SIMPLE_ENGINE
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.read.stored_keys import bucket_evidence, check_bucketed
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit as protocol
from tests.table.writer import Writer, row


def test_a_table_that_has_seen_deletes_alone_may_be_bucketed(tmp_path: Path) -> None:
    """Its commits have no files, so nothing speaks against the index that a start asks for again."""
    writer = Writer.without_metadata(tmp_path, "COPY_ON_WRITE")
    table, at = writer.table, "20260101000000100"
    protocol.request(table, at, "commit")
    protocol.inflight(table, at, "commit")
    protocol.complete(table, at, "commit", CommitMetadata.build([], {}, "{}", "UPSERT"))
    assert bucket_evidence(table, table.timeline()) is None
    check_bucketed(table, SIMPLE_ENGINE)
    check_bucketed(table, None)


def test_a_table_whose_file_groups_are_no_buckets(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, "COPY_ON_WRITE")
    writer.write([row(1, "p0", 1)])
    with pytest.raises(UnsupportedTableError, match="its file groups are not buckets"):
        check_bucketed(writer.table, SIMPLE_ENGINE)
    check_bucketed(writer.table, None)
