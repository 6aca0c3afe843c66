"""The Avro schema of a metadata table's records (HoodieMetadataRecord), as Hudi 0.15.0 and 1.2.0 have it.

Version 6 is written in the oldest form. Hudi 1.0 added a position to a key's place, bounds that are tight to statistics, a
wrapper of dates, and secondary indexes; Hudi 1.1 the type of the values of statistics, and a wrapper of several values.

A form has the number of a table version, or one of its own where it is of no released version's writer. What a table has
is written on: hudi-rs 0.5.0 reads no metadata table whose blocks have different ones.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

import fastavro
import fastavro.schema

from tagstream.table.schema.schema import with_meta_avro

_STRING: Final = {"type": "string", "avro.java.string": "String"}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPED: Final = (
    ("BooleanWrapper", "boolean"), ("IntWrapper", "int"), ("LongWrapper", "long"), ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"), ("BytesWrapper", "bytes"), ("StringWrapper", _STRING), ("DateWrapper", "int"),
    ("DecimalWrapper", _DECIMAL), ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
)  # fmt: skip
_NEW: Final = 8  # the first table version with the newer form, which is that of Hudi 1.1
FORM_OF_1_0, FORM_BEFORE_1_1 = 70, 71  # of version 8 by Hudi 1.0, of version 9 by Hudi 1.1 before its release


def record_schema(form: int) -> dict[str, Any]:
    """The schema that commits carry: without the meta columns."""
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
    """Whether statistics do not tell the type of their values."""
    return form < _NEW or form in (FORM_OF_1_0, FORM_BEFORE_1_1)


@lru_cache(16)
def form_of(avro_json: str, version: int) -> int:
    """The form of the records that a schema without meta columns is of; the table version's own where it is not known."""
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
    """The schema of the records in files, as text: with the five meta columns in front."""
    return json.dumps(with_meta_avro(record_schema(form)), separators=(",", ":"))


@lru_cache
def parsed_schema(form: int) -> Any:
    """``file_avro_json`` as fastavro takes it."""
    return fastavro.parse_schema(json.loads(file_avro_json(form)))


def _wrappers(new: bool, *, several: bool) -> tuple[list[Any], list[Any]]:
    """(the branches of a wrapped value as they are defined, the same by their names)."""
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
