"""The Avro reader that makes columns, and schemas in the form that it reads.

polars-avro (the extra ``avro``) has a reader of container files into Arrow, whole columns at a time. Its functions read
to the end of the file, and never end where a block has bytes behind its last record. So this module uses the reader below
them, which stops after a number of records.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.log_format import zigzag
from tagstream.table.schema.schema import full_name

SYNC = b"tagstream-datums"
_MOST_TYPES = 2_000


class AvroReader:
    """Reads container files whose schema is one of :func:`readable_schema`.

    Methods raise ValueError for content that cannot be read.
    """

    def __init__(self) -> None:
        """ConfigError where polars-avro is not installed."""
        try:
            from polars_avro._avro_rs import AvroSource
        except ImportError:
            raise ConfigError("reading Avro needs polars-avro: pip install 'tagstream[avro]'") from None
        self._source = AvroSource

    def types(self, header: bytes) -> pa.StructType:
        """The columns of a file that begins with ``header``."""
        try:
            empty = pa.record_batch(self._open(header).schema())
        except Exception as error:
            raise ValueError(f"not an Avro schema that can be read into columns: {error}") from error
        return pa.struct([pa.field(f.name, simple_type(f.type)) for f in empty.schema])

    def read(self, parts: Sequence[bytes | memoryview], count: int, columns: list[str] | None = None) -> pa.StructArray:
        """The first ``count`` records of a file with these bytes, or only these columns of them.

        Bytes after them are not looked at.
        """
        if not count:
            raise ValueError("no records are requested")
        try:
            batch = pa.record_batch(next(self._open(b"".join(parts)).batch_iter(count, columns)))
            if batch.num_rows != count:
                raise ValueError(f"{batch.num_rows:,} records, not {count:,}")
            fields = [pa.field(f.name, simple_type(f.type)) for f in batch.schema]
            found = [column.cast(f.type) for column, f in zip(batch.columns, fields, strict=True)]
            return pa.StructArray.from_arrays(found, fields=fields)
        except Exception as error:  # the reader raises several kinds, of which some are SystemError and StopIteration
            raise ValueError(f"not Avro records of the schema: {type(error).__name__} {error}") from error

    def _open(self, content: bytes) -> Any:
        @contextmanager
        def file() -> Iterator[BinaryIO]:
            yield io.BytesIO(content)

        return self._source([file], False, False)


def container_block(records: bytes | memoryview, count: int) -> tuple[bytes | memoryview, ...]:
    """A block of a container file that begins with :func:`container_header`, in parts."""
    return zigzag(count), zigzag(len(records)), records, SYNC


def container_header(schema: dict[str, Any]) -> bytes:
    """The begin of a container file without compression, whose blocks end with :data:`SYNC`."""
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [], sync_marker=SYNC)
    return out.getvalue()


def plain_schema(avro: Any) -> Any:
    """A schema without logical types, namespaces and additional attributes, for the same bytes.

    A type that is named again is inserted again. (Readers do not agree on the namespace of a name without one.)
    ConfigError for a type that contains itself.
    """
    return _Plain().of(avro, "")


def readable_schema(avro: dict[str, Any]) -> Any:
    """A schema as of :func:`plain_schema`. ConfigError also for a union of several types: it cannot be one column."""
    plain = plain_schema(avro)
    several = next(unions_of_types(plain, str(avro.get("name", ""))), None)
    if several is not None:
        raise ConfigError(f"field {several} is a union of several types, and a column of a table has one")
    return plain


class _Plain:
    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}  # by full name: the type, and the namespace around it
        self._open: list[str] = []
        self._count = 0

    def of(self, avro: Any, space: str) -> Any:
        if isinstance(avro, list):
            branches = [self.of(branch, space) for branch in avro]
            # The bytes of a union of one type begin with its number; the reader only has unions of a type and null.
            return branches if len(branches) != 1 else [*branches, "int" if branches == ["null"] else "null"]
        if isinstance(avro, str):
            known = self._named.get(avro) or self._named.get(f"{space}.{avro}")
            return avro if known is None else self.of(*known)
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, space)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return {"type": kind, part: self.of(avro[part], space)}
        return self._of_named(avro, space) if kind in ("record", "error", "enum", "fixed") else kind

    def _of_named(self, avro: Any, space: str) -> dict[str, Any]:
        inner, full = full_name(avro, space)
        self._named[full] = (avro, space)
        self._count += 1
        if full in self._open:
            raise ConfigError(f"the Avro schema's type {full} contains itself, so it cannot be a row of a table")
        if self._count > _MOST_TYPES:
            raise ConfigError(f"the Avro schema uses its types more than {_MOST_TYPES:,} times")
        out = {"type": "record" if avro["type"] == "error" else avro["type"], "name": f"t{self._count}"}
        if avro["type"] in ("enum", "fixed"):
            return out | {part: avro[part] for part in ("symbols", "size") if part in avro}
        self._open.append(full)
        fields = [{"name": f["name"], "type": self.of(f["type"], inner)} for f in avro["fields"]]
        self._open.pop()
        return out | {"fields": fields}


def unions_of_types(plain: Any, path: str) -> Iterator[str]:
    """Dotted paths of the unions of several types other than null: the reader makes no column of one.

    ``plain``: a schema of :func:`plain_schema`, whose own path is ``path``.
    """
    if isinstance(plain, list):
        others = [branch for branch in plain if branch != "null"]
        if len(others) > 1:
            yield path
        else:
            for branch in others:
                yield from unions_of_types(branch, path)
    elif isinstance(plain, dict):
        for field in plain.get("fields", ()):
            yield from unions_of_types(field["type"], f"{path}.{field['name']}")
        for part in ("items", "values"):
            if part in plain:
                yield from unions_of_types(plain[part], path)


def simple_type(kind: pa.DataType) -> pa.DataType:
    """The type with texts in place of a dictionary of them, which is what the reader makes of an enum."""
    t = pa.types
    if t.is_dictionary(kind):
        return pa.string()
    if t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, simple_type(f.type)) for f in kind])
    if t.is_list(kind):
        return pa.list_(simple_type(kind.value_type))
    if t.is_map(kind):
        return pa.map_(pa.string(), simple_type(kind.item_type))
    return kind
