"""Records in CSV text: where they end whatever their fields have, and their fields as Spark's reader reads them."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.csv_text import CsvDialect, fields_of, not_utf8, record_ends
from tagstream.streaming.source.decode.record_format import FAULT
from tagstream.streaming.source.file_csv import CsvFiles
from tagstream.streaming.source.source_file import FilePart
from tagstream.table.storage.posix import PosixStorage

TEXTS = {"a": pa.string(), "b": pa.string(), "c": pa.string()}


def read(folder: Path, data: bytes, form: CsvFiles, kinds: dict[str, pa.DataType] | None = None) -> list[object]:
    """The records of a file: values of good ones, the reasons of bad ones."""
    (folder / "f.csv").write_bytes(data)
    out: list[object] = []
    for batch, _ in form.records(PosixStorage(str(folder)), FilePart("f.csv", 0, len(data)), kinds or TEXTS):
        for value, fault in zip(batch["value"].to_pylist(), batch[FAULT].to_pylist(), strict=True):
            out.append(fault or tuple(json.loads(value).values()))
    return out


# Spark 4.2's CSV reader with multiLine=true read these, with three columns of texts.
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'1,"",x\n2,,y\n', [("1", None, "x"), ("2", None, "y")]),
        (b'1,"a\\"b",x\n', [("1", 'a"b', "x")]),
        (b'1,"a\\\\",x\n', [("1", "a\\", "x")]),
        (b'1,"a\\nb",x\n', [("1", "a\\nb", "x")]),
        (b'1,"a\\\\\\"b",x\n', [("1", 'a\\"b', "x")]),
        (b'1,a"b"c,x\n', [("1", 'a"b"c', "x")]),
        (b'1,"a\nb",x\n', [("1", "a\nb", "x")]),
        (b'1, "a" ,x\n', [("1", ' "a" ', "x")]),
        (b"\n\n1,2,3\n", [("1", "2", "3")]),
        (b"1,2,3\r\n4,5,6\r\n", [("1", "2", "3"), ("4", "5", "6")]),
        (b'3,"n\nn","c,c"\n4,end\\,sp\n5,"\\\\\\"x","\\""\n',
         [("3", "n\nn", "c,c"), ("4", "end\\", "sp"), ("5", '\\"x', '"')]),
    ],
)  # fmt: skip
def test_fields_are_those_of_sparks_reader(tmp_path: Path, text: bytes, wanted: list[object]) -> None:
    assert read(tmp_path, text, CsvFiles(columns=("a", "b", "c"))) == wanted


@pytest.mark.parametrize(
    ("form", "text", "wanted"),
    [
        (CsvFiles(columns=("a", "b", "c"), null_value=b"NA"), b'1,"",x\n2,,y\nNA,"NA",x\n',
         [("1", "", "x"), ("2", None, "y"), (None, None, "x")]),
        (CsvFiles(columns=("a", "b", "c"), null_value=b"NA", empty_value=b"-"), b'1,"",x\n2,,y\n',
         [("1", "-", "x"), ("2", None, "y")]),
        (CsvFiles(columns=("a", "b", "c"), trims=(True, True)), b'1,  x ,"  y "\n', [("1", "x", "  y ")]),
        (CsvFiles(CsvDialect(comment=b"#"), columns=("a", "b", "c")), b'#x,"1,2\n3,4,5\n', [("3", "4", "5")]),
        (CsvFiles(CsvDialect(sep=b"|"), columns=("a", "b", "c")), b'1|"a|b"|3\n', [("1", "a|b", "3")]),
        (CsvFiles(CsvDialect(sep=b"\t", quote=b""), columns=("a", "b", "c")), b'1\t"a"\tx\n', [("1", '"a"', "x")]),
        (CsvFiles(CsvDialect(escape=b'"'), columns=("a", "b", "c")), b'1,"a""b",x\n', [("1", 'a"b', "x")]),
        (CsvFiles(header=True), b'\xef\xbb\xbf"c",b,z,a\n1,2,3,4\n', [("1", "2", "4")]),
        (CsvFiles(columns=("a", "b", "c")), b"\xef\xbb\xbf1,2,3\n", [("1", "2", "3")]),
    ],
)  # fmt: skip
def test_the_options_of_the_reader(tmp_path: Path, form: CsvFiles, text: bytes, wanted: list[object]) -> None:
    assert read(tmp_path, text, form) == wanted


def test_records_that_are_not_csv_are_bad_and_the_others_are_read(tmp_path: Path) -> None:
    text = b'1,2,3\n4,5\n6,7,8,9\n"a"b,c,d\n10,11,12\n"open,x\n'
    assert read(tmp_path, text, CsvFiles(columns=("a", "b", "c"))) == [
        ("1", "2", "3"),
        "has 2 fields, where the schema has 3 columns",
        "has 4 fields, where the schema has 3 columns",
        "not CSV: text follows the closing quote of field 1",
        ("10", "11", "12"),
        "not CSV: the quote of field 1 is not closed",
    ]


def test_a_number_has_no_quotes_where_the_column_is_one(tmp_path: Path) -> None:
    kinds = {"a": pa.int64(), "b": pa.float64(), "c": pa.bool_()}
    data = b"1,1.5,TRUE\n+5,x,false\n,,\n"
    (tmp_path / "f.csv").write_bytes(data)
    form, part = CsvFiles(columns=tuple(kinds)), FilePart("f.csv", 0, len(data))
    ((batch, places),) = form.records(PosixStorage(str(tmp_path)), part, kinds)
    assert places.to_pylist() == [0, 11, 22]
    assert batch["value"].to_pylist() == [
        b'{"a":1,"b":1.5,"c":true}',
        b'{"a":"+5","b":"x","c":false}',
        b'{"a":null,"b":null,"c":null}',
    ]


@pytest.mark.parametrize("line", [b"a,b,a\n", b'a,"b\n', b"a,\xff\n"])
def test_a_header_that_cannot_be_used_names_the_file(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(SourceError, match=r"f\.csv: its header .*correct the file"):
        read(tmp_path, line + b"1,2,3\n", CsvFiles(header=True))


@pytest.mark.parametrize("dialect", [CsvDialect(), CsvDialect(escape=b'"')], ids=["backslash", "doubled"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL], ids=["minimal", "all"])
def test_records_of_pythons_writer_at_any_cut(tmp_path: Path, dialect: CsvDialect, quoting: int) -> None:
    """Fields of any characters: the same rows, and the same record ends whatever bytes follow."""
    rng = random.Random(3)
    pieces = ["a", '"', ",", "\n", "\r\n", "é", "b" * 5, " "] + (["\\"] if dialect.escape == b'"' else [])
    rows = [["".join(rng.choices(pieces, k=rng.randrange(6))) for _ in range(3)] for _ in range(300)]
    rows = [[field or "x" for field in row] for row in rows]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n", quoting=quoting).writerows(rows)  # type: ignore[call-overload]
    data = out.getvalue().encode()
    ends = record_ends(data, dialect).tolist()
    assert len(ends) == len(rows)
    for cut in rng.sample(range(len(data)), 60):
        assert record_ends(data[:cut], dialect).tolist() == [end for end in ends if end <= cut]
    starts = [0, *ends[:-1]]
    for row, start, end in zip(rows, starts, ends, strict=True):
        found = fields_of(data[start : end - 1], dialect)
        assert not isinstance(found, str)
        assert [text.decode() for text, _ in found] == row
    assert read(tmp_path, data, CsvFiles(dialect, columns=("a", "b", "c"))) == [tuple(row) for row in rows]


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_records_that_are_not_utf8(share: float) -> None:
    rnd = random.Random(9)
    for _ in range(30):
        records: list[bytes] = []
        for _ in range(rnd.randrange(1, 300)):
            record = f"ä{rnd.randrange(10**6)},".encode() * rnd.randrange(1, 90)
            at = rnd.randrange(len(record))
            records.append((record[:at] + b"\xff" + record[at:] if rnd.random() < share else record) + b"\n")
        starts = np.cumsum([0, *(len(record) for record in records)])[:-1]
        expected = [n for n, record in enumerate(records) if "\ufffd" in record.decode(errors="replace")]
        assert not_utf8(b"".join(records), starts) == expected


def test_a_record_that_is_not_utf8_and_has_a_field_too_many(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Arrow's reader would print an error of its own."""
    form = CsvFiles(CsvDialect(), header=False, columns=("a", "b", "c"))
    bad, good = read(tmp_path, b"\xfe,2,3,4\n5,6,7\n", form)
    assert bad == "has 4 fields, where the schema has 3 columns"
    assert good == ("5", "6", "7")
    assert capfd.readouterr().err == ""
