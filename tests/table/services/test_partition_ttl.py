"""Partitions expire: by their last write, logs included, or by their creation; plans and other partitions are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.options import DAY_MS, TtlOptions, TtlType
from tagstream.table.services.replaced_partitions import delete_expired, expired_partitions
from tagstream.table.services.validate import validate
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.services.compacting import plan_compaction
from tests.table.services.tables import live, rows
from tests.table.writer import START_MS, Writer, row

every_version = pytest.mark.table_versions(6, 8, 9)
TEN = TtlOptions(days=10)


def day(number: float) -> int:
    """Milliseconds since 1970."""
    return START_MS + int(number * DAY_MS)


@pytest.fixture
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Writer:
    """A row in p0, p1 and p2, of days 1, 2 and 3; p0 is written again on day 8."""
    kind = getattr(request, "param", COPY_ON_WRITE)
    writer = Case.create(tmp_path, kind, table_version()).writer
    writer.groups = 1
    for number in range(3):
        writer.now_ms = day(number + 1)
        writer.write([row(number, f"p{number}", 1)])
    writer.now_ms = day(8)
    writer.write([row(0, "p0", 2)])
    return writer


@every_version
@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE", "v9-MERGE_ON_READ"))
@pytest.mark.parametrize("writer", [COPY_ON_WRITE, MERGE_ON_READ], indirect=True)
def test_the_last_write_counts(writer: Writer) -> None:
    """Of p0, on merge-on-read only the log file is as new as its last write."""
    assert expired_partitions(writer.table, TEN, day(11.9)).partitions == ()
    assert expired_partitions(writer.table, TEN, day(11.9)).next_ms - day(12) in range(5000)
    found = expired_partitions(writer.table, TEN, day(13.5))
    assert found.partitions == ("p1", "p2")
    assert found.next_ms - day(18) in range(5000)
    assert expired_partitions(writer.table, TEN, day(18.5)).partitions == ("p1", "p2", "p0")


@every_version
@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE", "v9-MERGE_ON_READ"))
@pytest.mark.parametrize("writer", [COPY_ON_WRITE, MERGE_ON_READ], indirect=True)
def test_their_rows_are_deleted(writer: Writer) -> None:
    now = [day(13.5)]
    instant, found = delete_expired(writer.table, TEN, lambda: now[0])
    assert instant is not None
    assert found.partitions == ("p1", "p2")
    writer.live = {key: each for key, each in writer.live.items() if each["part"] == "p0"}
    table = writer.table.reload()
    assert rows(table) == live(writer)
    assert validate(table) == []
    assert delete_expired(table, TEN, lambda: now[0])[0] is None, "they have no rows now"


def test_the_creation_counts(writer: Writer) -> None:
    by_creation = [
        TtlOptions(kind=TtlType.KEEP_BY_CREATION_TIME, days=10),
        TtlOptions(strategy_class=TtlType.KEEP_BY_CREATION_TIME, days=10),
    ]
    for options in by_creation:
        assert expired_partitions(writer.table, options, day(11.5)).partitions == ("p0",)
    Path(writer.table.base_path, "p0", ".hoodie_partition_metadata").unlink()
    assert expired_partitions(writer.table, by_creation[0], day(12.5)).partitions == ("p1",), (
        "its creation is not known"
    )


def test_some_partitions_and_a_limit(writer: Writer) -> None:
    late = day(40)
    some = TtlOptions(days=10, selected=("p2", "p0", "not there"))
    assert expired_partitions(writer.table, some, late).partitions == ("p2", "p0")
    found = expired_partitions(writer.table, TtlOptions(days=10, most=2), late)
    assert found.partitions == ("p1", "p2")
    assert found.next_ms == late, "the next turn deletes the others"


@every_version
@pytest.mark.extended("more versions", first=("v9-MERGE_ON_READ",))
@pytest.mark.parametrize("writer", [MERGE_ON_READ], indirect=True)
def test_a_partition_waits_for_its_compaction(writer: Writer) -> None:
    writer.now_ms = day(9)
    writer.write([row(1, "p1", 3)])
    plan_compaction(writer)
    planned = {partition for partition, _ in writer.table.timeline().pending_compactions}
    assert "p1" in planned
    found = expired_partitions(writer.table, TEN, day(30))
    assert {*found.partitions} == {"p0", "p1", "p2"} - planned
    assert found.next_ms == day(30)


def test_what_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"need hoodie.partition.ttl.strategy.days.retain"):
        TtlOptions()
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings={"partition_fields": ()})
    with pytest.raises(ConfigError, match="no partitions"):
        expired_partitions(writer.table, TEN, day(1))
