"""Records of the metadata table, encoded in the Avro schema of each table version.

The schema is HoodieMetadataRecord of Hudi 0.15.0 and 1.2.0. Version 6 is written in the oldest form. Hudi 1.0 added a
position to a key's place, tight bounds to statistics, a wrapper of dates, and secondary indexes. Hudi 1.1 added the
type of the values of statistics, and a wrapper of several values. A form has the number of a table version, or another
number if only an unreleased or intermediate writer has it. A table keeps its form: hudi-rs 0.5.0 cannot read a metadata
table whose blocks have different forms.

There are few records about files (listings, statistics, bloom filters) in a commit. Such a record is a dict for the
Avro library, and ``encode_records`` makes the entries of a file of them.

Entries of the record index are encoded column by column, millions of keys a second. An entry's value has the place of a
key and not the key itself, so keys of one file group and instant share one value, which is encoded once.
"""

from __future__ import annotations

import decimal
import io
import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import fastavro
import fastavro.schema
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.bloom import DYNAMIC_V0, kind_of
from tagstream.table.file_group.log_format import prefixed, unscaled_bytes, zigzag, zigzags
from tagstream.table.metadata.column_ranges import ColumnRange
from tagstream.table.metadata.records import (
    BLOOM_FILTER,
    COLUMN_STATS,
    FILES,
    Record,
    column_id,
    column_stats_key,
    file_id,
    partition_id,
    partition_name,
)
from tagstream.table.schema.schema import with_meta_avro

_STRING: Final = {"type": "string", "avro.java.string": "String"}
_WRAPPED_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPED: Final = (
    ("BooleanWrapper", "boolean"), ("IntWrapper", "int"), ("LongWrapper", "long"), ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"), ("BytesWrapper", "bytes"), ("StringWrapper", _STRING), ("DateWrapper", "int"),
    ("DecimalWrapper", _WRAPPED_DECIMAL), ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
)  # fmt: skip
_NEW: Final = 8  # the first table version with the newer form, which is that of Hudi 1.1
FORM_OF_1_0, FORM_BEFORE_1_1 = 70, 71  # of version 8 by Hudi 1.0, of version 9 by a pre-release of Hudi 1.1


def record_schema(form: int) -> dict[str, Any]:
    """The schema of records in commits, without meta columns; ``form`` as in :func:`form_of`."""
    new, typed = form >= _NEW, not is_untyped(form)
    wrappers, names = _wrappers(new, several=new and form != FORM_OF_1_0)
    if form == FORM_BEFORE_1_1:
        names.remove("ArrayWrapper")
    file = _record("HoodieMetadataFileInfo", _field("size", "long"), _field("isDeleted", "boolean"))
    files = {"type": "map", "values": file, "avro.java.string": "String"}
    bloom = _record(
        "HoodieMetadataBloomFilter",
        _field("type", _STRING), _field("timestamp", _STRING), _field("bloomFilter", "bytes"),
        _field("isDeleted", "boolean"),
    )  # fmt: skip
    counts = (_optional(n, "long") for n in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"))
    kind = _record("HoodieValueTypeInfo", _field("typeOrdinal", "int"), _optional("additionalInfo", _STRING))
    stats = _record(
        "HoodieMetadataColumnStats",
        _optional("fileName", _STRING), _optional("columnName", _STRING),
        _union("minValue", wrappers), _union("maxValue", names), *counts, _field("isDeleted", "boolean"),
        *((_field("isTightBound", "boolean", False),) if new else ()), *((_optional("valueType", kind),) if typed else ()),
    )  # fmt: skip
    place = _record(
        "HoodieRecordIndexInfo",
        _optional("partitionName", _STRING), _optional("fileIdHighBits", "long"), _optional("fileIdLowBits", "long"),
        _optional("fileIndex", "int"), _optional("fileId", _STRING), _optional("instantTime", "long"),
        _field("fileIdEncoding", "int", 0), *((_optional("position", "long"),) if new else ()),
    )  # fmt: skip
    secondary = _record("HoodieSecondaryIndexInfo", _field("isDeleted", "boolean"))
    fields = [
        _field("key", _STRING), _field("type", "int"), _field("filesystemMetadata", ["null", files]),
        _optional("BloomFilterMetadata", bloom), _optional("ColumnStatsMetadata", stats),
        _optional("recordIndexMetadata", place), *((_optional("SecondaryIndexMetadata", secondary),) if new else ()),
    ]  # fmt: skip
    record = _record("HoodieMetadataRecord", *fields)
    return {"type": "record", "name": record["name"], "namespace": "org.apache.hudi.avro.model", "fields": fields}


def is_untyped(form: int) -> bool:
    """Whether statistics of this form lack the type of their values."""
    return form < _NEW or form in (FORM_OF_1_0, FORM_BEFORE_1_1)


@lru_cache(16)
def form_of(avro_json: str, version: int) -> int:
    """The form of records with this schema (without meta columns); the table version's form for an unknown schema."""
    own = _canonical(avro_json)
    forms = (version, 6, _NEW, FORM_OF_1_0, FORM_BEFORE_1_1)
    return next((form for form in forms if _canonical(commit_avro_json(form)) == own), version)


def _canonical(avro_json: str) -> str:
    form: str = fastavro.schema.to_parsing_canonical_form(json.loads(avro_json))
    return form


@lru_cache
def commit_avro_json(form: int) -> str:
    """``record_schema`` as text."""
    return json.dumps(record_schema(form), separators=(",", ":"))


@lru_cache
def file_avro_json(form: int) -> str:
    """The schema of the records in files, as text, with the five meta columns first."""
    return json.dumps(with_meta_avro(record_schema(form)), separators=(",", ":"))


@lru_cache
def parsed_schema(form: int) -> Any:
    """``file_avro_json``, parsed for fastavro."""
    return fastavro.parse_schema(json.loads(file_avro_json(form)))


def _wrappers(new: bool, *, several: bool) -> tuple[list[Any], list[Any]]:
    """(the branches of a wrapped value with their definitions, the same by name)."""
    defined = [_record(name, _field("value", avro)) for name, avro in _WRAPPED]
    if new:
        defined.append(_record("LocalDateWrapper", _field("value", "int")))
    if several:
        items = ["null", *(wrapper["name"] for wrapper in defined)]
        defined.append(_record("ArrayWrapper", _optional("wrappedValues", {"type": "array", "items": items})))
    return defined, [wrapper["name"] for wrapper in defined]


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, avro: Any, *default: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **({"default": default[0]} if default else {})}


