"""100,000 streamed keys, looked up by real Hudi 1.2 through the record index: each where our state index has it.

50 commits of a merge-on-read table with inserts, updates, moves, deletes, compaction and cleaning. Then an entry that is
wrong and one that is missing are written into the index by hand, and the same check finds these two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import KEYS, Changes
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import DELTA_COMMIT
from tagstream.table.write import commit
from tests.cli.running import run
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import events as ev
from tests.support.table_version import using

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
KEYS_IN_ALL, BATCHES, FILLING, PARTITIONS = 100_000, 50, 10, 5
CONF = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "4",
    "compaction.delta_commits": "5",
    "hoodie.clean.commits.retained": "6",
    "hoodie.keep.min.commits": "8",
    "hoodie.keep.max.commits": "12",
}
Places = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def hudi12(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 1.2.0, running."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi-lookups")) as running:
        yield running


def key_of(number: int) -> str:
    return f"key-{number:06d}"


def events_of(batch: int, gone: set[int]) -> list[ev.Event]:
    """A tenth of the keys each until all are there, then updates, moves and deletes; at the end all keys are there."""
    each = KEYS_IN_ALL // FILLING
    if batch < FILLING:
        numbers = list(range(batch * each, (batch + 1) * each))
    else:
        numbers = [n for n in range(KEYS_IN_ALL) if (n * 7 + batch) % 33 == 0] if batch < BATCHES - 1 else sorted(gone)
    events = []
    for n in numbers:
        partition = f"p{(n + (batch if n % 3 else 0)) % PARTITIONS}"
        deleted = FILLING <= batch < BATCHES - 1 and (n + batch) % 10 == 0 and n not in gone
        (gone.add if deleted else gone.discard)(n)
        where = None if deleted else partition  # a delete need not know where its row is
        events.append(ev.Event(key_of(n), where, batch + 1, deleted=deleted, name=f"b{batch}", amount=float(n)))
    extra = [
        ev.Event(f"extra-{n}", "p0", batch + 1, deleted=batch == FILLING, name="x", amount=1.0) for n in range(500)
    ]
    return events + (extra if batch in (0, FILLING) else [])


def problems(hudi: HudiSpark, case: StreamCase, folder: Path) -> dict[str, tuple[object, object]]:
    """The keys that Hudi does not find where the state index has them: (by Hudi, by the state index)."""
    run("index", "export", "--checkpoint-dir", case.checkpoint, "--out", folder / "live.parquet")
    live = pq.read_table(folder / "live.parquet", columns=["record_key", "partition_path", "file_id"]).to_pylist()
    told: Places = {r["record_key"]: (r["partition_path"], r["file_id"]) for r in live}
    (folder / "live.parquet").unlink()
    assert set(told) == {key_of(n) for n in range(KEYS_IN_ALL)}
    found = hudi.locate(case.table, [*sorted(told), *(f"extra-{n}" for n in range(500)), "nobody"])
    return {key: (found.get(key), told.get(key)) for key in {*found, *told} if found.get(key) != told.get(key)}


def inject(table: HoodieTable, wrong: tuple[str, str, str], missing: str) -> None:
    """A commit without files, of which the record index is told two things that are not so."""
    writer = MetadataWriter.open(table)
    assert writer is not None
    times = fresh_times(table, writer, now_ms)
    instant = times()
    commit.request(table, instant, DELTA_COMMIT)
    commit.inflight(table, instant, DELTA_COMMIT, CommitMetadata(operation="UPSERT"))
    place = dict(zip(PLACES.names, (*wrong, instant_ms(instant, table.config.timezone_utc)), strict=True))
    gone = pa.Table.from_pylist([{"record_key": missing, "partition_path": ""}], KEYS)
    told = delta_commit(
        writer, instant, Changes(places=[pa.Table.from_pylist([place], PLACES)], deleted_keys=[gone]), times
    )
    metadata = CommitMetadata.build([], {}, table.schema_json() or "", "UPSERT")
    commit.complete(table, instant, DELTA_COMMIT, metadata, clock_ms=now_ms, after=told.completion_time)


def test_every_key_is_found_in_the_place_that_the_state_index_names(
    hudi12: HudiSpark, spark: SparkSession, tmp_path: Path
) -> None:
    with using(9):
        case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=CONF)
        gone: set[int] = set()
        newest: Places = {}
        for batch in range(BATCHES):
            events = events_of(batch, gone)
            newest |= {e.key: (e.partition or "", e.name or "") for e in events if not e.deleted}
            ev.write_files(events, case.source, len(events), first=batch)
        reports = case.run()
    assert len(reports) == BATCHES
    assert sum(r.moves for r in reports) > 50_000
    assert sum(r.deletes for r in reports) > 5_000
    table = HoodieTable.open(str(case.table))
    history = [*table.timeline().instants, *table.history().actions()]
    assert {"commit", "clean", "deltacommit"} <= {i.action for i in history}, "compacted and cleaned"

    assert problems(hudi12, case, tmp_path) == {}
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "name"]
    rows = [tuple(r.values()) for r in hudi12.read(case.table).select(columns).to_pylist()]
    assert sorted(rows) == sorted((key, *newest[key]) for key in map(key_of, range(KEYS_IN_ALL)))
    assert validate_metadata(table) == []

    first = key_of(12_345)
    at = hudi12.locate(case.table, [first, *(key_of(n) for n in range(67_890, 67_990))])
    second = next(key for key, place in at.items() if place != at[first])
    inject(table, (first, *at[second]), second)
    assert problems(hudi12, case, tmp_path) == {first: (at[second], at[first]), second: (None, at[second])}
    told = "\n".join(validate_metadata(table.reload()))
    assert repr(first) in told
    assert repr(second) in told
