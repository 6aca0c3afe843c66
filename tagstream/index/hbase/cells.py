"""The cells of a location: column family ``_s`` with three texts, as Hudi's ``SparkHoodieHBaseIndex`` writes them.

Rows come and go as Python objects, because Thrift has nothing else; all checks are on columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.index.hbase.errors import HbaseRowError

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