def _optional(name: str, avro: Any) -> dict[str, Any]:
    return _union(name, [avro])


def _union(name: str, branches: list[Any]) -> dict[str, Any]:
    return {"name": name, "type": ["null", *branches], "default": None}


Named = tuple[str, Record]  # a key and its record

ALL_PARTITIONS_TYPE, FILES_TYPE, COLUMN_STATS_TYPE, BLOOM_TYPE, PARTITION_STATS_TYPE = 1, 2, 3, 4, 6

_PACKAGE: Final = "org.apache.hudi.avro.model."
_NO_TYPE: Final = 1  # of statistics of a file without rows, such as a log file with only deletes
_WITH_VALUE_TYPE: Final = 9  # the first table version whose statistics have the type of the values
_DECIMAL_KIND: Final = re.compile(r"decimal\((\d+),(\d+)\)")
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
    """The list of partitions, or its changes; the key is ``__all_partitions__``."""
    names = {partition_name(path): False for path in there} | {partition_name(path): True for path in gone}
    return _files(ALL_PARTITIONS_TYPE, {name: (0, is_gone) for name, is_gone in names.items()})


def files_record(partition_path: str, sizes: Mapping[str, int], gone: Collection[str] = ()) -> Named:
    """(key, record) of the written files of a partition, with their full sizes, and of the deleted files."""
    files = {name: (size, False) for name, size in sizes.items()} | dict.fromkeys(gone, (0, True))
    return partition_name(partition_path), _files(FILES_TYPE, files)


def stats_record(partition_path: str, file_name: str, column: str, found: ColumnRange | None, version: int) -> Named:
    """(key, record) of a column's statistics in a file, in the form of a table version; ``found`` None: a deleted file."""
    key = column_stats_key(column, partition_path, file_name)
    return key, _stats(COLUMN_STATS_TYPE, file_name, column, found, version)


def partition_stats_record(partition_path: str, column: str, found: ColumnRange, version: int) -> Named:
    """(key, record) of a column's range in a commit's files of a partition, which readers merge with the range before."""
    key = column_id(column) + partition_id(partition_path)
    return key, _stats(PARTITION_STATS_TYPE, partition_path, column, found, version)


def bloom_record(partition_path: str, file_name: str, instant: str, bloom_text: str | None) -> Named:
    """(key, record) of a base file's bloom filter, as in its footer; None: the file is deleted."""
    kind = DYNAMIC_V0 if bloom_text is None else kind_of(bloom_text)
    member = {
        "type": kind, "timestamp": instant, "bloomFilter": (bloom_text or "").encode(), "isDeleted": bloom_text is None
    }  # fmt: skip
    return partition_id(partition_path) + file_id(file_name), {"type": BLOOM_TYPE, BLOOM_FILTER: member}


