"""Records of the metadata table: their keys, and their Avro values decoded and merged.

The values are HoodieMetadataRecord, decoded by the schema they were written in. A record's own ``key`` is blank;
its key is that of the HFile entry. ``type`` says which member is set: 1 the list of partitions and 2 the files of
one (``filesystemMetadata``), 3 and 6 statistics of a column in a file and in a partition
(``ColumnStatsMetadata``), 4 a bloom filter, 5 the place of a record key (``recordIndexMetadata``).

Keys hold hashes of names: xxHash64 of columns and partitions, MD5 of files. Hudi (HashID) seeds xxHash64 with the
int 0xdabadaba sign-extended, and writes hashes big-endian in base 64.
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

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.log_format import unscaled_bytes, zigzag

Record = dict[str, Any]

FILES, COLUMN_STATS, BLOOM_FILTER = "filesystemMetadata", "ColumnStatsMetadata", "BloomFilterMetadata"
_BROKEN: Final = (
    ArithmeticError, EOFError, LookupError, MemoryError, StopIteration, TypeError, ValueError, struct.error,
    fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, decimal.DecimalException,
)  # fmt: skip
# Numbers stay numbers; a decimal is the one logical type whose plain form would lose its scale.
_DECIMAL: Final = "decimal"
_DECIMAL_ORDINAL, _DATE_ORDINAL = 10, 12  # value types in table version 9
_WHOLE_ORDINALS: Final = (3, 4)  # int, long
_ENDS: Final = ("minValue", "maxValue")
LAST_TEXT: Final = "\U0010ffff" * 8  # behind every text that anyone would write
_EXACT: Final = decimal.Context(prec=80)


def decode(values: list[bytes], avro_json: str, where: str) -> list[Record]:
    """Records of HFile values. A wrapped minimum or maximum is a pair of its wrapper's name and ``{"value": ...}``.

    Raises CorruptFileError naming ``where``. (A row loop inside the Avro library: 25 us a record.)
    """
    stream = io.BytesIO(b"".join([zigzag(len(values)), *values, zigzag(0)]) if values else b"\0")
    try:
        found: Any = fastavro.schemaless_reader(
            stream, _array_schema(avro_json), None, return_record_name=True, return_record_name_override=True
        )
    except _BROKEN as error:
        raise CorruptFileError(
            f"{where} holds records that are no Avro of its schema ({error}); restore the file, or drop the metadata table "
            "(hoodie.metadata.enable=false)"
        ) from error
    if stream.read(1) or len(found) != len(values):
        raise CorruptFileError(f"{where} holds records that do not end where they should; restore the file")
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
    """A later record of a key over an earlier one (HoodieMetadataPayload.preCombine); None: the key is deleted."""
    if new.get(FILES) is not None:
        return {**new, FILES: _merged_files((old or {}).get(FILES) or {}, new[FILES])}
    stats = new.get(COLUMN_STATS)
    if stats is not None:
        if stats["isDeleted"]:
            return None
        before = (old or {}).get(COLUMN_STATS)
        # A log file that two commits appended to: what both say holds. A tight bound was computed from everything.
        return (
            new if before is None or stats.get("isTightBound") else {**new, COLUMN_STATS: _merged_stats(before, stats)}
        )
    if (new.get(BLOOM_FILTER) or {}).get("isDeleted"):
        return None
    return new


def _merged_files(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Union of two listings: a deletion removes, of two sizes of a file (a log that grew) the greater one counts."""
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
    # What has no values, as a log file of deletes, has no ends and tells no type; Hudi's readers would take a range without
    # ends for one that no row is in.
    if _has_no_values(new):
        return {**old, **counts, "isTightBound": new.get("isTightBound", False)}
    if _has_no_values(old):
        return {**new, **counts}
    old = _as_text(new, _in_form_of(new, old))
    order = _signed if (new.get("valueType") or {}).get("typeOrdinal") == _DECIMAL_ORDINAL else _plain_order
    ends = {name: _end(old[name], new[name], pick, order) for name, pick in (("minValue", min), ("maxValue", max))}
    return {**new, **counts, **ends}


def _in_form_of(new: Record, old: Record) -> Record:
    """Older statistics in the form of newer ones: up to table version 8 the wrapper tells the type of a value, from 9 on
    ``valueType`` does, and a decimal is its unscaled number.

    One file has both where writers did not keep to the form that the index's definition tells.
    """
    before, after = old.get("valueType"), new.get("valueType")
    told = before or after
    if (before is None) == (after is None) or told is None:
        return old
    ends = {name: _changed(old[name], told, typed=after is not None) for name in ("minValue", "maxValue")}
    return {**old, **ends, "valueType": after}


def _as_text(new: Record, old: Record) -> Record:
    """Older statistics of numbers as those of texts, where the column has become one: ends that do not compare would be
    none, which readers take for a column without values.
    """
    if not all(_is_text(new[name]) for name in _ENDS) or any(
        old[name] is None or _is_text(old[name]) for name in _ENDS
    ):
        return old
    is_whole = (old.get("valueType") or {}).get("typeOrdinal") in _WHOLE_ORDINALS  # else a number may be a date's
    ends = [old[name][1]["value"] for name in _ENDS]
    texts = text_ends(ends[0], ends[1]) if is_whole else ("", LAST_TEXT)
    return {**old, **{name: (new[name][0], {"value": text}) for name, text in zip(_ENDS, texts, strict=True)}}


def text_ends(low: int, high: int) -> tuple[str, str]:
    """Ends of the texts of all whole numbers between two."""
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
    """A decimal of table version 9 is the bytes of its unscaled number, in two's complement."""
    return int.from_bytes(value, "big", signed=True)


def _plain_order(value: Any) -> Any:
    """Not-a-number is greater than all numbers, as Spark and Java order it."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _end(old: Any, new: Any, pick: Any, order: Callable[[Any], Any]) -> Any:
    """The lesser or greater of two wrapped values. None, which is "unknown", where they do not compare.

    Of a column that was widened in between the wrapper is the wider one; floats count as readers widen them, by their
    shortest digits.
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


_MASK: Final = (1 << 64) - 1
_SEED: Final = 0xFFFFFFFFDABADABA
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_EMPTY_PARTITION: Final = "."  # how the metadata table names the partition of a non-partitioned table


def partition_name(partition_path: str) -> str:
    """A partition path as the metadata table names it."""
    return partition_path or _EMPTY_PARTITION


def column_id(name: str) -> str:
    """12 characters that stand for a column."""
    return _base64(xxhash64(name.encode(), _SEED).to_bytes(8, "big"))


def partition_id(partition_path: str) -> str:
    """12 characters that stand for a partition."""
    return _base64(xxhash64(partition_name(partition_path).encode(), _SEED).to_bytes(8, "big"))


def file_id(name: str) -> str:
    """24 characters that stand for a file name."""
    return _base64(hashlib.md5(name.encode(), usedforsecurity=False).digest())


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """Key of the record with a column's statistics in a file."""
    return column_id(column) + partition_id(partition_path) + file_id(file_name)


def xxhash64(data: bytes, seed: int) -> int:
    """xxHash64 of a name (a plain loop: 10 us for a short one)."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for at in range(0, len(data) - 31, 32):
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
        at += 32
        h = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        h = (seed + _P5) & _MASK
    h = (h + len(data)) & _MASK
    while at + 8 <= len(data):
        h = (_rotated(h ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        h = (_rotated(h ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        h = _rotated(h ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    h = (h ^ h >> 33) * _P2 & _MASK
    h = (h ^ h >> 29) * _P3 & _MASK
    return h ^ h >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
