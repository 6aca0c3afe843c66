"""Texts that are not UTF-8, at any depth: which rows have one, and what is kept of them."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.text_bytes import only_utf8, python_values
from tagstream.streaming.source.decode.typed_rows import ROW, TypedRows

TEXTS, BYTES = pa.string(), pa.binary()


def texts(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of ``kind`` whose texts are given as bytes, unchecked."""

    def raw(of: pa.DataType) -> pa.DataType:
        t = pa.types
        if t.is_string(of):
            return BYTES
        if t.is_struct(of):
            return pa.struct([pa.field(f.name, raw(f.type)) for f in of])
        if t.is_list(of):
            return pa.list_(raw(of.value_type))
        return pa.map_(raw(of.key_type), raw(of.item_type)) if t.is_map(of) else of

    return pa.array(values, raw(kind)).view(kind)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (TEXTS, "ä".encode(), b"\xff"),
        (pa.list_(TEXTS), [b"a", None], [b"a", b"\xe4"]),
        (pa.struct([("n", pa.int32()), ("s", TEXTS)]), {"n": 1, "s": None}, {"n": 1, "s": b"\xc3"}),
        (pa.map_(TEXTS, pa.int32()), [(b"k", 1)], [(b"k", 1), (b"\xfe", 2)]),
        (pa.map_(TEXTS, pa.list_(TEXTS)), [(b"k", [])], [(b"k", [b"x", b"\xed\xa0\x80"])]),
    ],
)
def test_the_rows_of_every_type_of_column(kind: pa.DataType, good: Any, bad: Any) -> None:
    rnd = random.Random(3)
    for share in (0, 0.02, 0.5, 1):
        wrong = [rnd.random() < share for _ in range(100)]
        column = texts([bad if each else rnd.choice([good, None]) for each in wrong], kind)
        for values in (column, pa.concat_arrays([column.slice(0, 7), column.slice(7)])):
            kept, why = only_utf8(values, "c")
            assert [w for w in (why.to_pylist() if why is not None else []) if w] == [
                "field c: a text is not UTF-8"
            ] * sum(wrong)
            assert [k is not None for k in kept.to_pylist()].count(True) <= 100 - sum(wrong)
            kept.validate(full=True)


def test_texts_that_are_only_together_utf8() -> None:
    """Each of two texts has half a character."""
    column = texts([b"ok", b"a\xc3", b"\xa4b", "ä".encode(), None], TEXTS)
    for values in (column, column.slice(1), texts([[b"\xc3", b"\xa4"]], pa.list_(TEXTS))):
        kept, why = only_utf8(values, "c")
        assert why is not None
        kept.validate(full=True)
    assert only_utf8(column.slice(3), "c")[1] is None
    assert only_utf8(texts([], TEXTS), "c")[1] is None
    assert only_utf8(texts([None, b""], TEXTS), "c")[1] is None


def test_a_dictionary_of_texts() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), texts([b"a", b"\xff"], TEXTS))
    kept, why = only_utf8(column, "c")
    assert why is not None
    assert kept.to_pylist() == ["a", None, None, "a"]
    assert why.to_pylist() == [None, "field c: a text is not UTF-8", None, None]


def test_python_values_have_every_byte() -> None:
    kind = pa.struct([("s", TEXTS), ("l", pa.list_(TEXTS)), ("m", pa.map_(TEXTS, TEXTS)), ("b", BYTES)])
    rows = texts([{"s": b"a\xff", "l": [b"\xfe", None], "m": [(b"k", b"\xe9")], "b": b"\0"}, None], kind)
    first, second = python_values(rows)
    assert second is None
    assert first == {"s": "a\udcff", "l": ["\udcfe", None], "m": [("k", "\udce9")], "b": b"\0"}
    assert python_values(pa.array(["ä"])) == ["ä"]


def test_rows_of_spark_are_bad_and_their_lines_have_the_bytes() -> None:
    """A line that is replayed is bad again; an escape in it would be another text."""
    schema = pa.schema([("id", TEXTS), ("s", TEXTS)])
    given = texts(
        [{"id": b"a", "s": b"x"}, {"id": b"b\xff", "s": b"y"}, {"id": b"c", "s": b"\xe4"}], pa.struct(list(schema))
    )
    batch = pa.RecordBatch.from_arrays([given], names=[ROW])
    events = TypedRows(schema, "_deleted").read(batch)
    assert events.reason.to_pylist() == [None, "field id: a text is not UTF-8", "field s: a text is not UTF-8"]
    assert events.rows.to_pylist() == [{"id": "a", "s": "x"}, {"id": None, "s": "y"}, {"id": "c", "s": None}]
    assert events.lines is not None
    lines = events.lines(~events.reason.is_null().to_numpy(zero_copy_only=False)).to_pylist()
    assert lines == [None, b'{"id": "b\xff", "s": "y"}', b'{"id": "c", "s": "\xe4"}']
    with pytest.raises(UnicodeDecodeError):
        json.loads(lines[1])