def encode_records(records: Mapping[str, Record], form: int) -> tuple[pa.Array, pa.Array]:
    """Keys, sorted by their bytes, and values (binary) of an HFile. ``form``: of the records (``record_schema``).

    A record loop, because there are few records for each file.
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
    # A range may be wider than the values, so its ends are not marked as tight bounds.
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
            digits = _DECIMAL_KIND.match(found.kind)
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
    digits = _DECIMAL_KIND.match(kind)
    _, old, new = _KINDS["decimal" if digits else kind]
    name = new if version >= _WITH_VALUE_TYPE else old
    if digits and name == "Bytes":
        value = unscaled_bytes(value)
    elif digits:
        value = decimal.Decimal(value).scaleb(-int(digits[2]), decimal.Context(prec=80))
    return (f"{_PACKAGE}{name}Wrapper", {"value": value})


# Places of keys in the record index. ``instant_ms``: time of the instant that put the key there, in ms since 1970.
PLACES: Final = pa.schema([
    ("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("instant_ms", pa.int64())
])  # fmt: skip

_RECORD_INDEX: Final = 5  # the record's type
_UUID, _LITERAL = 0, 1  # how a file id is stored
_NO_INDEX: Final = -1
_UUID_LENGTH: Final = 36
_SOME: Final = zigzag(1)  # the second branch of a union with null
_MOST_DIGITS: Final = 9  # of the counter after a UUID, which is an int


def encode_places(places: pa.Table, form: int) -> pa.Array:
    """The value (large binary) of each row of a table with the columns of ``PLACES``, without nulls. The key is not used.

    ``form``: of the record (``record_schema``).
    """
    columns = [places.column(name).combine_chunks() for name in PLACES.names[1:]]
    distinct, codes = _distinct(columns)
    partitions, file_ids, times = (column.take(distinct) for column in columns)
    return _encoded(partitions, file_ids, times, form).cast(pa.large_binary()).take(pa.array(codes))


def instant_ms(instant: str, utc: bool) -> int:
    """Milliseconds since 1970 of an instant, by its first 17 digits, in UTC or in this host's zone."""
    try:
        moment = datetime.strptime(instant[:14], "%Y%m%d%H%M%S")
        millis = int(instant[14:17] or "999")
    except ValueError:
        raise CorruptFileError(
            f"{instant!r} is not an instant time (14 or 17 digits); check the names in .hoodie"
        ) from None
    return int((moment.replace(tzinfo=UTC) if utc else moment.astimezone()).timestamp()) * 1000 + millis


def _distinct(columns: list[pa.Array]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """(a row of each distinct combination of values, the number of each row's combination)."""
    codes, kinds = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        own = column.dictionary_encode()
        count = len(own.dictionary) + 1
        if kinds * count >= 2**63:  # renumber the combinations so far: there are at most as many as rows
            codes = np.unique(codes, return_inverse=True)[1]
            kinds = len(codes)
        codes, kinds = codes * count + own.indices.to_numpy(), kinds * count
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    return pa.array(first), numbers


def _encoded(partitions: pa.Array, file_ids: pa.Array, times: pa.Array, form: int) -> pa.Array:
    ids = file_ids.dictionary_encode()
    # A loop over file groups: there are far fewer of them than records.
    parts = [_file_id(file_id) for file_id in ids.dictionary.to_pylist()]
    names = pa.array([name for name, _ in parts], pa.binary()).take(ids.indices)
    kinds = pa.array([kind for _, kind in parts], pa.binary()).take(ids.indices)
    head = bytes(5) + zigzag(0) + zigzag(_RECORD_INDEX) + bytes(3) + _SOME + _SOME  # meta columns, key, type, others
    tail = zigzag(0) * 2 if form >= _NEW else b""  # no position, no secondary index
    return pc.binary_join_element_wise(
        _const(head), prefixed(partitions), names, _const(_SOME), zigzags(times.to_numpy()), kinds, _const(tail),
        _const(b""),
    )  # fmt: skip


def _file_id(file_id: str) -> tuple[bytes, bytes]:
    """(the members with a file id, the member with its encoding)."""
    try:
        name, index = _uuid_and_index(file_id)
    except ValueError:
        literal = file_id.encode()
        return _members(-1, -1, _NO_INDEX, literal), zigzag(_LITERAL)
    return _members(_signed(name.int >> 64), _signed(name.int & (1 << 64) - 1), index, b""), zigzag(_UUID)


def _uuid_and_index(file_id: str) -> tuple[uuid.UUID, int]:
    """(UUID, counter) of a file id; ValueError when they would not give the same text."""
    text, digits = (
        (file_id, "") if len(file_id) <= _UUID_LENGTH else (file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH + 1 :])
    )
    name = uuid.UUID(text)
    index = int(digits) if digits else _NO_INDEX
    if file_id != (f"{name}-{index}" if digits else str(name)) or len(digits) > _MOST_DIGITS:
        raise ValueError(file_id)
    return name, index


def _members(high: int, low: int, index: int, literal: bytes) -> bytes:
    numbers = (_SOME + zigzag(number) for number in (high, low, index))
    return b"".join([*numbers, _SOME, zigzag(len(literal)), literal])


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _const(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())
