"""CSV files of the source: their records become lines of JSON, which the decoder of JSON reads by the table's schema.

So a number in a CSV file is as strict as a number in JSON, and a bad record is in the quarantine with its fields. The
columns are those of the header, by name, or those of the schema, by place. As in Spark's reader an empty field, and one
that equals ``nullValue``, is null.

The position of a record is its first byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pcsv

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.csv_text import (
    CsvDialect,
    Offsets,
    fields_of,
    is_regular,
    not_utf8,
    quotes_of,
    record_ends,
)
from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.record_format import FAULT
from tagstream.streaming.source.source_file import DamagedFileError, FilePart, SourceFile, content
from tagstream.table.storage.storage import Storage

YOUNG_MS = 60_000  # a last line without a line break may still be written
_BLOCK = 8 << 20
_LONGEST = 16 << 20  # bytes of a record
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_TO_ESCAPE = re.compile(rb'["\\\x00-\x1f]')
_MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark, which some programs write first


@dataclass(frozen=True)
class CsvFiles:
    """The form of CSV files (``source_file.FileForm``). ``columns``: those of files without a header.

    ``trims``: blanks at the beginning and at the end of a field are removed.
    """

    dialect: CsvDialect = field(default_factory=CsvDialect)
    header: bool = False
    columns: tuple[str, ...] = ()
    null_value: bytes = b""
    empty_value: bytes = b""
    trims: tuple[bool, bool] = (False, False)
    name = "CSV"
    magic = b""
    grows = True
    compressed = True

    def whole_part(self, storage: Storage, file: SourceFile, start: int, now_ms: int) -> tuple[int, int]:
        """The whole records. An old last line without a line break is whole."""
        end = count = 0
        if start and not self._continues(storage, file.path, start):
            raise SourceError(
                f"source file {storage.where(file.path)} was read up to byte {start:,}, where its last line had no line "
                "break, and this line has grown since; write whole lines, or give the file a new name"
            )
        rest = b""
        for at, data, ends in self._records_of(storage, file.path, start, file.size):
            end, count = (at + int(ends[-1]), count + len(ends)) if len(ends) else (end, count)
            rest = data[int(ends[-1]) if len(ends) else 0 :]
        end = max(end, start)
        if rest.strip() and now_ms - file.mtime_ms >= YOUNG_MS and len(record_ends(rest + b"\n", self.dialect)):
            end, rest, count = file.size, b"", count + 1
        if self.header and start == 0 and count <= 1:
            return start, len(rest)  # there is only a header
        return end, len(rest) if rest.strip() else 0

    def cuts(self, storage: Storage, path: str, start: int, end: int, step: int) -> list[int]:
        """The beginnings of records, at least ``step`` bytes apart."""
        found: list[int] = []
        for at, _, ends in self._records_of(storage, path, start, end):
            found += [place for place in _each(ends + at, found[-1] if found else start, step) if place < end]
        return found

    def records(
        self, storage: Storage, part: FilePart, columns: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The records of a part, see ``FileForm.records``: each as a line of JSON with its fields among ``columns``."""
        path, start, end, codec = part.path, part.start, part.end, part.codec
        blocks = _blocks(storage, path, start, end) if codec is None else content(storage, path, codec, end)
        names = self.columns
        if self.header and start:
            names = self._names(storage, path)
        first = self.header and start == 0
        for at, data, ends in _whole_records(blocks, start, self.dialect, last=True):
            if first and len(ends):
                names, skip = self._header(data[: int(ends[0])], storage.where(path)), int(ends[0])
                data, ends, at, first = data[skip:], ends[1:] - skip, at + skip, False
            if at == 0 and data.startswith(_MARK):
                data, ends, at = data[len(_MARK) :], ends - len(_MARK), len(_MARK)
            if len(ends):
                yield from self._parsed(data, at, ends, names, columns)

    def _continues(self, storage: Storage, path: str, start: int) -> bool:
        """Whether the byte after a line that was read is the beginning of a new line."""
        return storage.read_range(path, start - 1, 1) == b"\n" or storage.read_range(path, start, 1) in (b"\n", b"\r")

    def _records_of(self, storage: Storage, path: str, start: int, end: int) -> Iterator[tuple[int, bytes, Offsets]]:
        """(first byte, bytes, ends of the whole records) of blocks of a file. SourceError for an endless record."""
        for at, data, ends in _whole_records(_blocks(storage, path, start, end), start, self.dialect, last=False):
            if len(data) - (int(ends[-1]) if len(ends) else 0) > _LONGEST:
                begin = at + (int(ends[-1]) if len(ends) else 0)
                raise SourceError(
                    f"source file {storage.where(path)}: the record at byte {begin:,} does not end within {_LONGEST:,} "
                    "bytes; probably a quote is not closed: correct the file, or hoodie.streamer.csv.quote and .escape"
                )
            yield at, data, ends

    def _names(self, storage: Storage, path: str) -> tuple[str, ...]:
        """The columns of a file's header, for a split that does not begin with it."""
        size = storage.size(path)
        for _, data, ends in _whole_records(
            _blocks(storage, path, 0, min(size, _LONGEST)), 0, self.dialect, last=False
        ):
            if len(ends):
                return self._header(data[: int(ends[0])], storage.where(path))
        raise DamagedFileError("it has no header line")

    def _header(self, line: bytes, where: str) -> tuple[str, ...]:
        found = fields_of(_content(line.removeprefix(_MARK)), self.dialect)
        try:
            names = [] if isinstance(found, str) else [text.decode().strip() for text, _ in found]
        except UnicodeDecodeError as e:
            found = f"not UTF-8: {e}"
        if isinstance(found, str):
            raise SourceError(f"source file {where}: its header cannot be read: {found}; correct the file")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SourceError(
                f"source file {where}: its header has column {twice[0]!r} more than once; correct the file"
            )
        return tuple(names)

    def _parsed(
        self, data: bytes, at: int, ends: Offsets, names: tuple[str, ...], wanted: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Records of successive bytes, without blank lines and comments."""
        starts = np.concatenate(([0], ends[:-1]))
        array = np.frombuffer(data, np.uint8)
        until = ends - (array[ends - 1] == 10)
        until -= (until > starts) & (array[np.maximum(until - 1, 0)] == 13)
        kept = until > starts
        if self.dialect.comment:
            kept &= array[np.minimum(starts, len(array) - 1)] != self.dialect.comment[0]
        starts, until, ends = starts[kept], until[kept], ends[kept]
        if not len(starts):
            return
        columns, faults = self._columns(data, starts, until, ends, names)
        kinds = {name: wanted[name] for name in names if name in wanted}
        value = json_lines({name: columns[name] for name in kinds}, kinds, len(starts))
        bad = ~faults.is_null().to_numpy(zero_copy_only=False)
        if bad.any():
            texts = [data[s:e] if b else None for s, e, b in zip(starts.tolist(), until.tolist(), bad, strict=True)]
            value = pc.if_else(pa.array(bad), pa.array(texts, pa.binary()), value)
        yield pa.RecordBatch.from_pydict({"value": value, FAULT: faults}), pa.array(starts + at)

    def _columns(
        self, data: bytes, starts: Offsets, until: Offsets, ends: Offsets, names: tuple[str, ...]
    ) -> tuple[dict[str, pa.Array], pa.Array]:
        """(the columns, why a record cannot be read). Arrow's reader takes what it reads as Spark's does."""
        count = len(starts)
        slow = self._needs_scan(data, starts)
        parts: list[tuple[Offsets, list[pa.Array]]] = []
        reasons: dict[int, str] = {}
        fast = np.flatnonzero(~slow)
        if len(fast):
            table, wrong = self._by_arrow(data, starts, ends, fast, names)
            if table is None:
                slow[:] = True
            else:
                expected = f"where the {'header has' if self.header else 'schema has'} {len(names)}"
                reasons |= {int(fast[n]): f"has {fields} fields, {expected} columns" for n, fields in wrong.items()}
                good = np.delete(fast, list(wrong)) if wrong else fast
                parts.append((good, [column.combine_chunks() for column in table.columns]))
        at = np.flatnonzero(slow)
        if len(at):
            rows, misread = self._one_by_one(data, starts, until, at, names)
            reasons |= misread
            good = np.array([n for n in at.tolist() if n not in misread], np.int64)
            parts.append((good, [pa.array([row[i] for row in rows], pa.binary()) for i in range(len(names))]))
        place = np.full(count, -1, np.int64)
        place[np.concatenate([rows for rows, _ in parts])] = np.arange(sum(len(rows) for rows, _ in parts))
        take = pa.array(place, mask=place < 0)
        columns = {}
        for i, name in enumerate(names):
            column = pa.concat_arrays([arrays[i].cast(pa.binary()) for _, arrays in parts])
            columns[name] = column.take(take)
        faults: list[str | None] = [None] * count
        for n, reason in reasons.items():
            faults[n] = reason
        return columns, pa.array(faults, pa.string())

    def _needs_scan(self, data: bytes, starts: Offsets) -> np.ndarray:
        """Mask of the records with text that Arrow's reader reads in another way, or cannot name in an error."""
        dialect, count = self.dialect, len(starts)
        if any(self.trims) or self.empty_value:
            return np.ones(count, np.bool_)
        slow = np.zeros(count, np.bool_)
        slow[not_utf8(data, starts)] = True
        if not dialect.quote or dialect.quote not in data:
            return slow
        quotes = quotes_of(data, dialect)
        if len(quotes) % 2 or not is_regular(data, quotes, dialect):
            return np.ones(count, np.bool_)
        if not dialect.has_escape or dialect.escape not in data:
            return slow
        array = np.frombuffer(data, np.uint8)
        escapes = np.flatnonzero(array[:-1] == dialect.escape[0])
        after = array[escapes + 1]
        odd = escapes[(after == dialect.escape[0]) | (after == dialect.quote[0])]
        slow[np.searchsorted(starts, odd, "right") - 1] = True
        return slow

    def _by_arrow(
        self, data: bytes, starts: Offsets, ends: Offsets, rows: Offsets, names: tuple[str, ...]
    ) -> tuple[pa.Table | None, dict[int, int]]:
        """(the columns of records, the number of fields of each record with another number); None where Arrow cannot."""
        if len(rows) == len(starts) and (ends[:-1] == starts[1:]).all():
            text = data[int(starts[0]) : int(ends[-1])]
        else:
            text = b"".join(data[s:e] for s, e in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True))
        wrong: dict[int, int] = {}

        def skip(row: pcsv.InvalidRow) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        dialect = self.dialect
        try:
            table = pcsv.read_csv(
                pa.BufferReader(text),
                pcsv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
                pcsv.ParseOptions(
                    delimiter=dialect.sep.decode("latin-1"),
                    quote_char=dialect.quote.decode("latin-1") or False,
                    double_quote=True,
                    escape_char=False,
                    newlines_in_values=True,
                    invalid_row_handler=skip,
                ),
                pcsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()),
                    check_utf8=False,
                    null_values=["", self.null_value.decode()] if self.null_value else [""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=not self.null_value,
                ),
            )
        except pa.ArrowInvalid:
            return None, {}
        if table.num_rows + len(wrong) != len(rows):
            return None, {}
        if self.null_value:
            table = pa.table([_without(column, self.null_value) for column in table.columns], names=table.column_names)
        return table, wrong

    def _one_by_one(
        self, data: bytes, starts: Offsets, until: Offsets, rows: Offsets, names: tuple[str, ...]
    ) -> tuple[list[list[bytes | None]], dict[int, str]]:
        """(the fields of good records, the reasons of bad ones). A loop over records: only those that need it."""
        good: list[list[bytes | None]] = []
        reasons: dict[int, str] = {}
        for n in rows.tolist():
            found = fields_of(data[int(starts[n]) : int(until[n])], self.dialect)
            if isinstance(found, str):
                reasons[n] = found
            elif len(found) != len(names):
                what = "header" if self.header else "schema"
                reasons[n] = f"has {len(found)} fields, where the {what} has {len(names)} columns"
            else:
                good.append([self._value(*pair) for pair in found])
        return good, reasons

    def _value(self, text: bytes, quoted: bool) -> bytes | None:
        if not quoted:
            text = text.lstrip(b" \t") if self.trims[0] else text
            text = text.rstrip(b" \t") if self.trims[1] else text
            if not text:
                return None
        text = text or self.empty_value
        return None if text == self.null_value else text


