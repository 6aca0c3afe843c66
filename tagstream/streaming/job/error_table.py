"""The error table: a copy-on-write Hudi table with a row for each bad record, keyed by its place in the source.

Each batch that has bad records is one commit of one file, of the records that the table does not have: one that is
delivered again is there already, whether a process died before it noted so or another query reads the source
again. The table's files say which records it has: a base file never changes, so each is read once.

Small files are filled by later batches, old ones are cleaned and the timeline is archived with Hudi's defaults: a
table that gets a few rows an hour for years stays a few files. Several jobs may have one error table; they take
turns by its lease.
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
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, KEYGEN_PACKAGE, MergeMode, TableConfig
from tagstream.table.schema.schema import RECORD_KEY, arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.upsert import IS_INSERT
from tagstream.table.write.write_context import WriteContext


class KnownLetters:
    """Keeps the digest in which each id ends, 16 bytes a letter: whole ids are read again only where one is equal."""

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
WAIT_MS = 2 * LEASE_MS  # the lease of a process that died on another host has ended by then
_PAUSE_S = 0.2
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
_KEY = ("id",)
_LOCK = threading.Lock()
_turns: dict[str, threading.Lock] = {}
_NO_DELETES = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})


@dataclass
class ErrorTable:
    """``path`` and ``name`` of the table, which is made when the first letter comes; ``version``: its table version.
    ``target``: the table that the records were meant for. ``clock_ms``: epoch milliseconds. ``pause`` waits for so many
    seconds, and is true when the job is to end. ``wait_ms``: how long other jobs' turns are waited for at most. ``newest``:
    the batch that this process has put there last."""

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
        """One commit with those of them that the table lacks. DeadLetterError while another process writes.

        The tables of one job may have one error table, and so may several jobs: their threads and processes take turns.
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
        """The lease of the table; another job has it for as long as one of its batches' letters take."""
        keeper, began = LeaseKeeper(storage, self.clock_ms, LEASE_MS), self.clock_ms()
        while True:
            try:
                keeper.acquire(f"dead letters of {self.target}")
                return keeper
            except LeaseLostError as e:
                if self.clock_ms() - began >= self.wait_ms:
                    raise DeadLetterError(f"error table {self.path}: {e}") from e
            if self.pause(_PAUSE_S):
                raise StopRequested(f"asked to end while another process wrote to error table {self.path}")

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
            key_generator=f"{KEYGEN_PACKAGE}NonpartitionedKeyGenerator",
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
        for pending in timeline.pending_writes:  # of a process that died: who holds the lease is the one writer
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
        metadata = CommitMetadata.build(statuses, {BATCH_KEY: batch}, written, "INSERT")
        protocol.complete(table, instant, "commit", metadata, guard=lease.check, clock_ms=self.clock_ms)

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
    """ConfigError when there is a table at ``path`` that holds other rows than letters."""
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
        f"hoodie.errortable.base.path: {path} is table {config.name}, which holds other rows than dead letters ({what}). "
        "Give an error table of this or another job, or an empty folder"
    )


def _schema(name: str) -> str:
    return avro_json(arrow_to_avro(LETTER_SCHEMA, name))


def _turn(path: str) -> threading.Lock:
    """One lock for each error table of this process: to its lease the threads of a process are one owner."""
    with _LOCK:
        return _turns.setdefault(path, threading.Lock())


def _small_file(table: HoodieTable, timeline: Timeline) -> FileSlice | None:
    """The largest file that is not full."""
    found = [
        (each.base_file.size, each.file_id, each)
        for each in table.view(timeline).latest_merged_slices("")
        if each.base_file is not None and each.base_file.size < FULL_BYTES
    ]
    return max(found)[2] if found else None
