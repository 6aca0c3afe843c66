"""The HBase table of an index, through a Thrift server: requests with retries, and the cells of a location.

A location is three strings in column family ``_s``, as Hudi's ``SparkHoodieHBaseIndex`` writes them. Rows are sent and
received as Python objects, because Thrift has no other form. All checks are on columns. Operations are limited to a rate
per second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.index.errors import HbaseRowError, HbaseTableError, HbaseUnavailableError
from tagstream.index.hbase_options import HbaseOptions
from tagstream.table.errors import WORKERS, missing_package

if TYPE_CHECKING:
    import happybase

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
SHELL = "create '{table}', {{NAME => '_s', VERSIONS => 3}}"

FAMILY = b"_s"
COMMIT_TS = b"_s:commit_ts"
FILE_NAME = b"_s:file_name"  # has the file id
PARTITION_PATH = b"_s:partition_path"
COLUMNS = [COMMIT_TS, FILE_NAME, PARTITION_PATH]

# Locations as read: the row key, the strings, and the cells' HBase timestamp (ms, set by the region server).
LOCATIONS = pa.schema(
    [
        ("row", pa.binary()),
        ("commit_ts", pa.string()),
        ("file_id", pa.string()),
        ("partition_path", pa.string()),
        ("at", pa.int64()),
    ]
)

_INSTANT = "^[0-9]+$"
_FILE_ID = "^[^/\\x00]+$"
# A path relative to the table: without empty parts, not absolute. "": a table without partitions.
_PARTITION_PATH = "^([^/\\x00]+(/[^/\\x00]+)*)?$"
_STEPS_UP = "(^|/)\\.\\.?(/|$)"

Found = Sequence[tuple[bytes, Mapping[bytes, tuple[bytes, int]]]]


def to_cells(instant: str, file_id: str, partition_path: str) -> dict[bytes, bytes]:
    """The three cells of a location, as UTF-8."""
    return {COMMIT_TS: instant.encode(), FILE_NAME: file_id.encode(), PARTITION_PATH: partition_path.encode()}


def to_locations(found: Found, where: str) -> pa.Table:
    """Rows in HBase's response, with their timestamps, as :data:`LOCATIONS`. Rows that HBase does not have are left out.

    HbaseRowError for a row that is not a location; ``where`` names the HBase table.
    """
    # A Python loop over records: Thrift gives a dictionary per row.
    rows = [row for row, _ in found]
    columns = [[cells.get(name, (None, 0))[0] for _, cells in found] for name in COLUMNS]
    at = [cells.get(COMMIT_TS, (b"", 0))[1] for _, cells in found]
    try:
        texts = [pa.array(values, pa.binary()).cast(pa.string()) for values in columns]
    except pa.ArrowInvalid as error:
        raise HbaseRowError(
            f"{where} has a row whose cells are not UTF-8 text ({error}), among {_some(rows)}: {_ADVICE}"
        ) from None
    bad = _bad(*texts)
    if pc.any(bad).as_py():
        row = found[pc.index(bad, True).as_py()]
        raise HbaseRowError(
            f"{where}, row {row[0]!r}: {dict(row[1])!r} is not a location of a row in a table: {_ADVICE}"
        )
    return pa.table([pa.array(rows, pa.binary()), *texts, pa.array(at, pa.int64())], schema=LOCATIONS)


_ADVICE = "find out which program wrote it; the index can be dropped and filled again"


def _bad(commit_ts: pa.Array, file_id: pa.Array, partition_path: pa.Array) -> pa.Array:
    good = pc.and_(
        pc.match_substring_regex(commit_ts, _INSTANT),
        pc.and_(
            pc.match_substring_regex(file_id, _FILE_ID),
            pc.and_not(
                pc.match_substring_regex(partition_path, _PARTITION_PATH),
                pc.match_substring_regex(partition_path, _STEPS_UP),
            ),
        ),
    )
    return pc.invert(pc.fill_null(good, False))


def _some(rows: Sequence[bytes]) -> str:
    return ", ".join(repr(row) for row in rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")


def check_client() -> None:
    """ConfigError where the package is missing that connects to HBase. It is imported only where the index is used."""
    try:
        import happybase  # noqa: F401
    except ImportError as e:
        raise missing_package("hoodie.index.type=HBASE", "happybase", e, "hbase", WORKERS) from None


class HbaseClient:
    """One connection, opened when needed and opened again after an error. For one thread."""

    def __init__(self, options: HbaseOptions, sleep: Callable[[float], None]) -> None:
        self._options = options
        self._sleep = sleep
        self._connection: happybase.Connection | None = None
        import happybase
        from Hbase_thrift import IllegalArgument  # a module that happybase makes
        from thriftpy2.thrift import TException

        self._connect = happybase.Connection
        # A lost connection, a timeout, half an answer; and what the server itself reports, such as a region on its way.
        self._failures, self._refusal = (TException, OSError, EOFError), IllegalArgument

    @property
    def where(self) -> str:
        """Name and address of the HBase table, for messages."""
        return f"HBase table {self._options.table!r} (Thrift server {self._options.address})"

    def run(self, what: str, work: Callable[[HbaseTable], Answer]) -> Answer:
        """Run ``work`` until it succeeds or the retries are used up. It must be possible to run it again from the start.

        ``what`` names the work for messages. HbaseUnavailableError when all tries failed.
        """
        failures = 0
        while True:
            try:
                return work(HbaseTable(self._table(), self.where))
            except self._failures as error:
                self._close()
                failures += 1
                if "TableNotFoundException" in str(error):
                    raise self._missing() from error
                if failures > self._options.thrift_retries or isinstance(error, self._refusal):
                    raise HbaseUnavailableError(
                        f"{self.where}: could not {what} in {failures} tries; last error: {_said(error)}. Check that HBase "
                        "and its Thrift server run and can be reached from every executor; the batch can then be "
                        "run again"
                    ) from error
                log.warning("%s: could not %s, try %d: %s", self.where, what, failures, _said(error))
                self._sleep(self._options.wait_seconds(failures))

    def _missing(self) -> HbaseTableError:
        shell = SHELL.format(table=self._options.table)
        return HbaseTableError(f"{self.where} does not exist. Create it in the HBase shell: {shell}")

    def _table(self) -> happybase.Table:
        if self._connection is None:
            self._connection = self._connect(
                self._options.thrift_host,
                self._options.thrift_port,
                timeout=int(self._options.thrift_timeout_seconds * 1000),
            )
        return self._connection.table(self._options.table)

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(*self._failures):  # it may be broken, which is why it is closed
                self._connection.close()
            self._connection = None

    def __enter__(self) -> HbaseClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()


class HbaseTable:
    """The table, as ``HbaseClient.run`` gives it to its ``work``."""

    def __init__(self, table: happybase.Table, where: str) -> None:
        self._table = table
        self._where = where

    def max_versions(self) -> int | None:
        """Number of cell versions that the column family keeps; None when the table does not have the family."""
        family = self._table.families().get(FAMILY)
        return None if family is None else int(family["max_versions"])

    def region_servers(self) -> int:
        """Number of servers with regions of the table, at least 1."""
        return max(1, len({(region["server_name"], region["port"]) for region in self._table.regions()}))

    def get(self, rows: pa.Array, before: int | None = None) -> pa.Table:
        """The newest location of each row, or the newest older than the timestamp ``before`` (ms). Order is not defined."""
        if len(rows) == 0:
            return LOCATIONS.empty_table()
        found = self._table.rows(rows.to_pylist(), columns=COLUMNS, timestamp=before, include_timestamp=True)
        return to_locations(found, self._where)

    def get_older(self, locations: pa.Table) -> pa.Table:
        """For each location the version before it, where one exists."""
        # Thrift takes one timestamp per request. Rows that were put in one request mostly have the same timestamp.
        parts = [
            self.get(locations["row"].filter(pc.equal(locations["at"], at)), at) for at in _distinct(locations["at"])
        ]
        return pa.concat_tables([LOCATIONS.empty_table(), *parts])

    def put(self, rows: Iterable[tuple[bytes, dict[bytes, bytes]]], at: int | None = None) -> None:
        """Write the cells of rows, each row atomically, with the server's time or in place of the version ``at`` (ms)."""
        batch = self._table.batch(timestamp=at)
        for row, cells in rows:  # a Python loop over records: Thrift takes an object per cell
            batch.put(row, cells)
        batch.send()

    def delete(self, rows: Sequence[bytes], at: int | None = None) -> None:
        """Remove all versions of rows, or those up to the timestamp ``at`` (ms)."""
        batch = self._table.batch(timestamp=at)
        for row in rows:
            batch.delete(row, columns=[FAMILY])
        batch.send()

    def put_by(self, instant: str) -> pa.Table:
        """Rows whose newest location was put by an instant. The region servers scan the whole table."""
        only = f"SingleColumnValueFilter('_s','commit_ts',=,'binary:{instant}',true,true)".encode()
        found = self._table.scan(columns=COLUMNS, filter=only, include_timestamp=True)
        return to_locations(list(found), self._where)


def _distinct(column: pa.ChunkedArray) -> list[int]:
    values: list[int] = pc.unique(column).to_pylist()
    return values


def _said(error: BaseException) -> str:
    """The first line of the server's or socket's error text: the server sends whole Java stack traces."""
    message = getattr(error, "message", None) or str(error)
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return f"{type(error).__name__}: {text.splitlines()[0][:300] if text.strip() else '(no text)'}"


class RateLimiter:
    """Limits the rate of operations. A batch waits until the time of those before is used up, at ``rate`` per second.

    In any span of t seconds at most ``rate * t`` operations and one batch begin. ``clock`` gives seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} per second allows no operation")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def acquire(self, operations: int) -> None:
        """Wait until a batch of this many operations may begin."""
        while (wait := self._free_at - self._clock()) > 0:
            self._sleep(wait)
        self._free_at = max(self._free_at, self._clock()) + operations / self._rate
