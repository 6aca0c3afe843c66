"""Key generators: record key and partition path of rows, as the classes of Hudi 0.15 make them.

Values in partition paths are escaped. A path that must never become a folder is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError
from tagstream.table.fields import column_of, is_missing, is_text
from tagstream.table.keys.generators import (
    GENERATORS,
    KeyKind,
    Times,
    class_spellings,
    default_generator,
    type_spellings,
)
from tagstream.table.keys.record_key import (
    EMPTY_PART,
    NULL_PART,
    check_type,
    collision,
    sql_timestamps,
    to_strings,
)
from tagstream.table.keys.time_partition import PREFIX, TimePartition

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_CODE = re.compile("%([0-9A-Fa-f]{2})")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MIXED = (
    "the partition columns are not in the rows of this table, and its path does not have one folder for each; "
    "hoodie.datasource.write.partitionpath.urlencode=true escapes the slash of a value"
)
_LONGEST_SEGMENT = 255  # bytes of a file name on Linux
_LONGEST_PATH = 1024  # with space for the table's path before it and for markers below it


def url_encode(values: pa.Array) -> pa.Array:
    """Replace the characters that Hive escapes by ``%XX`` (hoodie.datasource.write.partitionpath.urlencode).

    Space, ``}``, ``+``, ``&``, ``<`` and non-ASCII characters are not replaced.
    """
    return _each_distinct(values, lambda text: _ESCAPED.sub(lambda m: f"%{ord(m.group()):02X}", text))


def check_partition_path(paths: pa.Array, depth: int | None = None, fields: int = 0) -> pa.Array:
    """For every partition path the reason why it cannot be a folder of the table; null where it can.

    A value of the stream must not name a folder outside of the table, or one of Hudi's own folders. ``depth``: number
    of folders from the base path to a partition of the table, None while it is unknown. ``fields``: number of partition
    fields, 0 while it is unknown: a path with a null value may have one folder for each field at any depth.
    """
    return _each_distinct(paths, lambda path: _fault(path) or _other_depth(path, depth, fields))


def depth_of(path: str, fields: int) -> int | None:
    """Number of folders in a partition path; None for a path of a null value with one folder for each field."""
    segments = path.split("/") if path else []
    default = any(segment.rpartition("=")[2] == DEFAULT_PARTITION for segment in segments)
    return None if default and len(segments) == fields else len(segments)


def values_of_path(path: str, fields: Sequence[str]) -> tuple[str | None, ...] | None:
    """The texts of the partition columns in a path, as Hudi on Spark reads it; None where they cannot be read from it.

    A path with as many folders as fields: the text after ``=``, or the whole folder name, with ``%XX`` decoded whether
    or not the table uses URL encoding. The value of a single field is the whole deeper path, not decoded.
    """
    folders = path.split("/")
    if len(folders) == len(fields):
        return tuple(_value_of(folder) for folder in folders)
    return (path.removeprefix(f"{fields[0]}="),) if len(fields) == 1 else None


def lost_in_path(paths: pa.Array, fields: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Why a row's partition values cannot be read back from its path; null where they can.

    ``columns``: the values of the fields. Only text values are compared: other types are read from the text of the
    path.
    """
    encoded = paths.dictionary_encode()
    # A loop over distinct paths: there are far fewer partitions than records.
    found = [values_of_path(path or "", fields) for path in encoded.dictionary.to_pylist()]
    reason = pc.if_else(
        pa.array([values is None for values in found], pa.bool_()), _MIXED, pa.scalar(None, pa.string())
    )
    reason = reason.take(encoded.indices)
    for place, (name, column) in enumerate(zip(fields, columns, strict=True)):
        if not is_text(column.type):
            continue
        told = pa.array([values and values[place] for values in found], pa.string()).take(encoded.indices)
        own = pc.fill_null(column.cast(pa.string()), "")
        other = pc.not_equal(pc.fill_null(told, ""), own)
        text = (
            f"partition column {name!r} is not in the rows of this table, and this value cannot be read back from its path; "
            "hoodie.datasource.write.partitionpath.urlencode=true makes paths that keep it"
        )
        reason = pc.coalesce(reason, pc.if_else(other, text, pa.scalar(None, pa.string())))
    return reason


def _value_of(folder: str) -> str | None:
    value = folder.partition("=")[2] if "=" in folder else folder
    if value in ("", DEFAULT_PARTITION):
        return None
    return _CODE.sub(lambda match: chr(int(match[1], 16)), value)


def _other_depth(path: str, depth: int | None, fields: int) -> str | None:
    found = depth_of(path, fields)
    if depth is None or found is None or found == depth:
        return None
    folders = f"{found} folder{'s' if found > 1 else ''} deep"
    return (
        f"partition path {path[:80]!r} is {folders}, the table's partitions are {depth}: readers do not find "
        "a partition inside another"
    )


