"""The Avro schema of a metadata table's records (HoodieMetadataRecord), as Hudi 0.15.0 and 1.2.0 have it.

Version 6 is written in the older form. The newer one adds a position to a key's place, bounds that are tight and the type of
the values to statistics, wrappers of dates and of several values, and secondary indexes.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

import fastavro

from tagstream.table.schema.schema import with_meta_avro

_STRING: Final = {"type": "string", "avro.java.string": "String"}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPED: Final = (
    ("BooleanWrapper", "boolean"), ("IntWrapper", "int"), ("LongWrapper", "long"), ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"), ("BytesWrapper", "bytes"), ("StringWrapper", _STRING), ("DateWrapper", "int"),
    ("DecimalWrapper", _DECIMAL), ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
)  # fmt: skip
_NEW: Final = 8  # the first table version with the newer form


def record_schema(version: int) -> dict[str, Any]:
    """The schema that commits carry: without the meta columns."""
    new = version >= _NEW
    wrappers, names = _wrappers(new)
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
        *((_field("isTightBound", "boolean", False), _optional("valueType", kind)) if new else ()),
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


@lru_cache
def commit_avro_json(version: int) -> str:
    """``record_schema`` as text."""
    return json.dumps(record_schema(version), separators=(",", ":"))


@lru_cache
def file_avro_json(version: int) -> str:
    """The schema of the records in files, as text: with the five meta columns in front."""
    return json.dumps(with_meta_avro(record_schema(version)), separators=(",", ":"))


@lru_cache
def parsed_schema(version: int) -> Any:
    """``file_avro_json`` as fastavro takes it."""
    return fastavro.parse_schema(json.loads(file_avro_json(version)))


def _wrappers(new: bool) -> tuple[list[Any], list[Any]]:
    """(the branches of a wrapped value as they are defined, the same by their names)."""
    defined = [_record(name, _field("value", avro)) for name, avro in _WRAPPED]
    if new:
        defined.append(_record("LocalDateWrapper", _field("value", "int")))
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
