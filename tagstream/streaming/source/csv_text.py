"""Records in the text of CSV: where they end, and their fields (RFC 4180, and the escape character of Spark's reader).

A line break in quotes belongs to its field. So a record ends at a line break that an even number of quotes precedes.
That is true where every quote opens or closes a field, or is doubled inside of one, which is checked on whole columns of
bytes. Other text (a quote inside of a field that has none around it) is scanned record by record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.int64]
_PIECE = 4096
Mask = npt.NDArray[np.bool_]
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True)
class CsvDialect:
    """How fields are separated and quoted: single bytes, ``quote``, ``escape`` and ``comment`` may be empty."""

    sep: bytes = b","
    quote: bytes = b'"'
    escape: bytes = b"\\"
    comment: bytes = b""

    @cached_property
    def _field(self) -> bytes:
        sep, quote, escape = (re.escape(part) for part in (self.sep, self.quote, self.escape))
        if not self.quote:
            return b"[^%s\n]*" % sep
        inside = b"[^%s]|%s%s" % (quote, quote, quote)
        if self.has_escape:
            inside = b"[^%s%s]|%s.|%s%s" % (quote, escape, escape, quote, quote)
        return b"(?:%s(?:%s)*%s[^%s\n]*|(?!%s)[^%s\n]*)" % (quote, inside, quote, sep, quote, sep)

    @cached_property
    def record_pattern(self) -> re.Pattern[bytes]:
        """A record with the line break at its end."""
        return re.compile(b"%s(?:%s%s)*\n" % (self._field, re.escape(self.sep), self._field), re.DOTALL)

    @cached_property
    def field_pattern(self) -> re.Pattern[bytes]:
        """A field of a record."""
        return re.compile(self._field, re.DOTALL)

    @cached_property
    def quoted_pattern(self) -> re.Pattern[bytes]:
        """Pairs of the escape character with the escaped or doubled quote, or the end of the text, after them."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        pairs = b"(?:%s%s)" % (escape, escape)
        return re.compile(b"(%s*)%s%s|(%s*)%s%s|(%s+)$" % (pairs, escape, quote, pairs, quote, quote, pairs), re.DOTALL)

    @property
    def has_escape(self) -> bool:
        """Whether a character before a quote makes it a part of the text. A quote itself does that by being doubled."""
        return bool(self.escape) and bool(self.quote) and self.escape != self.quote


