"""Entries of a block read side by side are those that going through it one by one finds, whatever stands in them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError
from tagstream.table.metadata.hfile_block import DATA, KEY_END, Block, FileRange, _one_by_one, _side_by_side, entries_of
from tests.support.stored import stored

TEXTS = st.one_of(st.binary(max_size=30), st.just(KEY_END), st.binary(max_size=5).map(lambda b: b + KEY_END + b))


def entry(row: bytes, value: bytes, version: bytes = b"", end: bytes = KEY_END) -> bytes:
    key = struct.pack(">h", len(row)) + row + end
    return struct.pack(">ii", len(key), len(value)) + key + value + version


def source(tmp_path: Path) -> FileRange:
    (tmp_path / "f.hfile").write_bytes(b"x")
    storage, rel = stored(tmp_path / "f.hfile")
    return FileRange(storage, rel, 0, 1)


def block(data: bytes) -> Block:
    return Block(DATA, data, 0, len(data))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=40), st.booleans())
def test_both_ways_find_the_same(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]], versions: bool
) -> None:
    data = b"".join(entry(row, value, b"\0" * versions) for row, value in pairs)
    found = entries_of(source(tmp_path_factory.mktemp("b")), block(data), versions)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == pairs


def test_keys_of_different_lengths_are_read_side_by_side() -> None:
    pairs = [(b"k" * (n % 20), b"v" * (n * 7 % 90)) for n in range(1, 500)]
    data = b"".join(entry(row, value, b"\0") for row, value in pairs)
    found = _side_by_side(data, True)
    assert found is not None
    assert found.column(0).to_pylist() == [row for row, _ in pairs]
    assert found.column(1).to_pylist() == [value for _, value in pairs]


@pytest.mark.parametrize(
    ("data", "versions", "rows"),
    [
        (entry(b"a", b"1") + entry(b"b", b"2", end=b"\1f" + KEY_END[1:]), False, [b"a", b"b"]),  # a family
        (entry(b"a", b"1", end=b"\0" + bytes(8) + b"\4"), False, [b"a"]),  # another timestamp
        (entry(b"a", b"1", b"\x8f\x80") + entry(b"b", b"2", b"\0"), True, [b"a", b"b"]),  # a version of two bytes
        (b"".join(entry(b"k" * n, b"") for n in range(1, 100)), False, [b"k" * n for n in range(1, 100)]),
        (b"", False, []),
    ],
)
def test_other_forms_are_read_one_by_one(data: bytes, versions: bool, rows: list[bytes], tmp_path: Path) -> None:
    assert _side_by_side(data, versions) is None
    assert _one_by_one(source(tmp_path), block(data), versions).column(0).to_pylist() == rows


@given(st.data())
def test_a_changed_byte_gives_an_error_or_what_the_loop_finds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(entry(f"key{n}".encode(), b"value" * n, b"\0") for n in range(12)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    at = source(tmp_path_factory.mktemp("b"))
    try:
        expected = _one_by_one(at, block(bytes(whole)), True)
    except CorruptFileError:
        with pytest.raises(CorruptFileError):
            entries_of(at, block(bytes(whole)), True)
        return
    assert entries_of(at, block(bytes(whole)), True).equals(expected)
