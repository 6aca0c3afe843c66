"""The error table: a copy-on-write Hudi table with one row per bad record, keyed by the record's position in the
source.

Each batch with bad records is one commit of one file. It has the records that the table lacks. A record may be
delivered again, because a process died before it stored the mark, or because another query reads the source again. Then
the table already has it. The table's files say which records it has. A base file never changes, so each is read once.

Later batches fill small files, old files are cleaned, and the timeline is archived with Hudi's defaults. So a table
that gets a few rows an hour for years has only a few files. Several jobs may share an error table and take turns by its
lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.batch.quarantine import DIGEST_DIGITS, Letter
from tagstream.streaming.errors import DeadLetterError, StopRequested
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.table.errors import ConfigError, LeaseLostError, TableError, TableNotFoundError
from tagstream.table.file_group.base_file import read_keys
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import new_file_id, next_instant, write_token
from tagstream.table.keys.generators import GENERATORS, KeyKind
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MergeMode, TableConfig
from tagstream.table.schema.schema import RECORD_KEY, arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.upsert import IS_INSERT
from tagstream.table.write.write_context import WriteContext


class KnownLetters:
    """The digests at the end of all ids in the table, 16 bytes per letter. Whole ids are read again only where a digest
    is equal.
    """

    def __init__(self) -> None:
        self._digests: dict[str, pa.Array] = {}

    def among(self, storage: Storage, paths: Sequence[str], ids: Sequence[str]) -> set[str]:
        """Those of ``ids`` that a base file of ``paths`` (relative to the table) has as record key."""
        new = [path for path in paths if path not in self._digests]
        here = {path: self._digests[path] for path in paths if path in self._digests}
        self._digests = {**here, **dict(zip(new, each(lambda path: _digests(_keys(storage, path)), new), strict=True))}
        asked = pa.array(ids, pa.string())
        digests = _digests(asked)
        found = [path for path, known in self._digests.items() if pc.any(pc.is_in(known, value_set=digests)).as_py()]
        known: set[str] = set()
        for keys in each(lambda path: _keys(storage, path), found):
            known.update(keys.filter(pc.is_in(keys, value_set=asked)).to_pylist())
        return known


def _keys(storage: Storage, path: str) -> pa.Array:
    return read_keys(storage, path).cast(pa.string()).combine_chunks()


def _digests(ids: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(ids, -DIGEST_DIGITS)


LOG = logging.getLogger("tagstream")
BATCH_KEY = "tagstream.deadletter"
LEASE_MS = 60_000
WAIT_MS = 2 * LEASE_MS  # after this time the lease of a process that died on another host has expired
_PAUSE_S = 0.2
FULL_BYTES = 8 << 20  # a smaller file is rewritten with the letters of the next batch
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
_KEY = ("id",)
_LOCK = threading.Lock()
_turns: dict[str, threading.Lock] = {}
_NO_DELETES = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})


@dataclass
class ErrorTable:
    """An error table. ``path`` and ``name``: of the table, which is created with the first letter. ``version``: its
    table version. ``target``: the table that the records were meant for.

    ``clock_ms`` returns epoch milliseconds. ``pause`` waits for so many seconds, and returns True when the job must
    end. ``wait_ms``: the longest wait for other jobs. ``newest``: the batch that this process has written last.
    """

    path: str
    name: str
    version: int
    target: str
    clock_ms: Callable[[], int]
    pause: Callable[[float], bool]
    wait_ms: int = WAIT_MS
    newest: str | None = None
    _known: KnownLetters = field(default_factory=KnownLetters)

    def take(self, letters: list[Letter], batch: str) -> None:
        """Write one commit with the letters that the table lacks. DeadLetterError when another process keeps the lease
        too long.

        The tables of one job may share an error table, and so may several jobs. Their threads and processes take turns.
        """
        if batch == self.newest:
            return
        storage = open_storage(self.path)
        with _turn(storage.root):
            lease = self._leased(storage)
            try:
                table = self._opened(storage)
                new = self._new(table, letters)
                if new:
                    self._commit(table, new, batch, lease)
                self._keep_small(table)
            finally:
                lease.release()
        self.newest = batch

    def _leased(self, storage: Storage) -> LeaseKeeper:
        """Acquire the table's lease. Another job holds it while it writes the letters of a batch."""
        keeper, began = LeaseKeeper(storage, self.clock_ms, LEASE_MS), self.clock_ms()
        while True:
            try:
                keeper.acquire(f"dead letters of {self.target}")
                return keeper
            except LeaseLostError as e:
                if self.clock_ms() - began >= self.wait_ms:
                    raise DeadLetterError(f"error table {self.path}: {e}") from e
            if self.pause(_PAUSE_S):
                raise StopRequested(f"stopped while another process wrote to error table {self.path}")

    def _opened(self, storage: Storage) -> HoodieTable:
        try:
            return HoodieTable.open(storage)
        except TableNotFoundError:
            pass
        config = TableConfig(
            name=self.name,
            table_type=COPY_ON_WRITE,
            version=self.version,
            record_key_fields=_KEY,
            key_generator=GENERATORS[KeyKind.NON_PARTITION].class_name,
            merge_mode=MergeMode.COMMIT_TIME,
            create_schema=_schema(self.name),
        )
        return HoodieTable.create(storage, config, self.clock_ms())

    def _new(self, table: HoodieTable, letters: list[Letter]) -> list[Letter]:
        """The letters that the table lacks, each once."""
        by_id: dict[str, Letter] = {}
        for letter in letters:  # few, like all bad records
            by_id.setdefault(letter.ident, letter)
        slices = table.view().latest_merged_slices("")
        paths = [path for each in slices if (path := each.base_path) is not None]
        known = self._known.among(table.storage, paths, list(by_id))
        return [letter for ident, letter in by_id.items() if ident not in known]

    def _commit(self, table: HoodieTable, letters: list[Letter], batch: str, lease: LeaseKeeper) -> None:
        timeline = table.timeline()
        for pending in timeline.pending_writes:  # of a process that died: only the holder of the lease writes
            rollback(table, pending.time, self._instant(table))
        timeline = table.timeline()
        instant, written = self._instant(table), _schema(table.config.name)
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
        rows, small = self._rows(letters), _small_file(table, timeline)
        file_id = small.file_id if small is not None else new_file_id(batch, instant)
        statuses = write_file_group(table, context, "", file_id, small, rows, _NO_DELETES)
        protocol.publish_files(table, instant, statuses)
        metadata = CommitMetadata.build(statuses, {BATCH_KEY: batch}, written, WriteOperationType.INSERT)
        protocol.complete(table, instant, "commit", metadata, guard=lease.check, clock_ms=self.clock_ms)

    def _keep_small(self, table: HoodieTable) -> None:
        """Clean and archive. The letters are committed already, so a failure is only a warning and the next batch tries
        again.
        """
        try:
            clean(table, CleanOptions(), self.clock_ms)
            archive_table(table, ArchiveOptions(), CleanOptions(), self.clock_ms)
        except (TableError, OSError) as e:
            LOG.warning(
                "error table %s was not cleaned and archived (%s); the next bad record tries again", self.path, e
            )

    def _instant(self, table: HoodieTable) -> str:
        return next_instant(self.clock_ms(), table.timeline().newest, table.config.timezone_utc)

    def _rows(self, letters: list[Letter]) -> pa.Table:
        ids = pa.array([letter.ident for letter in letters], pa.string())
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