def record_ends(data: bytes, dialect: CsvDialect) -> Offsets:
    """Where each whole record ends, after its line break. ``data`` begins with a record."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if dialect.comment and (data.startswith(dialect.comment) or b"\n" + dialect.comment in data):
        return _scanned(data, dialect)
    if not dialect.quote or dialect.quote not in data:
        return newlines + 1
    quotes = quotes_of(data, dialect)
    if not is_regular(data, quotes, dialect):
        return _scanned(data, dialect)
    inside = np.searchsorted(quotes, newlines) % 2 == 1
    ends: Offsets = newlines[~inside] + 1
    return ends


def quotes_of(data: bytes, dialect: CsvDialect) -> Offsets:
    """The places of the quotes that open or close a field, or are doubled: without those that are escaped."""
    array = np.frombuffer(data, np.uint8)
    quotes: Offsets = np.flatnonzero(array == dialect.quote[0])
    if not dialect.has_escape or dialect.escape + dialect.quote not in data:
        return quotes
    escapes = array == dialect.escape[0]
    last_other = np.maximum.accumulate(np.where(escapes, -1, np.arange(len(array))))
    before = np.maximum(quotes - 1, 0)
    run = np.where(quotes > 0, before - last_other[before], 0)
    free: Offsets = quotes[run % 2 == 0]
    return free


def is_regular(data: bytes, quotes: Offsets, dialect: CsvDialect) -> bool:
    """Whether each quote opens a field at its beginning, closes one at its end, or is doubled."""
    array = np.frombuffer(data, np.uint8)
    sep = dialect.sep[0]
    opens, closes = quotes[0::2], quotes[1::2]
    before = array[np.maximum(opens - 1, 0)]
    good = (opens == 0) | (before == sep) | (before == _NEWLINE)
    good[1:] |= opens[1:] == closes[: len(opens) - 1] + 1
    if not good.all():
        return False
    last = len(array) - 1
    after = array[np.minimum(closes + 1, last)]
    second = array[np.minimum(closes + 2, last)]
    good = (closes == last) | (after == sep) | (after == _NEWLINE)
    good |= (after == _RETURN) & ((closes + 1 == last) | (second == _NEWLINE))
    good[: len(opens) - 1] |= opens[1:] == closes[: len(opens) - 1] + 1
    return bool(good.all())


def _scanned(data: bytes, dialect: CsvDialect) -> Offsets:
    """The same, record by record: only for text whose quotes are not regular, or with comments."""
    ends, at = [], 0
    while at < len(data):
        if dialect.comment and data.startswith(dialect.comment, at):
            end = data.find(b"\n", at) + 1
        else:
            found = dialect.record_pattern.match(data, at)
            end = 0 if found is None else found.end()
        if not end:
            break
        ends.append(end)
        at = end
    return np.array(ends, np.int64)


def not_utf8(data: bytes, starts: Offsets) -> list[int]:
    """The records, by their begins, that are not UTF-8. A loop over pieces of data in which some record is not."""
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        pass
    else:
        return []
    found: list[int] = []
    at, piece = 0, 0
    while at < len(data):
        # From one record's begin to another's: an error has a copy of the bytes that it is about.
        last = max(piece + 1, int(np.searchsorted(starts, at + _PIECE)))
        end = int(starts[last]) if last < len(starts) else len(data)
        try:
            data[at:end].decode()
        except UnicodeDecodeError as e:
            piece = int(np.searchsorted(starts, at + e.start, "right")) - 1
            found.append(max(piece, 0))
            last = piece + 1
            end = int(starts[last]) if last < len(starts) else len(data)
        at, piece = end, last
    return found


def fields_of(record: bytes, dialect: CsvDialect) -> list[tuple[bytes, bool]] | str:
    """The fields of a record (without its line break), each with whether it was in quotes; or why it cannot be read."""
    out: list[tuple[bytes, bool]] = []
    at = 0
    while True:
        found = dialect.field_pattern.match(record, at)
        if found is None:
            return f"not CSV: the quote of field {len(out) + 1} is not closed"
        text = found.group()
        if dialect.quote and text.startswith(dialect.quote):
            if not _closed(text, dialect):
                return f"not CSV: text follows the closing quote of field {len(out) + 1}"
            out.append((_unquoted(text[1:-1], dialect), True))
        else:
            out.append((text, False))
        at = found.end()
        if at >= len(record):
            return out
        at += 1


def _closed(text: bytes, dialect: CsvDialect) -> bool:
    """Whether a field that begins with a quote ends with the quote that closes it."""
    quotes = quotes_of(text, dialect)
    inner = quotes[1:-1]
    doubled = len(inner) % 2 == 0 and bool((inner[0::2] + 1 == inner[1::2]).all())
    return len(quotes) >= 2 and int(quotes[-1]) == len(text) - 1 and doubled


def _unquoted(text: bytes, dialect: CsvDialect) -> bytes:
    """The text of a quoted field. An escape character counts only before a quote, or before another one that does."""
    quote = dialect.quote
    if not dialect.has_escape:
        return text.replace(quote + quote, quote)
    return dialect.quoted_pattern.sub(_plain_quote(quote), text)


def _plain_quote(quote: bytes) -> Callable[[re.Match[bytes]], bytes]:
    def plain(found: re.Match[bytes]) -> bytes:
        pairs = next(pairs for pairs in found.groups() if pairs is not None)
        return pairs[: len(pairs) // 2] + (quote if found.group(3) is None else b"")

    return plain
