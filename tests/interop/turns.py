"""Real Hudi and our stream write one table in turn: what each writes, and the check after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice, read_table

KEYS, PARTITIONS = 60, 3
CLUSTERED = (3, 7)
CLUSTERING = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.small.file.limit": str(1 << 30),
}
# Small numbers, so that Hudi compacts, cleans and archives within ten rounds.
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
OFTEN = {
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.metadata.compact.max.delta.commits": "4",
}
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}


@dataclass
class Turns:
    """The table, and what ought to be in it: the newest event of each key.

    ``indexed``: what Hudi is told of index and metadata table. ``moves``: whether our keys change their partitions.
    """

    case: StreamCase
    hudi: HudiSpark
    indexed: Mapping[str, str] = field(default_factory=lambda: INDEXED)
    moves: bool = True
    partition: Callable[[int], str] = "p{}".format
    live: dict[str, ev.Event] = field(default_factory=dict)
    round: int = 0

    def ours(self) -> None:
        """A batch: new keys, updates, moves and deletes."""
        events = []
        for n in range(KEYS):
            key, ts = f"k{n}", self.round * 1000 + n
            if (n + self.round) % 7 == 0 and key in self.live:
                events.append(ev.Event(key, self.live[key].partition, ts, deleted=True))
            elif (n + self.round) % 3 == 0 or key not in self.live:
                partition = self.partition((n + (self.round // 2 if self.moves else 0)) % PARTITIONS)
                events.append(ev.Event(key, partition, ts, name=f"ours {self.round}", amount=float(n)))
        ev.write_files(events, self.case.source, len(events), first=self.round)
        assert len(self.case.run()) == 1
        self._take(events)

    def theirs(self) -> None:
        """Hudi's write: updates where the keys are and new keys, then a few deletes."""
        at = self.round * 1000 + 500
        changed = [e for n, e in enumerate(sorted(self.live.values(), key=lambda e: e.key)) if n % 4 == 0]
        events = [
            ev.Event(e.key, e.partition, at, name=f"hudi {self.round}", amount=1.0) for e in changed if e.partition
        ]
        events += [
            ev.Event(f"h{self.round}-{n}", self.partition(n), at, name="new", amount=2.0) for n in range(PARTITIONS)
        ]
        more = {**OFTEN, **(CLUSTERING if self.round in CLUSTERED else {})}
        self._write(events, "upsert", more)
        gone = [ev.Event(e.key, e.partition, at + 1, deleted=True) for e in events[:2]]
        self._write(gone, "delete", OFTEN)

    def check(self, who: str) -> None:
        """Rows by both readers, once each; files and metadata table by ours."""
        expected = ev.rows(self.live.values())
        for reader, found in (("hudi-rs", read_table(self.case.table)), ("Hudi", self.hudi.read(self.case.table))):
            where = f"round {self.round}, after {who}, {reader}"
            assert keys_found_twice(found, "id").num_rows == 0, where
            assert not (wrong := compare(expected, found, ["id"])), f"{where}: {wrong}"
        table = HoodieTable.open(str(self.case.table))
        assert validate(table) == [], f"round {self.round}, after {who}"
        assert validate_metadata(table) == [], f"round {self.round}, after {who}"

    def _write(self, events: list[ev.Event], operation: str, more: dict[str, str]) -> None:
        rows = pa.Table.from_pylist([e.row() for e in events], ev.ARROW_SCHEMA)
        table = HoodieTable.open(str(self.case.table))
        services = COMPACTION if table.config.is_merge_on_read else {}
        self.hudi.write(table, rows, {**self.indexed, **services, **more}, operation)
        self._take(events)

    def _take(self, events: list[ev.Event]) -> None:
        for event in events:
            self.live.pop(event.key, None)
            if not event.deleted:
                self.live[event.key] = event