def check_place(path: str) -> None:
    """ConfigError when ``path`` has a table that is not an error table."""
    try:
        table = HoodieTable.open(path)
    except TableNotFoundError:
        return
    config = table.config
    written = table.schema_json()
    lacking = [n for n in LETTER_SCHEMA.names if written is not None and n not in avro_to_arrow(written).names]
    if config.record_key_fields == _KEY and not config.partition_fields and not config.is_merge_on_read and not lacking:
        return
    key = ", ".join(config.record_key_fields) or "none"
    what = f"it lacks column {lacking[0]}" if lacking else f"record key: {key}, type {config.table_type}"
    raise ConfigError(
        f"hoodie.errortable.base.path: {path} is table {config.name}, which is not an error table ({what}). Set it to the "
        "error table of this or another job, or to an empty folder"
    )


def _schema(name: str) -> str:
    return avro_json(arrow_to_avro(LETTER_SCHEMA, name))


def _turn(path: str) -> threading.Lock:
    """One lock for each error table of this process: for the lease, all threads of a process are one owner."""
    with _LOCK:
        return _turns.setdefault(path, threading.Lock())


def _small_file(table: HoodieTable, timeline: Timeline) -> FileSlice | None:
    """The largest file that is not full; None where all are."""
    found = [
        (each.base_file.size, each.file_id, each)
        for each in table.view(timeline).latest_merged_slices("")
        if each.base_file is not None and each.base_file.size < FULL_BYTES
    ]
    return max(found)[2] if found else None
