"""The local RocksDB of a key group: options, opening, bulk ingestion, a bounded number of sorted runs.

A store has one column family. Keys that begin with NUL are the store's own (state/store_entries.py). Record keys begin
with 0x01 or 0x02. No key is ever put alone: changes are ingested as sorted files.

Universal compaction keeps write cost low, while lookups read at most a few sorted runs. It runs only in a store that is
opened for it, in parallel with the lookups of a batch. Closing waits for it: a background compaction that is cut off by
close() would start again at every open and never finish.

Stores that other processes have open are found by RocksDB's lock on the LOCK file. For its own open stores this process
keeps a list, because such a lock belongs to the whole process: the process would get it a second time, and closing the
file would release it for good.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ChecksumType,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    UniversalCompactOptions,
)

from tagstream.state.errors import LocalStoreError, LockedStoreError

LOCK_FILE = "LOCK"

_here: Counter[str] = Counter()
_guard = threading.Lock()


def opens(path: str) -> None:
    """Record that this process is about to open the store at `path`. Waits while one of its threads has it `alone`."""
    with _guard:
        _here[os.path.abspath(path)] += 1


def closed(path: str) -> None:
    """Record that this process has closed the store, or failed to open it."""
    with _guard:
        _here[os.path.abspath(path)] -= 1
        if not _here[os.path.abspath(path)]:
            del _here[os.path.abspath(path)]


@contextmanager
def alone(path: str) -> Iterator[bool]:
    """Keep all processes and threads from opening the store inside the block; yields False when one has it open.

    A thread that opens the store meanwhile waits; another process finds it locked. A store without a lock file counts as
    one that a process is making.
    """
    with _guard:
        if _here[os.path.abspath(path)]:
            yield False
            return
        try:
            lock = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            os.close(lock)


@contextmanager
def making(path: str) -> Iterator[None]:
    """Make the folder of a store, and keep others from opening it until its files are complete.

    LockedStoreError when another process makes the same folder.
    """
    opens(path)
    try:
        os.makedirs(path, exist_ok=True)
        lock = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as e:
            raise LockedStoreError(f"local store {path} is made by another process") from e
        finally:
            os.close(lock)
    finally:
        closed(path)


META_KEY = b"\x00meta"
FIRST_RECORD_KEY = b"\x01"

MAX_RUNS = 3
_SPACE_AMPLIFICATION_PERCENT = 25
_BLOCK_BYTES = 4096
_RESTART_INTERVAL = 4
_CACHE_BYTES = 32 << 20
_BLOOM_BITS = 10
_POLL_S = 0.002
_IDLE_POLLS = 5


def store_options(merges: bool = False) -> Options:
    """Options of every store and of every sorted file for one. ``merges``: compaction runs when there are too many runs.

    Measured with 250 k and 2.5 M keys in a group: LZ4 takes 16 bytes per key, and its lookups take at most 10 % longer than
    those of uncompressed blocks, which take 40 bytes. A short restart interval makes lookups 10 % faster for 0.5 bytes.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 16)
    options.set_stats_dump_period_sec(0)
    options.set_max_background_jobs(2)
    options.set_max_file_opening_threads(1)
    options.set_skip_stats_update_on_db_open(True)
    options.set_disable_auto_compactions(not merges)
    options.set_level_zero_file_num_compaction_trigger(MAX_RUNS)
    options.set_level_zero_slowdown_writes_trigger(1 << 20)
    options.set_level_zero_stop_writes_trigger(1 << 20)
    options.set_compaction_style(DBCompactionStyle.universal())
    universal = UniversalCompactOptions()
    universal.size_ratio = 10
    universal.min_merge_width = 2
    universal.max_size_amplification_percent = _SPACE_AMPLIFICATION_PERCENT
    options.set_universal_compaction_options(universal)
    table = BlockBasedOptions()
    table.set_block_size(_BLOCK_BYTES)
    table.set_block_restart_interval(_RESTART_INTERVAL)
    table.set_block_cache(Cache.new_hyper_clock_cache(_CACHE_BYTES, _BLOCK_BYTES))
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.xxh3())
    options.set_block_based_table_factory(table)
    return options


def write_sorted_file(
    path: str,
    keys: Iterable[bytes],
    values: Iterable[bytes | None],
    first: Iterable[tuple[bytes, bytes | None]] = (),
) -> None:
    """Write a sorted file from keys in strictly ascending order and their values; None deletes the key.

    `first`: ascending entries whose keys are smaller than all of `keys`.
    """
    writer = SstFileWriter(store_options())
    writer.open(path)
    _put_each(writer, first)
    # rocksdict offers only one call per record: 0.2 us each when it is made without a Python frame.
    if isinstance(values, Deletions):
        _put_each(writer, zip(keys, values, strict=True))
    else:
        deque(map(writer.__setitem__, keys, values), maxlen=0)
    writer.finish()


