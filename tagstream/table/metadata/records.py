"""Records of the metadata table: their keys, and their Avro values decoded and merged.

The values are HoodieMetadataRecord, decoded with the schema they were written with. A record's ``key`` member is empty;
its key is that of the HFile entry. ``type`` says which member is set: 1 the list of partitions and 2 the files of
one (``filesystemMetadata``), 3 and 6 statistics of a column in a file and in a partition
(``ColumnStatsMetadata``), 4 a bloom filter, 5 the place of a record key (``recordIndexMetadata``).

Keys have hashes of names: xxHash64 of columns and partitions, MD5 of files. Hudi (HashID) seeds xxHash64 with the
int 0xdabadaba sign-extended, and writes hashes big-endian in base64.
"""

from __future__ import annotations

import base64
import decimal
import hashlib
import io
import json
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import fastavro
import fastavro.schema
import numpy as np
import xxhash

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.log_format import unscaled_bytes, zigzag

Record = dict[str, Any]

FILES, COLUMN_STATS, BLOOM_FILTER = "filesystemMetadata", "ColumnStatsMetadata", "BloomFilterMetadata"
_BROKEN: Final = (
    ArithmeticError, EOFError, LookupError, MemoryError, StopIteration, TypeError, ValueError, struct.error,
    fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, decimal.DecimalException,
)  # fmt: skip
# Other logical types are read as plain numbers; the plain form of a decimal would lose its scale.
_DECIMAL: Final = "decimal"
_DECIMAL_ORDINAL, _DATE_ORDINAL = 10, 12  # value types in table version 9
_WHOLE_ORDINALS: Final = (3, 4)  # int, long
_ENDS: Final = ("minValue", "maxValue")
LAST_TEXT: Final = "\U0010ffff" * 8  # after every realistic text
_EXACT: Final = decimal.Context(prec=80)
_SEED: Final = 0xFFFFFFFFDABADABA
_EMPTY_PARTITION: Final = "."  # the metadata table's name for the partition of a non-partitioned table


def decode(values: list[bytes], avro_json: str, where: str) -> list[Record]:
    """Records of HFile values. A wrapped minimum or maximum is a pair of its wrapper's name and ``{"value": ...}``.

    CorruptFileError names ``where``. (A row loop inside the Avro library: 25 us a record.)
    """
    stream = io.BytesIO(b"".join([zigzag(len(values)), *values, zigzag(0)]) if values else b"\0")
    try:
        found: Any = fastavro.schemaless_reader(
            stream, _array_schema(avro_json), None, return_record_name=True, return_record_name_override=True
        )
    except _BROKEN as error:
        raise CorruptFileError(
            f"{where} has records that do not follow its Avro schema ({error}); restore the file, or drop the metadata "
            "table (hoodie.metadata.enable=false)"
        ) from error
    if stream.read(1) or len(found) != len(values):
        raise CorruptFileError(f"{where} has records that do not end where they should; restore the file")
    return list(found)


@lru_cache(32)
def _array_schema(avro_json: str) -> Any:
    return fastavro.parse_schema({"type": "array", "items": _plain(json.loads(avro_json))})


