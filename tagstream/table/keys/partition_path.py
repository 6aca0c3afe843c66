"""Partition paths: escaping of values, and what must never become a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.fields import is_text

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_CODE = re.compile("%([0-9A-Fa-f]{2})")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MIXED = (
    "the partition columns are not in the rows of this table, and its path has not one folder for each; "
    "hoodie.datasource.write.partitionpath.urlencode=true keeps the slash of a value out of it"
)
_LONGEST_SEGMENT = 255  # bytes of a file name on Linux
_LONGEST_PATH = 1024  # leaves room for the table's own path and for markers below it


def url_encode(values: pa.Array) -> pa.Array:
    """Values with the characters Hive escapes as ``%XX`` (hoodie.datasource.write.partitionpath.urlencode).

    Space, ``}``, ``+``, ``&``, ``<`` and everything that is not ASCII stay.
    """
    return _each_distinct(values, lambda text: _ESCAPED.sub(lambda m: f"%{ord(m.group()):02X}", text))


def check_partition_path(paths: pa.Array, depth: int | None = None, fields: int = 0) -> pa.Array:
    """For every partition path the reason why it can be no folder of the table; null where it is good.

    A value of the stream must not be able to name a folder outside of the table, or one of Hudi's own. ``depth``: how many
    folders the table's partitions lie below the base path, ``fields``: how many a path has when no value makes several; None
    and 0 while that is open.
    """
    return _each_distinct(paths, lambda path: _fault(path) or _other_depth(path, depth, fields))


def depth_of(path: str, fields: int) -> int | None:
    """Folders from the base path to a partition; None for one of a null value, which may be at ``fields`` anyway."""
    segments = path.split("/") if path else []
    default = any(segment.rpartition("=")[2] == DEFAULT_PARTITION for segment in segments)
    return None if default and len(segments) == fields else len(segments)


def values_of_path(path: str, fields: Sequence[str]) -> tuple[str | None, ...] | None:
    """The texts of the partition columns that a path names, as Hudi on Spark reads it; None where it does not tell them.

    A path of as many folders as there are fields: what is behind ``=``, or all of it, with ``%XX`` as the character that it
    stands for, whatever the table says of URL encoding. The one field of a deeper path has all of it, as it is.
    """
    folders = path.split("/")
    if len(folders) == len(fields):
        return tuple(_value_of(folder) for folder in folders)
    return (path.removeprefix(f"{fields[0]}="),) if len(fields) == 1 else None


def lost_in_path(paths: pa.Array, fields: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Why a row's partition values cannot be read back from its path; null where they can.

    ``columns``: the values of the fields; only texts can differ from what their path says, others are read as its texts.
    """
    encoded = paths.dictionary_encode()
    # A loop over distinct paths: partitions are few beside records.
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
            f"partition column {name!r} is not in the rows of this table, and its path does not give this value back; "
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
    # A loop over distinct values: partitions are few beside records (measured: 1 us a value).
    results = [None if value is None else function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, pa.string()).take(encoded.indices)
