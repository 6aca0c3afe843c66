"""The error table: a copy-on-write Hudi table with a row for each bad record, keyed by where it was found.

Each batch that has bad records is one commit of one file, which names the batch: what a process has done that died before it
noted so is found on the timeline, and not done again. Small files are filled by later batches, old ones are cleaned and the
timeline is archived with Hudi's defaults: a table that gets a few rows an hour for years stays a few files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tagstream.streaming.dead_letter.letters import Letter
from tagstream.streaming.errors import DeadLetterError
from tagstream.table.errors import LeaseLostError, TableError, TableNotFoundError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.names import new_file_id, next_instant, write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, KEYGEN_PACKAGE, MergeMode, TableConfig
from tagstream.table.schema.schema import RECORD_KEY, arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.services.archiving.archive_table import archive_table
from tagstream.table.services.archiving.options import ArchiveOptions
from tagstream.table.services.cleaning.clean import clean
from tagstream.table.services.cleaning.options import CleanOptions
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.opening import open_storage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.lease import LeaseOwner
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext
from tagstream.table.write.write_rows import IS_INSERT

LOG = logging.getLogger("tagstream")
BATCH_KEY = "tagstream.deadletter"
LEASE_MS = 60_000
FULL_BYTES = 8 << 20  # a file of fewer is written again with the next batch's letters in it
LETTER_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("target_table", pa.string()),
        pa.field("source", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("record_key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.string()),
        pa.field("found_at", pa.timestamp("ms", tz="UTC")),
    ]
)
_LOCK = threading.Lock()
_turns: dict[str, threading.Lock] = {}
_NO_DELETES = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})


@dataclass
class ErrorTable:
    """``path`` and ``name`` of the table, which is made when the first letter comes; ``version``: its table version.
    ``target``: the table that the records were meant for. ``clock_ms``: epoch milliseconds. ``newest``: the batch that this
    process has put there last; without one, and after a failure, the commits are asked for a batch that may be there."""

    path: str
    name: str
    version: int
    target: str
    clock_ms: Callable[[], int]
    newest: str | None = None

    def take(self, letters: list[Letter], batch: str) -> None:
        """One commit with all of them; nothing where the table has this batch. DeadLetterError while another process writes.

        The tables of one job may have one error table: their threads take turns.
        """
        if batch == self.newest:
            return
        with _turn(open_storage(self.path).root):
            self._take(letters, batch)

    def _take(self, letters: list[Letter], batch: str) -> None:
        may_be_there, self.newest = self.newest is None, None
        table = self._opened()
        owner = LeaseOwner.this_process(f"dead letters of {self.target}")
        try:
            lease = leases.acquire(table.storage, owner, self.clock_ms(), LEASE_MS)
        except LeaseLostError as e:
            raise DeadLetterError(f"error table {self.path}: {e}") from e
        try:
            if not (may_be_there and _has(table, batch)):
                self._commit(table, letters, batch)
            self._keep_small(table)
        finally:
            leases.release(table.storage, lease)
        self.newest = batch

    def _opened(self) -> HoodieTable:
        storage = open_storage(self.path)
        try:
            return HoodieTable.open(storage)
        except TableNotFoundError:
            pass
        written = avro_json(arrow_to_avro(LETTER_SCHEMA, self.name))
        config = TableConfig(
            name=self.name,
            table_type=COPY_ON_WRITE,
            version=self.version,
            record_key_fields=("id",),
            key_generator=f"{KEYGEN_PACKAGE}NonpartitionedKeyGenerator",
            merge_mode=MergeMode.COMMIT_TIME,
            create_schema=written,
        )
        return HoodieTable.create(storage, config, self.clock_ms())

    def _commit(self, table: HoodieTable, letters: list[Letter], batch: str) -> None:
        timeline = table.timeline()
        for pending in timeline.pending_writes:  # of a process that died: who holds the lease is the one writer
            rollback(table, pending.time, self._instant(table))
        timeline = table.timeline()
        instant, written = self._instant(table), avro_json(arrow_to_avro(LETTER_SCHEMA, self.name))
        protocol.request(table, instant, "commit")
        protocol.inflight(table, instant, "commit")
        context = WriteContext(
            instant=instant,
            action="commit",
            task_partition=0,
            write_token=write_token(0, 0, 0),
            schema=avro_to_arrow(written),
            avro_json=written,
            as_of=timeline.newest_completed,
            timeline=timeline,
        )
        rows, small = self._rows(letters, batch), _small_file(table, timeline)
        file_id = small.file_id if small is not None else new_file_id(batch, instant)
        statuses = write_file_group(table, context, "", file_id, small, rows, _NO_DELETES)
        protocol.publish_files(table, instant, statuses)
        metadata = CommitMetadata.build(statuses, {BATCH_KEY: batch}, written, "INSERT")
        protocol.complete(table, instant, "commit", metadata, clock_ms=self.clock_ms)

    def _keep_small(self, table: HoodieTable) -> None:
        """The letters are taken by now: what fails here is done after a later batch."""
        try:
            clean(table, CleanOptions(), self.clock_ms)
            archive_table(table, ArchiveOptions(), CleanOptions(), self.clock_ms)
        except (TableError, OSError) as e:
            LOG.warning(
                "error table %s was not cleaned and archived (%s); tried again with the next bad record", self.path, e
            )

    def _instant(self, table: HoodieTable) -> str:
        return next_instant(self.clock_ms(), table.timeline().newest, table.config.timezone_utc)

    def _rows(self, letters: list[Letter], batch: str) -> pa.Table:
        ids = pa.array([f"{batch}.{letter.ident}" for letter in letters], pa.string())
        now = self.clock_ms()
        columns = {
            "id": ids,
            "target_table": [self.target] * len(letters),
            "source": [letter.source for letter in letters],
            "partition": [letter.partition for letter in letters],
            "offset": [letter.offset for letter in letters],
            "reason": [letter.reason for letter in letters],
            "record_key": [letter.key for letter in letters],
            "value": [letter.value for letter in letters],
            "headers": [letter.headers_json for letter in letters],
            "found_at": [now] * len(letters),
        }
        rows = pa.table({f.name: pa.array(columns[f.name], f.type) for f in LETTER_SCHEMA}, schema=LETTER_SCHEMA)
        rows = rows.append_column(RECORD_KEY, ids)
        return rows.append_column(IS_INSERT, pa.array([True] * len(letters)))


def _turn(path: str) -> threading.Lock:
    """One lock for each error table of this process: to its lease the threads of a process are one owner."""
    with _LOCK:
        return _turns.setdefault(path, threading.Lock())


def _has(table: HoodieTable, batch: str) -> bool:
    """Whether a commit on the timeline names the batch. One that a process left unnoted is among the newest."""
    timeline = table.timeline()
    return any(
        timeline.metadata(table.storage, done).extra.get(BATCH_KEY) == batch
        for done in reversed(timeline.completed_writes)
    )


def _small_file(table: HoodieTable, timeline: Timeline) -> FileSlice | None:
    """The largest file that is not full."""
    found = [
        (each.base_file.size, each.file_id, each)
        for each in table.view(timeline).latest_merged_slices("")
        if each.base_file is not None and each.base_file.size < FULL_BYTES
    ]
    return max(found)[2] if found else None