def _plain(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_plain(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    keep = avro.get("logicalType") == _DECIMAL
    return {key: _plain(value) for key, value in avro.items() if key != "logicalType" or keep}


def merged(old: Record | None, new: Record) -> Record | None:
    """Merge a later record of a key with an earlier one (HoodieMetadataPayload.preCombine); None: the key is deleted."""
    if new.get(FILES) is not None:
        return {**new, FILES: _merged_files((old or {}).get(FILES) or {}, new[FILES])}
    stats = new.get(COLUMN_STATS)
    if stats is not None:
        if stats["isDeleted"]:
            return None
        before = (old or {}).get(COLUMN_STATS)
        # Two commits may have appended to a log file: both ranges apply. A tight bound was computed from the whole
        # file.
        return (
            new if before is None or stats.get("isTightBound") else {**new, COLUMN_STATS: _merged_stats(before, stats)}
        )
    if (new.get(BLOOM_FILTER) or {}).get("isDeleted"):
        return None
    return new


def _merged_files(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Union of two listings. A deletion removes a file; of two sizes of a file (a log that grew) the greater one applies."""
    files = dict(old)
    for name, info in new.items():
        before = files.get(name)
        if info["isDeleted"]:
            files.pop(name, None)
        elif before is None or info["size"] > before["size"]:
            files[name] = info
    return files


def _merged_stats(old: Record, new: Record) -> Record:
    counts = {
        name: old[name] + new[name] if old[name] is not None and new[name] is not None else None
        for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    }
    # A file without values, such as a log file of deletes, has no ends and no type. Hudi's readers would treat a range
    # without ends as one without rows.
    if _has_no_values(new):
        return {**old, **counts, "isTightBound": new.get("isTightBound", False)}
    if _has_no_values(old):
        return {**new, **counts}
    old = _as_text(new, _in_form_of(new, old))
    order = _signed if (new.get("valueType") or {}).get("typeOrdinal") == _DECIMAL_ORDINAL else _plain_order
    ends = {name: _end(old[name], new[name], pick, order) for name, pick in (("minValue", min), ("maxValue", max))}
    return {**new, **counts, **ends}


def _in_form_of(new: Record, old: Record) -> Record:
    """Older statistics in the form of newer ones.

    Up to table version 8 the wrapper determines the type of a value. From 9 on ``valueType`` does, and a decimal is its
    unscaled number. One file has both forms if writers ignored the form in the index's definition.
    """
    before, after = old.get("valueType"), new.get("valueType")
    recorded = before or after
    if (before is None) == (after is None) or recorded is None:
        return old
    ends = {name: _changed(old[name], recorded, typed=after is not None) for name in ("minValue", "maxValue")}
    return {**old, **ends, "valueType": after}


def _as_text(new: Record, old: Record) -> Record:
    """Older statistics of numbers as those of texts, if the column has become text.

    Ends that cannot be compared would be dropped, and readers would treat the column as one without values.
    """
    if not all(_is_text(new[name]) for name in _ENDS) or any(
        old[name] is None or _is_text(old[name]) for name in _ENDS
    ):
        return old
    is_whole = (old.get("valueType") or {}).get("typeOrdinal") in _WHOLE_ORDINALS  # otherwise a number may be a date
    ends = [old[name][1]["value"] for name in _ENDS]
    texts = text_ends(ends[0], ends[1]) if is_whole else ("", LAST_TEXT)
    return {**old, **{name: (new[name][0], {"value": text}) for name, text in zip(_ENDS, texts, strict=True)}}


def text_ends(low: int, high: int) -> tuple[str, str]:
    """Ends of the texts of all whole numbers between two numbers."""
    ends = (str(low), str(high))
    return ends if low >= 0 and len(ends[0]) == len(ends[1]) else ("", LAST_TEXT)


def _is_text(end: Any) -> bool:
    return end is not None and str(end[0]).endswith(".StringWrapper")


def _changed(end: Any, value_type: Record, *, typed: bool) -> Any:
    if end is None:
        return None
    wrapper, value = end[0], end[1]["value"]
    package, _, _ = wrapper.rpartition(".")
    if value_type["typeOrdinal"] == _DATE_ORDINAL:
        return (f"{package}.{'Int' if typed else 'Date'}Wrapper", {"value": value})
    if value_type["typeOrdinal"] == _DECIMAL_ORDINAL:
        scale = int(value_type["additionalInfo"].rpartition(",")[2])
        if not typed:
            value = decimal.Decimal(_signed(value)).scaleb(-scale, _EXACT)
            return (f"{package}.DecimalWrapper", {"value": value})
        return (f"{package}.BytesWrapper", {"value": unscaled_bytes(int(value.scaleb(scale, _EXACT)))})
    return end


def _has_no_values(stats: Record) -> bool:
    ends, counted = (stats["minValue"], stats["maxValue"]), stats["valueCount"]
    return ends == (None, None) and counted is not None and counted == stats["nullCount"]


def _signed(value: Any) -> Any:
    """The unscaled number of a decimal of table version 9, from its bytes in two's complement."""
    return int.from_bytes(value, "big", signed=True)


def _plain_order(value: Any) -> Any:
    """Sort key in which NaN is greater than all numbers, as in Spark and Java."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _end(old: Any, new: Any, pick: Any, order: Callable[[Any], Any]) -> Any:
    """The lesser or greater of two wrapped values; None ("unknown") when they cannot be compared.

    If the column was widened in between, the wider wrapper is used. Floats become doubles by their shortest digits, as
    for readers.
    """
    if old is None or new is None:
        return None
    if old[0] != new[0]:
        old, new = _wide(old), _wide(new)
    if old[0] != new[0]:
        return None
    return (new[0], {"value": pick(old[1]["value"], new[1]["value"], key=order)})


def _wide(end: Any) -> Any:
    name, value = end[0].rpartition(".")[2], end[1]["value"]
    if name == "IntWrapper":
        return (end[0].replace(name, "LongWrapper"), {"value": value})
    if name == "FloatWrapper":
        return (end[0].replace(name, "DoubleWrapper"), {"value": float(str(np.float32(value)))})
    return end


def partition_name(partition_path: str) -> str:
    """The metadata table's name for a partition path."""
    return partition_path or _EMPTY_PARTITION


def column_id(name: str) -> str:
    """Hash of a column's name, 12 characters."""
    return _base64(xxhash.xxh64_digest(name.encode(), _SEED))


def partition_id(partition_path: str) -> str:
    """Hash of a partition, 12 characters."""
    return _base64(xxhash.xxh64_digest(partition_name(partition_path).encode(), _SEED))


def file_id(name: str) -> str:
    """Hash of a file name, 24 characters."""
    return _base64(hashlib.md5(name.encode(), usedforsecurity=False).digest())


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """Key of the record with a column's statistics in a file."""
    return column_id(column) + partition_id(partition_path) + file_id(file_name)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