def _each(places: Offsets, at: int, step: int) -> list[int]:
    """Of ``places`` (rising) those that are at least ``step`` after the one before, the first one after ``at``."""
    out: list[int] = []
    while (n := int(np.searchsorted(places, at + step))) < len(places):
        at = int(places[n])
        out.append(at)
    return out


def _without(column: pa.ChunkedArray, value: bytes) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(column, pa.scalar(value, pa.binary())), pa.scalar(None, pa.binary()), column)


def _content(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _blocks(storage: Storage, path: str, start: int, end: int) -> Iterator[bytes]:
    at = start
    while at < end:
        block = storage.read_range(path, at, min(_BLOCK, end - at))
        if not block:
            raise DamagedFileError(f"it ends at byte {at:,}, but had {end:,} bytes before")
        yield block
        at += len(block)


def _whole_records(
    blocks: Iterable[bytes], start: int, dialect: CsvDialect, *, last: bool
) -> Iterator[tuple[int, bytes, Offsets]]:
    """(first byte, bytes, ends of the whole records in them) of successive bytes; what follows them comes again with the
    next ones. ``last``: the rest after the last line break is a record.
    """
    rest, at = b"", start
    for block in blocks:
        data = rest + block
        ends = record_ends(data, dialect)
        yield at, data, ends
        cut = int(ends[-1]) if len(ends) else 0
        rest, at = data[cut:], at + cut
    if last and rest:
        yield at, rest, np.array([len(rest)], np.int64)


def json_lines(columns: Mapping[str, pa.Array], kinds: Mapping[str, pa.DataType], count: int) -> pa.Array:
    """Objects of JSON (binary) with the texts of ``columns`` (binary, null for null) as the columns of ``kinds``.

    A text that is a number of JSON has no quotes where the column is one; so Arrow's reader takes whole columns.
    """
    parts: list[pa.Array | bytes] = []
    for i, (name, column) in enumerate(columns.items()):
        parts += [f"{',' if i else '{'}{json.dumps(name)}:".encode(), _json_values(column, kinds[name])]
    if not parts:
        return pa.repeat(pa.scalar(b"{}", pa.binary()), count)
    made: pa.Array = pc.binary_join_element_wise(*parts, b"}", b"")
    return made


def _json_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    t = pa.types
    bare: pa.Array | None = None
    if t.is_boolean(kind):
        lower = pc.ascii_lower(column.cast(pa.string(), safe=False)).cast(pa.binary()) if _is_text(column) else column
        bare = pc.is_in(lower, value_set=pa.array([b"true", b"false"], pa.binary()))
        column = pc.if_else(bare, lower, column)
    elif t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        bare = pc.match_substring_regex(column, _NUMBER)
    if bare is not None and mask_of(pc.or_kleene(bare, column.is_null())).all():
        return pc.fill_null(column, b"null")
    texts = pc.binary_join_element_wise(b'"', _escaped(column), b'"', b"")
    if bare is not None:
        texts = pc.if_else(bare, column, texts)
    return pc.fill_null(texts, b"null")


def _is_text(column: pa.Array) -> bool:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _escaped(column: pa.Array) -> pa.Array:
    """Texts with JSON's escapes."""
    if not len(column) or not _TO_ESCAPE.search(_bytes_of(column)):
        return column
    for char, escape in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\r", b"\\r"), (b"\t", b"\\t")):
        column = pc.replace_substring(column, char, escape)
    for number in range(0x20):  # only the control characters that occur
        char = bytes([number])
        if char in _bytes_of(column):
            column = pc.replace_substring(column, char, b"\\u%04x" % number)
    return column


def _bytes_of(column: pa.Array) -> bytes:
    """The bytes of all texts of a column."""
    texts = column.drop_null()
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(whole, b"")[0].as_py()
    return joined
