"""How CSV files are read: the options of Spark's reader that HoodieStreamer passes on (Hudi's ``CsvDFSSource``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import derived, option, read

PREFIX = "hoodie.streamer.csv."
_SEP, _QUOTE, _ESCAPE, _COMMENT = (PREFIX + name for name in ("sep", "quote", "escape", "comment"))
_ENCODING = PREFIX + "encoding"
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_NAMED = {r"\t": "\t", r"\\": "\\", r"\"": '"', r"\'": "'", r"\0": "", "\0": ""}  # Spark reads no quotes with U+0000


def _text(name: str, doc: str, default: str | None, note: str = "") -> ConfigKey:
    return ConfigKey(PREFIX + name, Kind.STRING, doc, default=default, default_note=note, may_be_empty=True)


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """``sep``, ``quote``, ``escape`` and ``comment``: one byte each, all but ``sep`` may be empty."""

    sep: bytes = derived(
        _text("sep", "Character between the fields of CsvDFSSource; `\\t` is a tab.", ","), default=b","
    )
    quote: bytes = derived(
        _text(
            "quote",
            'Character around fields of CSV. A field in quotes may have line breaks, and `""` for a quote.',
            '"',
        ),
        default=b'"',
    )
    escape: bytes = derived(
        _text("escape", "Character before a quote that is a part of a field of CSV in quotes.", "\\"), default=b"\\"
    )
    comment: bytes = derived(
        _text("comment", "Lines of CSV that begin with this character are not read.", None, "none"), default=b""
    )
    header: bool = option(
        PREFIX + "header",
        Kind.BOOL,
        "Each CSV file begins with the names of its columns, which are found by name (Spark's default takes them by "
        "their place). Without a header the columns are those of the schema, in its order.",
        default=False,
    )
    null_value: str = option(
        PREFIX + "nullValue",
        Kind.STRING,
        "Text of CSV for null, in addition to no text.",
        default="",
        may_be_empty=True,
    )
    empty_value: str = option(
        PREFIX + "emptyValue",
        Kind.STRING,
        'Value of `""` in CSV; it is null if `nullValue` is empty too.',
        default="",
        may_be_empty=True,
    )
    trim_left: bool = option(
        PREFIX + "ignoreLeadingWhiteSpace", Kind.BOOL, "Blanks before a field of CSV without quotes are removed.",
        default=False,
    )  # fmt: skip
    trim_right: bool = option(
        PREFIX + "ignoreTrailingWhiteSpace", Kind.BOOL, "Blanks after a field of CSV without quotes are removed.",
        default=False,
    )  # fmt: skip
    encoding: str = derived(
        _text("encoding", "Encoding of CSV files. Only UTF-8 (and US-ASCII) is read.", "UTF-8"),
        default="UTF-8",
        shown=False,
    )


def csv_options(r: Resolved, source_class: str) -> CsvOptions:
    """The options; problems are noted in ``r``. Keys of CSV have no effect with another source class."""
    given = [name for name in r.entries if name.startswith(PREFIX)]
    if source_class != "CsvDFSSource":
        r.warnings += [f"{r.said(name)}: without effect, only CsvDFSSource reads it" for name in given]
        return CsvOptions()
    sep = r.attempt(lambda: _char(r, _SEP), b",", _SEP)
    if not sep:
        r.problems.append(Problem(f"{r.said(_SEP)}: set one character", r.entries.get(_SEP)))
    if r.text(_ENCODING).upper().replace("_", "-") not in ("UTF-8", "UTF8", "US-ASCII", "ASCII"):
        text = f"{r.said(_ENCODING)}: only UTF-8 is read; write the files in it"
        r.problems.append(Problem(text, r.entries[_ENCODING]))
    quote = r.attempt(lambda: _char(r, _QUOTE), b'"', _QUOTE)
    if sep and sep in (quote, b"\n", b"\r"):
        r.problems.append(
            Problem(f"{r.said(_SEP)}: it must differ from the quote and from a line break", r.entries.get(_SEP))
        )
    return read(
        CsvOptions,
        r,
        sep=sep,
        quote=quote,
        escape=r.attempt(lambda: _char(r, _ESCAPE), b"\\", _ESCAPE),
        comment=r.attempt(lambda: _char(r, _COMMENT), b"", _COMMENT),
        encoding="UTF-8",
    )


def _char(r: Resolved, name: str) -> bytes:
    """The one byte of a key, also in the notations of Spark (``\\t``, ``\\u0001``); empty for an empty value."""
    text = r.opt_text(name) or ""
    if name in r.entries and not text:
        text = r.entries[name].value  # a blank or a tab itself
    code = _CODE.fullmatch(text)
    char = chr(int(code.group(1), 16)) if code else text
    char = _NAMED.get(char, char)
    data = char.encode()
    if len(data) > 1:
        raise ConfigError(f"{r.said(name)}: use one character of ASCII")
    return data