def _fault(path: str) -> str | None:
    if path == "":
        return None
    if _CONTROL.search(path):
        return f"partition path {path!r} has a control character"
    if "\\" in path:
        return f"partition path {path!r} has a backslash"
    if path.startswith("/"):
        return f"partition path {path!r} is absolute"
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            return f"partition path {path!r} has the segment {segment!r}"
        if segment.startswith(".hoodie"):
            return f"partition path {path!r} has the segment {segment!r}, a name of Hudi's own"
        if len(segment.encode("utf-8")) > _LONGEST_SEGMENT:
            return f"partition path {path[:80]!r}... has a segment of more than {_LONGEST_SEGMENT} bytes"
    if len(path.encode("utf-8")) > _LONGEST_PATH:
        return f"partition path {path[:80]!r}... has more than {_LONGEST_PATH} bytes"
    return None


def _each_distinct(values: pa.Array, function: Callable[[str], str | None]) -> pa.Array:
    encoded = values.dictionary_encode()
    # A loop over distinct values: there are far fewer partitions than records (measured: 1 us a value).
    results = [None if value is None else function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, pa.string()).take(encoded.indices)


@dataclass(frozen=True)
class KeyGenerator:
    """Rules that make record keys and partition paths of rows; make one with ``create``.

    ``name_single_key``: the complex generator with one key field gives ``id:k1``, as Hudi up to 0.14.0 and from 1.1 on
    does, and not ``k1`` (0.14.1 to 1.0). ``consistent_timestamps``: see ``record_key.to_strings``. ``sql_times``:
    partition paths have timestamps as Spark SQL writes them (``2024-01-05 18%3A00%3A00`` in UTC). ``times``: how values
    of ``time_fields`` (all partition fields of the TIMESTAMP generator, some of the CUSTOM one) become paths.
    """

    kind: KeyKind
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    hive_style: bool = False
    url_encode: bool = False
    name_single_key: bool = False
    consistent_timestamps: bool = False
    time_fields: tuple[str, ...] = ()
    times: TimePartition | None = None
    sql_times: bool = False

    @classmethod
    def create(
        cls,
        kind: str | None,
        record_key_fields: Sequence[str],
        partition_fields: Sequence[str],
        hive_style: bool = False,
        url_encode: bool = False,
        *,
        name_single_key: bool = False,
        consistent_timestamps: bool = False,
        time_fields: Sequence[str] = (),
        times: TimePartition | None = None,
        sql_times: bool = False,
    ) -> Self:
        """A generator of this kind or class name; None or an empty one: the kind that Hudi infers from the fields.

        Raises ConfigError for unsupported kinds and for fields that do not fit the kind.
        """
        keys = tuple(name.strip() for name in record_key_fields if name.strip())
        partitions = tuple(name.strip() for name in partition_fields if name.strip())
        found = _kind(kind) if kind else default_generator(keys, partitions).kind
        facts = GENERATORS[found]
        if not keys:
            raise ConfigError("hoodie.datasource.write.recordkey.field names no field; a record needs a key")
        if facts.one_field and (len(keys) != 1 or len(partitions) != 1):
            raise ConfigError(
                f"the {found.value} key generator takes one key and one partition field, not {list(keys)} and "
                f"{list(partitions)}; set hoodie.datasource.write.keygenerator.class to Complex, Custom or Nonpartitioned"
            )
        timed = {Times.NONE: (), Times.ALL: partitions, Times.BY_KIND: tuple(time_fields)}[facts.times]
        if timed and times is None:
            raise ConfigError(
                f"the {found.value} key generator makes partition paths of the times in {', '.join(timed)}; set "
                f"{PREFIX}timestamp.type and {PREFIX}output.dateformat"
            )
        if facts.partitions is not None and facts.partitions is not bool(partitions):
            raise ConfigError(
                f"the {found.value} key generator does not fit the partition fields {list(partitions)}; "
                "change hoodie.datasource.write.keygenerator.class or hoodie.datasource.write.partitionpath.field"
            )
        plain = (hive_style, url_encode, name_single_key, consistent_timestamps)
        return cls(found, keys, partitions, *plain, timed, times if timed else None, sql_times)

    def check(self, schema: pa.Schema, *, digits: bool = False) -> None:
        """Raise ConfigError when a field is not in the schema or has a type that cannot be a key.

        ``digits``: the field of a time may be text that has digits only.
        """
        for name in (*self.record_key_fields, *self.partition_fields):
            kind = column_of(schema.empty_table(), name).type
            if name in self.time_fields and self.times is not None:
                self.times.check(name, kind, digits=digits)
            if name not in self.time_fields or name in self.record_key_fields:
                check_type(name, kind)

    def record_keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Record key of every row; null where ``key_errors`` has a reason."""
        if self._is_plain:
            values = self._values(rows, self.record_key_fields[0])
            return pc.if_else(is_missing(values), None, values)
        columns = [self._values(rows, name) for name in self.record_key_fields]
        parts = [
            pc.binary_join_element_wise(f"{name}:", pc.if_else(pc.equal(filled, ""), EMPTY_PART, filled), "")
            for name, filled in zip(
                self.record_key_fields, (pc.fill_null(values, NULL_PART) for values in columns), strict=True
            )
        ]
        keys = pc.binary_join_element_wise(*parts, ",")
        return pc.if_else(_all_missing(columns), None, keys)

    def key_errors(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Why a row has no record key; null where it has one."""
        columns = [column_of(rows, name) for name in self.record_key_fields]
        good = pa.scalar(None, pa.string())
        if len(columns) > 1:
            names = ", ".join(self.record_key_fields)
            return pc.if_else(_all_missing(columns), f"all record key fields ({names}) are null or empty", good)
        name = self.record_key_fields[0]
        empty = pc.if_else(is_missing(columns[0]), f"record key field '{name}' is empty", good)
        return pc.if_else(pc.is_null(columns[0]), f"record key field '{name}' is null", empty)

    def collisions(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Why the composite key of a row may equal the key of another row; null where it cannot. See ``collision``."""
        reason = pa.nulls(rows.num_rows, pa.string())
        names = self.record_key_fields
        for place, name in enumerate(names if len(names) > 1 else ()):
            values = column_of(rows, name)
            if is_text(values.type):
                reason = pc.coalesce(reason, collision(names, place, values.cast(pa.string())))
        return reason

    def partition_paths(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Partition path of every row.

        A null or empty value, and a value that should be a time but is not one, is ``__HIVE_DEFAULT_PARTITION__``. A
        null of a time field has the path of Hudi's default time.
        """
        if not self.partition_fields:
            return pa.repeat(pa.scalar("", pa.string()), rows.num_rows)
        segments = [self._segment(rows, name) for name in self.partition_fields]
        return segments[0] if len(segments) == 1 else pc.binary_join_element_wise(*segments, "/")

    def partition_errors(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Why a row has no partition path; null where it has one. Only a value that should be a time and is not has none."""
        reason = pa.nulls(rows.num_rows, pa.string())
        for name in self.time_fields:
            if self.times is not None:
                reason = pc.coalesce(reason, self.times.paths(column_of(rows, name))[1])
        return reason

    def lost_values(self, rows: pa.Table | pa.RecordBatch, paths: pa.Array) -> pa.Array:
        """Why a row's partition fields cannot be read back from its path; null where they can (``lost_in_path``)."""
        return lost_in_path(paths, self.partition_fields, [column_of(rows, name) for name in self.partition_fields])

    def lacks_partition(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Whether a partition field of a row is null or empty text, as in a delete that has only its key."""
        missing = [is_missing(column_of(rows, name)).to_numpy(zero_copy_only=False) for name in self.partition_fields]
        return pa.array(np.logical_or.reduce(missing) if missing else np.zeros(rows.num_rows, np.bool_), pa.bool_())

    @property
    def least_depth(self) -> int:
        """Folders from the base path to a partition whose values have no slashes."""
        timed = self.times.depth if self.times is not None and not self.url_encode else 1
        return sum(timed if name in self.time_fields else 1 for name in self.partition_fields)

    def depth(self, schema: pa.Schema) -> int | None:
        """Folders from the base path to a partition; None when a text value with slashes may add folders."""
        plain = (name for name in self.partition_fields if name not in self.time_fields)
        texts = (is_text(column_of(schema.empty_table(), name).type) for name in plain)
        return self.least_depth if self.url_encode or not any(texts) else None

    @property
    def _is_plain(self) -> bool:
        """Whether the record key is the value of the one key field, without the field's name."""
        return len(self.record_key_fields) == 1 and not (self.kind is KeyKind.COMPLEX and self.name_single_key)

    def _segment(self, rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
        if name in self.time_fields and self.times is not None:
            values = self.times.paths(column_of(rows, name))[0]
        else:
            values = self._values(rows, name)
        missing, is_sql = is_missing(values), self.sql_times and pa.types.is_timestamp(column_of(rows, name).type)
        if is_sql and name not in self.time_fields:
            values = sql_timestamps(column_of(rows, name))
        if self.url_encode or is_sql:
            values = url_encode(values)
        values = pc.if_else(missing, DEFAULT_PARTITION, values)
        return pc.binary_join_element_wise(f"{name}=", values, "") if self.hive_style else values

    def _values(self, rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
        return to_strings(name, column_of(rows, name), self.consistent_timestamps)


def _kind(text: str) -> KeyKind:
    """The kind of a type or a class, however it is written."""
    name = text.strip().rpartition(".")[2].upper()
    found = type_spellings().get(name) or class_spellings().get(name)
    if found is None:
        names = [facts.name for facts in GENERATORS.values()]
        raise ConfigError(
            f"hoodie.datasource.write.keygenerator.class={text!r} is not supported; use {', '.join(names[:-1])} or "
            f"{names[-1]}"
        )
    return KeyKind(found)


def _all_missing(columns: Sequence[pa.Array]) -> pa.Array:
    missing = [is_missing(values).to_numpy(zero_copy_only=False) for values in columns]
    return pa.array(np.logical_and.reduce(missing), pa.bool_())
