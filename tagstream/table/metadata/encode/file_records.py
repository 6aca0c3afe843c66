"""Records of the metadata table about files, a few for each file a commit wrote: listings, statistics, bloom filters.

A record is a dict as the Avro library takes it; ``encode_records`` makes the entries of a file of them.
"""

from __future__ import annotations

import decimal
import io
import re
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

import fastavro
import pyarrow as pa

from tagstream.table.file_group.bloom import DYNAMIC_V0, kind_of
from tagstream.table.file_group.log.varint import unscaled_bytes
from tagstream.table.metadata.encode.column_ranges import ColumnRange
from tagstream.table.metadata.encode.record_schema import parsed_schema
from tagstream.table.metadata.name_hash import column_id, column_stats_key, file_id, partition_id, partition_name
from tagstream.table.metadata.records import BLOOM_FILTER, COLUMN_STATS, FILES, Record

Named = tuple[str, Record]  # a record and its key

ALL_PARTITIONS_TYPE, FILES_TYPE, COLUMN_STATS_TYPE, BLOOM_TYPE, PARTITION_STATS_TYPE = 1, 2, 3, 4, 6

_PACKAGE: Final = "org.apache.hudi.avro.model."
_NO_TYPE: Final = 1  # of statistics of a file without rows, as a log file that has only deletes
_WITH_VALUE_TYPE: Final = 9  # the first table version whose statistics tell the type of the values
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
# By kind: the type's number, the wrapper up to version 8, the wrapper from 9 on.
_KINDS: Final = {
    "boolean": (2, "Boolean", "Boolean"), "int": (3, "Int", "Int"), "long": (4, "Long", "Long"),
    "float": (5, "Float", "Float"), "double": (6, "Double", "Double"), "string": (7, "String", "String"),
    "bytes": (8, "Bytes", "Bytes"), "fixed": (9, "Bytes", "Bytes"), "decimal": (10, "Decimal", "Bytes"),
    "date": (12, "Date", "Int"), "time-millis": (13, "Int", "Int"), "time-micros": (14, "Long", "Long"),
    "timestamp-millis": (15, "Long", "Long"), "timestamp-micros": (16, "Long", "Long"),
    "timestamp-nanos": (17, "Long", "Long"), "local-timestamp-millis": (18, "Long", "Long"),
    "local-timestamp-micros": (19, "Long", "Long"), "local-timestamp-nanos": (20, "Long", "Long"),
}  # fmt: skip


def partitions_record(there: Iterable[str], gone: Iterable[str] = ()) -> Record:
    """The list of partitions, or what changed in it; its key is ``__all_partitions__``."""
    names = {partition_name(path): False for path in there} | {partition_name(path): True for path in gone}
    return _files(ALL_PARTITIONS_TYPE, {name: (0, is_gone) for name, is_gone in names.items()})


def files_record(partition_path: str, sizes: Mapping[str, int], gone: Collection[str] = ()) -> Named:
    """Files of a partition that were written, with their whole sizes, and those that were deleted."""
    files = {name: (size, False) for name, size in sizes.items()} | dict.fromkeys(gone, (0, True))
    return partition_name(partition_path), _files(FILES_TYPE, files)


def stats_record(partition_path: str, file_name: str, column: str, found: ColumnRange | None, version: int) -> Named:
    """Statistics of a column in a file, in the form of a table version; ``found`` None: the file is deleted."""
    key = column_stats_key(column, partition_path, file_name)
    return key, _stats(COLUMN_STATS_TYPE, file_name, column, found, version)


def partition_stats_record(partition_path: str, column: str, found: ColumnRange, version: int) -> Named:
    """What a commit adds to the range of a column in a partition: readers join it with the range before."""
    key = column_id(column) + partition_id(partition_path)
    return key, _stats(PARTITION_STATS_TYPE, partition_path, column, found, version)


def bloom_record(partition_path: str, file_name: str, instant: str, bloom_text: str | None) -> Named:
    """The bloom filter of a base file, as the text its footer has; None: the file is deleted."""
    kind = DYNAMIC_V0 if bloom_text is None else kind_of(bloom_text)
    member = {
        "type": kind, "timestamp": instant, "bloomFilter": (bloom_text or "").encode(), "isDeleted": bloom_text is None
    }  # fmt: skip
    return partition_id(partition_path) + file_id(file_name), {"type": BLOOM_TYPE, BLOOM_FILTER: member}


def encode_records(records: Mapping[str, Record], form: int) -> tuple[pa.Array, pa.Array]:
    """Keys, sorted by their bytes, and values (binary) of an HFile. A record loop: there are few for each file.

    ``form``: of the records (``record_schema``).
    """
    rows = sorted(((key.encode(), record) for key, record in records.items()), key=itemgetter(0))
    schema, values = parsed_schema(form), []
    for _, record in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {**record, "key": ""})
        values.append(out.getvalue())
    return pa.array([key for key, _ in rows], pa.binary()), pa.array(values, pa.binary())


def _files(kind: int, files: Mapping[str, tuple[int, bool]]) -> Record:
    infos = {name: {"size": size, "isDeleted": is_gone} for name, (size, is_gone) in sorted(files.items())}
    return {"type": kind, FILES: infos}


def _stats(kind: int, name: str, column: str, found: ColumnRange | None, version: int) -> Record:
    # A range may be wider than the values: a reader must not take its ends for values that occur.
    member: dict[str, Any] = {
        "fileName": name, "columnName": column, "minValue": None, "maxValue": None, "valueCount": None, "nullCount": None,
        "totalSize": None, "totalUncompressedSize": None, "isDeleted": found is None, "isTightBound": False,
    }  # fmt: skip
    if found is not None:
        member |= {
            "minValue": _wrapped(found.low, found.kind, version),
            "maxValue": _wrapped(found.high, found.kind, version),
            "valueCount": found.rows,
            "nullCount": found.nulls,
            "totalSize": found.size,
            "totalUncompressedSize": found.uncompressed,
        }
        if version >= _WITH_VALUE_TYPE:
            digits = _DECIMAL.match(found.kind)
            ordinal, info = _KINDS["decimal" if digits else found.kind][0], None
            if kind == COLUMN_STATS_TYPE and not found.rows:
                ordinal = _NO_TYPE
            elif digits:
                info = f"{digits[1]},{digits[2]}"
            member["valueType"] = {"typeOrdinal": ordinal, "additionalInfo": info}
    return {"type": kind, COLUMN_STATS: member}


def _wrapped(value: Any, kind: str, version: int) -> Any:
    if value is None:
        return None
    digits = _DECIMAL.match(kind)
    _, old, new = _KINDS["decimal" if digits else kind]
    name = new if version >= _WITH_VALUE_TYPE else old
    if digits and name == "Bytes":
        value = unscaled_bytes(value)
    elif digits:
        value = decimal.Decimal(value).scaleb(-int(digits[2]), decimal.Context(prec=80))
    return (f"{_PACKAGE}{name}Wrapper", {"value": value})
