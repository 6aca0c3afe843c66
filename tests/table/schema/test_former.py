"""A column that comes again after it was dropped: its type must hold the values of the files from before."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tagstream.table.schema.evolve import Clash, clash

ID = ("id", pa.string())
S, N, L, D = pa.string(), pa.int32(), pa.int64(), pa.float64()


def struct(**members: pa.DataType) -> pa.DataType:
    return pa.struct(list(members.items()))


@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        (S, N, "x"),
        (N, S, "x"),
        (L, N, "x"),
        (N, L, None),
        (S, S, None),
        (pa.float32(), D, None),
        (D, pa.float32(), "x"),
        (pa.decimal128(8, 2), pa.decimal128(12, 2), None),
        (pa.decimal128(8, 2), pa.decimal128(12, 3), "x"),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), "x"),
        (struct(a=S), struct(b=N), None),
        (struct(a=S, b=N), struct(a=S, b=S), "x.b"),
        (struct(a=S), S, "x"),
        (S, struct(a=S), "x.a"),
        (pa.list_(N), pa.list_(L), None),
        (pa.list_(S), pa.list_(N), "x[]"),
        (pa.list_(struct(a=S)), pa.list_(struct(a=N)), "x[].a"),
        (pa.list_(S), S, "x"),
        (pa.map_(S, N), pa.map_(S, S), "x[].value"),
    ],
)
def test_a_dropped_column_comes_again(before: pa.DataType, now: pa.DataType, name: str | None) -> None:
    own, made = pa.schema([ID]), pa.schema([ID, ("x", now)])
    found = clash(own, made, [pa.schema([ID, ("y", S)]), pa.schema([ID, ("x", before)])])
    assert (found and found.name) == name


def test_a_member_that_another_writer_dropped() -> None:
    own, made = (pa.schema([ID, ("s", struct(a=S, **more))]) for more in ({}, {"b": N}))
    assert clash(own, made, [pa.schema([ID, ("s", struct(a=S, b=S))])]) == Clash("s.b", S, N)


def test_what_the_table_has_is_not_judged_again() -> None:
    own = pa.schema([ID, ("x", N)])
    assert clash(own, pa.schema([ID, ("x", L), ("y", S)]), [pa.schema([ID, ("x", S)])]) is None


def test_nothing_is_read_where_nothing_is_new() -> None:
    def never() -> Iterator[pa.Schema]:
        raise AssertionError("the history was read")
        yield

    assert clash(pa.schema([ID]), pa.schema([ID]), never()) is None
