"""Tables with two ordering fields that real Hudi 1.2 and our stream write in turn: both read the rows of the greatest pairs.

Each writes new keys, updates, late events, deletes and late deletes; ours moves rows between partitions, too. hudi-rs
refuses such tables by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.interop.turns import COMPACTION, INDEXED
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support import two_orderings as two
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice, read_table

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
MOR, COW = "MERGE_ON_READ", "COPY_ON_WRITE"
ROUNDS, KEYS, PARTITIONS = 3, 48, 3
LATER = 500  # what Hudi writes in a round is newer by this than what we do


@pytest.fixture(scope="module")
def hudi12(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 1.2.0, running."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi-orderings")) as running:
        yield running


@dataclass
class Pairs:
    """The table, all events in the order in which they were written, and the newest of each key."""

    case: StreamCase
    hudi: HudiSpark
    kind: two.Kind
    sent: list[dict[str, Any]] = field(default_factory=list)
    live: dict[str, ev.Event] = field(default_factory=dict)

    def ours(self, number: int) -> None:
        """A batch of the stream."""
        events = []
        for n in range(KEYS):
            key, at, old = f"k{n:02d}", 1_000 * (number + 1) + n, self.live.get(f"k{n:02d}")
            fresh = ev.Event(key, f"p{(n + number) % PARTITIONS}", at, name=f"ours {number}", amount=float(n))
            if old is None or (n + number) % 3 == 0:
                events.append(fresh)
            elif (n + number) % 7 == 0:
                events.append(replace(fresh, deleted=True, partition=old.partition))
            elif (n + number) % 3 == 1:
                events.append(replace(fresh, ordering=_before(old)))
            elif (n + number) % 5 == 0:
                events.append(replace(fresh, ordering=_before(old), deleted=True))
        two.write_rows(self._take(events), self.case.source, number)
        assert len(self.case.run()) == 1

    def theirs(self, number: int) -> None:
        """An upsert of Hudi with rows that say of themselves that they are deleted, and a delete of keys."""
        events, gone = [], []
        for n, old in enumerate(sorted(self.live.values(), key=lambda e: e.key)):
            at = 1_000 * (number + 1) + LATER + n
            fresh = replace(old, ordering=at, name=f"hudi {number}")
            match n % 8:
                case 0 | 4:
                    events.append(fresh)
                case 1 | 5:
                    events.append(replace(fresh, ordering=_before(old)))
                case 2:
                    events.append(replace(fresh, deleted=True))
                case 3:
                    events.append(replace(fresh, ordering=_before(old), deleted=True))
                case 6:
                    gone.append(replace(fresh, deleted=True))
        new = [ev.Event(f"h{number}-{n}", f"p{n}", 1_000 * (number + 1) + LATER, name="new") for n in range(PARTITIONS)]
        self._write([*events, *new], "upsert")
        self._write(gone, "delete")

    def check(self, who: str) -> None:
        """Rows by Hudi and by our reader; files and metadata table by ours."""
        expected = two.oracle(self.sent, self.kind)
        table = HoodieTable.open(str(self.case.table))
        for reader, found in (("ours", read_snapshot(table)), ("Hudi", self.hudi.read(self.case.table))):
            assert keys_found_twice(found, "id").num_rows == 0, f"after {who}, {reader}"
            assert not (wrong := compare(expected, found, ["id"])), f"after {who}, {reader}: {wrong}"
        assert validate(table) == [] and validate_metadata(table) == [], f"after {who}"

    def _write(self, events: list[ev.Event], operation: str) -> None:
        table = HoodieTable.open(str(self.case.table))
        rows = [two.as_row(fields, self.kind) for fields in self._take(events)]
        services = COMPACTION if table.config.is_merge_on_read else {}
        arrow = pa.Table.from_pylist(rows, two.arrow_schema(self.kind))
        told = {**INDEXED, **self.hudi.index("RECORD"), **services}  # an index that sees our logs
        self.hudi.write(table, arrow, told, operation)

    def _take(self, events: list[ev.Event]) -> list[dict[str, Any]]:
        for event in events:
            old = self.live.get(event.key)
            if old is not None and (event.ordering or 0) < (old.ordering or 0):
                continue
            self.live.pop(event.key, None)
            if not event.deleted:
                self.live[event.key] = event
        rows = [two.row(event, self.kind) for event in events]
        self.sent += rows
        return rows


def _before(event: ev.Event) -> int:
    """An ordering value a little less: of the same epoch mostly."""
    assert event.ordering is not None
    return event.ordering - 7


def pairs_of(folder: Path, spark: SparkSession, hudi: HudiSpark, kind: str, table_type: str, version: int) -> Pairs:
    """A table of this kind that is still to be made; inserts go to logs where there are logs."""
    logs = {"tagstream.inserts.to.base.files": "false", "hoodie.write.table.version": str(version)}
    typed = two.KINDS[kind]
    case = StreamCase(folder, spark, table_type, {**two.CONF, **INDEXED, **logs}, two.avro_schema(typed))
    return Pairs(case, hudi, typed)


@pytest.mark.parametrize(
    ("kind", "table_type", "version"),
    [
        ("long", MOR, 9),
        ("text", MOR, 9),
        ("double", COW, 9),
        ("timestamp", MOR, 8),
        ("text", COW, 8),
        ("double", MOR, 9),
    ],
)
def test_hudi_and_we_write_in_turn(
    hudi12: HudiSpark, spark: SparkSession, tmp_path: Path, kind: str, table_type: str, version: int
) -> None:
    pairs = pairs_of(tmp_path, spark, hudi12, kind, table_type, version)
    for number in range(ROUNDS):
        pairs.ours(number)
        pairs.check(f"our round {number}")
        pairs.theirs(number)
        pairs.check(f"Hudi's round {number}")
    with pytest.raises(Exception, match="rdering fields"):
        read_table(pairs.case.table)


def test_hudi_reads_deletes_by_a_date(hudi12: HudiSpark, spark: SparkSession, tmp_path: Path) -> None:
    """Hudi itself fails to write into such a table by its record index: it compares its dates with numbers of days."""
    pairs = pairs_of(tmp_path, spark, hudi12, "date", MOR, 9)
    for number in range(ROUNDS):
        pairs.ours(number)
        pairs.check(f"our round {number}")
