"""The HBase table of an index, through a Thrift server: requests that are tried again, and the cells of a location.

A location is three texts in column family ``_s``, as Hudi's ``SparkHoodieHBaseIndex`` writes them. Rows come and
go as Python objects, because Thrift has nothing else; all checks are on columns. Operations are limited to a rate
per second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import happybase
import pyarrow as pa
import pyarrow.compute as pc
from Hbase_thrift import IllegalArgument
from thriftpy2.thrift import TException

from tagstream.index.errors import HbaseRowError, HbaseTableError, HbaseUnavailableError
from tagstream.index.hbase_options import HbaseOptions

FAMILY = b"_s"
COMMIT_TS = b"_s:commit_ts"
FILE_NAME = b"_s:file_name"  # holds the file id
PARTITION_PATH = b"_s:partition_path"
COLUMNS = [COMMIT_TS, FILE_NAME, PARTITION_PATH]

# Locations as read: the row key, the texts, and the cells' HBase timestamp (ms, given by the region server).
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
# A path below the table: no step upwards, no empty one, not from the root; "" is a table without partitions.
_PARTITION_PATH = "^([^/\\x00]+(/[^/\\x00]+)*)?$"
_STEPS_UP = "(^|/)\\.\\.?(/|$)"

Found = Sequence[tuple[bytes, Mapping[bytes, tuple[bytes, int]]]]


def to_cells(instant: str, file_id: str, partition_path: str) -> dict[bytes, bytes]:
    """The three cells of a location."""
    return {COMMIT_TS: instant.encode(), FILE_NAME: file_id.encode(), PARTITION_PATH: partition_path.encode()}


def to_locations(found: Found, where: str) -> pa.Table:
    """Rows that HBase answered, with their timestamps, as :data:`LOCATIONS`; rows it does not have are left out.

    Raises HbaseRowError for a row that is no location; ``where`` says which HBase table it is.
    """
    # A Python loop over records: Thrift hands over a dictionary a row.
    rows = [row for row, _ in found]
    columns = [[cells.get(name, (None, 0))[0] for _, cells in found] for name in COLUMNS]
    at = [cells.get(COMMIT_TS, (b"", 0))[1] for _, cells in found]
    try:
        texts = [pa.array(values, pa.binary()).cast(pa.string()) for values in columns]
    except pa.ArrowInvalid as error:
        raise HbaseRowError(
            f"{where} has a row whose cells are no UTF-8 text ({error}), among {_some(rows)}: {_ADVICE}"
        ) from None
    bad = _bad(*texts)
    if pc.any(bad).as_py():
        row = found[pc.index(bad, True).as_py()]
        raise HbaseRowError(f"{where}, row {row[0]!r}: {dict(row[1])!r} is no location of a row in a table: {_ADVICE}")
    return pa.table([pa.array(rows, pa.binary()), *texts, pa.array(at, pa.int64())], schema=LOCATIONS)


_ADVICE = "find out who wrote it; the index can be thrown away and filled anew"


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


log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
# A lost connection, a timeout, half an answer; and what the server itself reports, such as a region on its way.
_FAILURES = (TException, OSError, EOFError)
SHELL = "create '{table}', {{NAME => '_s', VERSIONS => 3}}"


class HbaseClient:
    """One connection, opened when it is needed and opened anew when it broke. For one thread."""

    def __init__(self, options: HbaseOptions, sleep: Callable[[float], None]) -> None:
        self._options = options
        self._sleep = sleep
        self._connection: happybase.Connection | None = None

    @property
    def where(self) -> str:
        """The HBase table in words, for messages."""
        return f"HBase table {self._options.table!r} (Thrift server {self._options.address})"

    def run(self, what: str, work: Callable[[HbaseTable], Answer]) -> Answer:
        """Do ``work``, which may be done again from its beginning, until it succeeds or the tries are used up.

        Raises HbaseUnavailableError, which says ``what`` was to be done.
        """
        failures = 0
        while True:
            try:
                return work(HbaseTable(self._table(), self.where))
            except _FAILURES as error:
                self._close()
                failures += 1
                if "TableNotFoundException" in str(error):
                    raise self._missing() from error
                if failures > self._options.thrift_retries or isinstance(error, IllegalArgument):
                    raise HbaseUnavailableError(
                        f"{self.where}: could not {what}, tried {failures} times; the last time {_said(error)}. See that "
                        "HBase and its Thrift server run and can be reached from every executor; the batch can then be "
                        "run again"
                    ) from error
                log.warning("%s: could not %s, try %d: %s", self.where, what, failures, _said(error))
                self._sleep(self._options.wait_seconds(failures))

    def _missing(self) -> HbaseTableError:
        shell = SHELL.format(table=self._options.table)
        return HbaseTableError(f"{self.where} does not exist. Make it in the HBase shell: {shell}")

    def _table(self) -> happybase.Table:
        if self._connection is None:
            self._connection = happybase.Connection(
                self._options.thrift_host,
                self._options.thrift_port,
                timeout=int(self._options.thrift_timeout_seconds * 1000),
            )
        return self._connection.table(self._options.table)

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(*_FAILURES):  # it may be broken, which is why it is closed
                self._connection.close()
            self._connection = None

    def __enter__(self) -> HbaseClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()


class HbaseTable:
    """The table as ``HbaseClient.run`` lends it to a piece of work."""

    def __init__(self, table: happybase.Table, where: str) -> None:
        self._table = table
        self._where = where

    def max_versions(self) -> int | None:
        """How many versions of a cell the column family keeps; None when the table has no such family."""
        family = self._table.families().get(FAMILY)
        return None if family is None else int(family["max_versions"])

    def region_servers(self) -> int:
        """How many servers have regions of the table, 1 at least."""
        return max(1, len({(region["server_name"], region["port"]) for region in self._table.regions()}))

    def get(self, rows: pa.Array, before: int | None = None) -> pa.Table:
        """The newest location of each row, or the newest older than a timestamp (ms). ``LOCATIONS``, in no order."""
        if len(rows) == 0:
            return LOCATIONS.empty_table()
        found = self._table.rows(rows.to_pylist(), columns=COLUMNS, timestamp=before, include_timestamp=True)
        return to_locations(found, self._where)

    def get_older(self, locations: pa.Table) -> pa.Table:
        """Of each location the version before it, where there is one."""
        # Thrift takes one timestamp a request. Rows that were put in one request mostly have the same.
        parts = [
            self.get(locations["row"].filter(pc.equal(locations["at"], at)), at) for at in _distinct(locations["at"])
        ]
        return pa.concat_tables([LOCATIONS.empty_table(), *parts])

    def put(self, rows: Iterable[tuple[bytes, dict[bytes, bytes]]], at: int | None = None) -> None:
        """Write the cells of rows, each row at once, with the server's time or in the place of the version ``at``."""
        batch = self._table.batch(timestamp=at)
        for row, cells in rows:  # a Python loop over records: Thrift takes an object a cell
            batch.put(row, cells)
        batch.send()

    def delete(self, rows: Sequence[bytes], at: int | None = None) -> None:
        """Remove all versions of rows, or those up to ``at``."""
        batch = self._table.batch(timestamp=at)
        for row in rows:
            batch.delete(row, columns=[FAMILY])
        batch.send()

    def put_by(self, instant: str) -> pa.Table:
        """Rows whose newest location was put by an instant, by a scan of the whole table on the region servers."""
        only = f"SingleColumnValueFilter('_s','commit_ts',=,'binary:{instant}',true,true)".encode()
        found = self._table.scan(columns=COLUMNS, filter=only, include_timestamp=True)
        return to_locations(list(found), self._where)


def _distinct(column: pa.ChunkedArray) -> list[int]:
    values: list[int] = pc.unique(column).to_pylist()
    return values


def _said(error: BaseException) -> str:
    """The first line of what the server or the socket said; the server sends whole Java traces."""
    message = getattr(error, "message", None) or str(error)
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return f"{type(error).__name__}: {text.splitlines()[0][:300] if text.strip() else '(no text)'}"


class RateLimiter:
    """Spreads operations over time: who comes next waits until those before are paid for at ``rate`` a second.

    In any span of t seconds at most ``rate * t`` operations and one batch begin. ``clock`` gives seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} a second lets nothing through")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def acquire(self, operations: int) -> None:
        """Wait until a batch of that many may begin."""
        while (wait := self._free_at - self._clock()) > 0:
            self._sleep(wait)
        self._free_at = max(self._free_at, self._clock()) + operations / self._rate