def _put_each(writer: SstFileWriter, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in entries:
        if value is None:
            del writer[key]
        else:
            writer[key] = value


class SortedFile:
    """A sorted file that is written in pieces, with keys in strictly ascending order."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writer: SstFileWriter | None = None

    def put(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        """Append entries. Their keys are greater than those written before."""
        if self._writer is None:
            self._writer = SstFileWriter(store_options())
            self._writer.open(self.path)
        deque(map(self._writer.__setitem__, keys, values), maxlen=0)  # as in `write_sorted_file`

    def finish(self) -> bool:
        """Close the file; False when nothing was put, and so there is no file."""
        if self._writer is None:
            return False
        self._writer.finish()
        self._writer = None
        return True


class Deletions(list[bytes | None]):
    """Values of which some are None."""


class RocksStore:
    """An open local store. Close it, or use it as a context manager.

    ``merges``: sorted runs are merged in the background when there are too many. This is set at opening, because a later
    change of options makes RocksDB write and sync an options file (2 ms per call on a key group).

    LockedStoreError when another process or thread has the store open, LocalStoreError when it cannot be opened.
    """

    def __init__(self, path: str, merges: bool = False) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        options = store_options(merges)
        opens(path)
        try:
            # Also given for the column family: without them rocksdict opens it with the options in the store's folder,
            # which are those of whoever opened the store first, and a loaded store would never merge.
            self._db = Rdict(path, options, column_families={"default": options})
        except Exception as e:  # rocksdict has no exception classes of its own
            closed(path)
            kind = LockedStoreError if "lock" in str(e).lower() else LocalStoreError
            raise kind(f"local store {path} cannot be opened: {e}") from e
        self._merges = merges

    def __enter__(self) -> RocksStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get(self, keys: list[bytes]) -> Sequence[bytes | None]:
        """Values of many keys, None for missing ones. Sorted keys are fastest."""
        try:
            values = cast("Sequence[bytes | None]", self._db[cast("Any", keys)])
        except Exception as e:
            raise LocalStoreError(f"local store {self.path} cannot be read: {e}") from e
        return values

    def ingest(self, path: str) -> None:
        """Move a sorted file into the store. Its entries replace all earlier ones of the same keys."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._db.ingest_external_file([path], options)
        except Exception as e:
            raise LocalStoreError(f"local store {self.path} cannot ingest {path}: {e}") from e
        if os.path.exists(path):  # moved by a hard link: the old name still exists
            os.unlink(path)

    def items(self, from_key: bytes = FIRST_RECORD_KEY) -> Iterator[tuple[bytes, bytes]]:
        """All entries from `from_key` on, in key order."""
        return cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=from_key))

    def values(self, from_key: bytes = FIRST_RECORD_KEY) -> Iterator[bytes]:
        """The values of all entries from `from_key` on, in key order."""
        return cast("Iterator[bytes]", iter(self._db.values(from_key=from_key)))

    def live_files(self) -> list[dict[str, Any]]:
        """RocksDB's list of sorted files with level, size and entry count."""
        files: list[dict[str, Any]] = self._db.live_files()
        return files

    def finish_compaction(self) -> None:
        """Wait until no compaction is left to do.

        RocksDB may report a compaction as pending that it never picks, so a short idle time ends the wait.
        """
        idle = 0
        while self._merges and idle < _IDLE_POLLS:
            if self._db.property_int_value("rocksdb.num-running-compactions"):
                idle = 0
            elif self._db.property_int_value("rocksdb.compaction-pending"):
                idle += 1
            else:
                break
            time.sleep(_POLL_S)

    def checkpoint(self, folder: str) -> None:
        """Make a hard-linked copy of the store as it is now; `folder` must not exist."""
        try:
            Checkpoint(self._db).create_checkpoint(folder)
        except Exception as e:
            raise LocalStoreError(f"local store {self.path} cannot be copied to {folder}: {e}") from e

    def identity(self) -> str:
        """RocksDB's id of this folder's store; file numbers are unique only under one id."""
        with open(os.path.join(self.path, "IDENTITY"), encoding="utf-8") as f:
            return f.read().strip()

    def close(self) -> None:
        """Wait for compaction, then release the lock."""
        self.finish_compaction()
        self._db.close()
        closed(self.path)
