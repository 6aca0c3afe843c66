"""Change data capture with real Hudi: its CDC query on tables of this project, and tables of Hudi that are continued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers import home as peers
from tagstream.reading import open_table
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tests.interop.hudi_spark import HudiSpark
from tests.support.changes import Change, Recorder, of_hudi, of_ours
from tests.support.table_version import using
from tests.table.services.clusters import learn, plan_and_cluster
from tests.table.services.compaction_compacting import ALL, clock
from tests.table.writer import Writer, row

pytestmark = pytest.mark.hudi_jar

CDC = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
# Hudi 1.2.0 cannot read the changes of log files in version 6: it takes their commit for an Avro file.
KINDS = [
    *(("1.2.0", COPY_ON_WRITE, version, mode) for version in (6, 9) for mode in LoggingMode),
    ("1.2.0", COPY_ON_WRITE, 8, LoggingMode.DATA_BEFORE_AFTER),
    *(("1.2.0", MERGE_ON_READ, 9, mode) for mode in LoggingMode),
    ("1.2.0", MERGE_ON_READ, 8, LoggingMode.DATA_BEFORE_AFTER),
    *(("0.15.0", MERGE_ON_READ, 6, mode) for mode in LoggingMode),
]


@pytest.fixture(scope="module", params=["1.2.0", "0.15.0"])
def hudi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """A running Hudi."""
    peers.set_up()
    with HudiSpark(request.param, tmp_path_factory.mktemp("hudi")) as running:
        yield running


def by_hudi(hudi: HudiSpark, table: Path | str, since: str = "000") -> list[Change]:
    return of_hudi(hudi.read(table, **CDC, **{"hoodie.datasource.read.begin.instanttime": since}))


def ours(table: Path | str, **times: Any) -> list[Change]:
    return of_ours(open_table(table).changes(**times).read_all())


def compacted(writer: Writer) -> None:
    """Compact the slices that have logs."""
    tick = clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    if instant is not None:
        compact(writer.table.reload(), instant, tick)


def test_hudi_reads_our_changes(hudi: HudiSpark, tmp_path: Path) -> None:
    """Of every kind of table, with compactions and a clustering among the writes."""
    for seed, (release, table_type, version, mode) in enumerate(KINDS):
        if release != hudi.version:
            continue
        folder = tmp_path / f"{table_type}-{version}-{mode}"
        folder.mkdir()
        with using(version):
            writer = Writer.without_metadata(folder, table_type, settings={"change_logging": mode})
        writer.with_options(inserts_to_base_files=seed % 2 == 0)  # inserts go to existing base files, or to logs
        found = Recorder(writer)

        def between(number: int, writer: Writer = writer, table_type: str = table_type) -> None:
            if table_type == MERGE_ON_READ and number in (2, 4):
                compacted(writer)
            if number == 3:
                plan_and_cluster(writer)
                learn(writer)

        found.random_commits(6, seed, between)
        kind = (release, table_type, version, mode)
        done = [
            writer.table.timeline().metadata(writer.table.storage, i) for i in writer.table.timeline().completed_writes
        ]
        assert any(each.is_compaction for each in done) == (table_type == MERGE_ON_READ), kind
        assert by_hudi(hudi, writer.table.base_path) == sorted(found.expected), kind
        assert ours(writer.table.base_path) == sorted(found.expected), kind
        times = {i.time: i.completion_time or i.time for i in writer.table.timeline().completed_writes}
        since = times[found.instants[2]]
        later = sorted(c for c in found.expected if c[1] > found.instants[2])
        assert by_hudi(hudi, writer.table.base_path, since) == later, kind


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("mode", LoggingMode)
def test_writers_in_turns(hudi: HudiSpark, table_type: str, mode: LoggingMode, tmp_path: Path) -> None:
    """Hudi and this project write one table by turns, and each reads the changes of both."""
    version = 6 if hudi.is_0x else 9
    with using(version):
        writer = Writer.without_metadata(tmp_path, table_type, groups=1, settings={"change_logging": mode})
    table = writer.table
    found = Recorder(writer)
    found.write([row(n, f"p{n % 2}", 1) for n in range(6)])
    options = {
        **hudi.index("SIMPLE"),
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": mode.value,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.clean.automatic": "false",
    }
    for version_of_row in (2, 4):
        theirs = [{**writer.live[f"k{n}"], "ver": version_of_row, "name": "hudi"} for n in (0, 1)]
        hudi.write(
            table, writer.rows([{**r, "_is_insert": False} for r in theirs]).select(writer.schema.names), options
        )
        writer.live |= {r["id"]: r for r in theirs}
        found.write([row(2, "p0", version_of_row + 1, "ours"), row(1, "p1", version_of_row + 1, "ours")])
    found.write([row(3, "p0", 6, "moved"), row(20, "p1", 6)], ["k0"])
    rows = ours(table.base_path)
    assert by_hudi(hudi, table.base_path) == rows
    mine = set(found.instants)
    assert [c for c in rows if c[1] in mine] == sorted(found.expected)
    assert sorted(c[0] for c in rows if c[1] not in mine) == ["u"] * 4
    snapshot = {
        r["id"]: r for r in read_snapshot(HoodieTable.open(table.base_path)).select(writer.schema.names).to_pylist()
    }
    assert snapshot == writer.live
